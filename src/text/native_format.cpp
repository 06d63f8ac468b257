#include "text/native_format.h"

#include <log.h>
#include <peg-parser.h>

#include <algorithm>
#include <utility>

#include "text/marked_render.h"
#include "text/tool_name_set.h"

namespace graft {
namespace {

// Parses with the grammar that llama.cpp made for the template and the tools.
class PegSyntax : public AnswerSyntax {
 public:
  PegSyntax(const common_chat_params& made, const common_json& tools,
            std::vector<std::string> markers)
      : tools_(tool_names(tools)), markers_(std::move(markers)), params_(made) {
    params_.parser.load(made.parser);
    params_.reasoning_format = COMMON_REASONING_FORMAT_AUTO;
  }

  Result<ChatMessage> parse(std::string_view text, bool is_whole) const override {
    return guarded(
        ErrorCode::kInternal, "the answer does not follow the model's own format", "",
        [&]() -> Result<ChatMessage> {
          auto parsed = common_chat_parse(std::string(text), !is_whole, params_);
          ChatMessage message{.reasoning = std::move(parsed.reasoning_content),
                              .content = std::move(parsed.content),
                              .tool_calls = {}};
          for (common_chat_tool_call& call : parsed.tool_calls) {
            message.tool_calls.push_back({{}, std::move(call.name), std::move(call.arguments)});
          }
          if (is_whole) give_back(text, message);
          return message;
        });
  }

  bool nests() const override { return !tools_.empty(); }
  bool has_tool(std::string_view name) const override { return tools_.contains(name); }
  bool begins_longer_tool(std::string_view name) const override {
    return tools_.begins_longer(name);
  }

 private:
  // llama.cpp leaves out an end that could have become a call, even where no more text comes.
  void give_back(std::string_view text, ChatMessage& message) const {
    if (!message.tool_calls.empty() || tools_.empty()) return;
    const std::size_t at = markers_.empty() ? text.find('{') : begun_marker(text);
    if (at >= text.size() || text.ends_with(message.content)) return;
    if (text.substr(0, at).ends_with(message.content)) message.content += text.substr(at);
  }

  // Where the longest beginning of a marker stands that `text` ends with, or its size.
  std::size_t begun_marker(std::string_view text) const {
    std::size_t longest = 0;
    for (const std::string& marker : markers_) {
      for (std::size_t n = std::min(marker.size() - 1, text.size()); n > longest; --n) {
        if (text.ends_with(std::string_view(marker).substr(0, n))) longest = n;
      }
    }
    return text.size() - longest;
  }

  ToolNameSet tools_;
  std::vector<std::string> markers_;  // not empty strings
  common_chat_parser_params params_;
};

common_json message_of(const char* role, const char* content) {
  common_json message = common_json::object();
  message["role"] = role;
  message["content"] = content;
  return message;
}

common_json probe_tools() {
  return common_json::parse(
      R"([{"type":"function","function":{"name":"probe","description":"A probe.",)"
      R"("parameters":{"type":"object","properties":{"x":{"type":"string"}},"required":["x"]}}}])");
}

autoparser::generation_params probe_params(bool with_tools) {
  autoparser::generation_params params;
  params.messages = common_json::array();
  params.messages.push_back(message_of("user", "Hello"));
  if (with_tools) {
    params.tools = probe_tools();
    params.tool_choice = COMMON_CHAT_TOOL_CHOICE_REQUIRED;
  }
  params.add_generation_prompt = true;
  params.extra_context = date_values();
  return params;
}

// llama.cpp tries a template without the dates and other values that it may read, and takes its
// failure for a dislike of plain strings. A template that prints a string's text does take strings.
bool prints_strings(const common_chat_template& source) {
  const char* const text = "a plain content";
  TemplateInput input;
  input.messages = common_json::array();
  input.messages.push_back(message_of("user", text));
  try {
    const RenderedPrompt prompt{.parts = render_marked(source, input), .request_text = {}};
    return prompt.text().find(text) != std::string::npos;
  } catch (const std::exception&) {
    return false;
  }
}

common_chat_params make_params(const AnalysedTemplate& analysed,
                               autoparser::generation_params& params) {
  if (!analysed.is_special) {
    return autoparser::peg_generator::generate_parser(analysed.source, params, analysed.analysis);
  }
  auto made =
      common_chat_try_specialized_template(analysed.source, analysed.source.source(), params);
  if (!made) throw std::runtime_error("the template changed its family");
  return *std::move(made);
}

// Whether a forced call gives a grammar: then calls can be written and parsed.
bool can_force_calls(const AnalysedTemplate& analysed) {
  try {
    auto params = probe_params(true);
    const auto made = make_params(analysed, params);
    return !made.grammar.empty() && made.prompt.find("probe") != std::string::npos;
  } catch (const std::exception&) {
    return false;
  }
}

void analyse_syntax(AnalysedTemplate& analysed) {
  auto params = probe_params(false);
  try {
    analysed.is_special =
        common_chat_try_specialized_template(analysed.source, analysed.source.source(), params)
            .has_value();
    analysed.has_syntax = analysed.is_special;
    if (!analysed.is_special) {
      analysed.analysis.analyze_template(analysed.source);
      analysed.has_syntax = analysed.analysis.reasoning.mode != autoparser::reasoning_mode::NONE ||
                            analysed.analysis.content.mode != autoparser::content_mode::PLAIN;
    }
    analysed.writes_tools = analysed.source.caps.supports_tools && can_force_calls(analysed);
  } catch (const std::exception&) {
    // What cannot be analysed is rendered, and its answers are content.
    analysed.has_syntax = false;
  }
}

// Once per process; what it would print is a client's text.
void silence_library() {
  static const bool done = [] {
    common_log_set_verbosity_thold(LOG_LEVEL_OUTPUT);
    return true;
  }();
  static_cast<void>(done);
}

std::vector<std::string> markers_of(const AnalysedTemplate& analysed,
                                    const std::vector<GrammarTrigger>& triggers) {
  std::vector<std::string> markers;
  for (const GrammarTrigger& trigger : triggers) {
    if (!trigger.is_pattern && !trigger.text.empty()) markers.push_back(trigger.text);
  }
  if (markers.empty() && !analysed.is_special) {
    const auto& format = analysed.analysis.tools.format;
    for (const std::string& marker : {format.section_start, format.per_call_start}) {
      if (!marker.empty()) markers.push_back(marker);
    }
  }
  return markers;
}

}  // namespace

std::unique_ptr<AnalysedTemplate> analyse(const std::string& source, const std::string& bos_token,
                                          const std::string& eos_token) {
  silence_library();
  auto analysed =
      std::make_unique<AnalysedTemplate>(common_chat_template(source, bos_token, eos_token));
  chat_template_caps& caps = analysed->source.caps;
  caps.supports_string_content = caps.supports_string_content || prints_strings(analysed->source);
  // gpt-oss is the family that tells developer from system.
  analysed->renames_developer = source.find("<|channel|>") == std::string::npos;
  analyse_syntax(*analysed);
  return analysed;
}

NativeAnswer make_native_answer(const AnalysedTemplate& analysed,
                                autoparser::generation_params params) {
  const common_chat_params made = make_params(analysed, params);
  auto format = std::make_shared<AnswerFormat>();
  const bool is_forced = params.tool_choice == COMMON_CHAT_TOOL_CHOICE_REQUIRED;
  if (params.tools.is_array() && !params.tools.empty()) {
    format->grammar = made.grammar;
    if (is_forced && made.grammar.empty()) {
      throw std::runtime_error("no grammar can be made for these tools");
    }
  }
  if (made.grammar_lazy) {
    for (const common_grammar_trigger& trigger : made.grammar_triggers) {
      const bool is_word = trigger.type == COMMON_GRAMMAR_TRIGGER_TYPE_WORD;
      format->triggers.push_back({trigger.value, !is_word});
    }
    // Nothing would say where it starts.
    if (format->triggers.empty()) format->grammar.clear();
  } else {
    format->grammar_prefix = made.generation_prompt;
  }
  // Mistral's templates refuse others in the history.
  format->short_call_ids =
      analysed.source.source().find("strings with length 9") != std::string::npos;
  format->stop_strings = made.additional_stops;
  format->shown_texts = made.preserved_tokens;
  format->syntax =
      std::make_shared<PegSyntax>(made, params.tools, markers_of(analysed, format->triggers));
  return {made.prompt, made.generation_prompt, std::move(format)};
}

std::vector<std::string> tool_names(const common_json& tools) {
  std::vector<std::string> names;
  if (!tools.is_array()) return names;
  for (const common_json& tool : tools) {
    names.push_back(tool.at("function").at("name").get<std::string>());
  }
  return names;
}

}  // namespace graft
