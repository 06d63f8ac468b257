// llama.cpp's common library throws in many places; all of it runs inside `guarded`. Templates are
// trusted as much as the model they come with.
#include "text/chat_template.h"

#include <chat.h>
#include <llama.h>

#include <algorithm>
#include <ctime>
#include <exception>
#include <utility>

#include "text/json_nesting.h"

namespace graft {

struct ChatTemplate::Analysed {
  common_chat_template source;
  bool renames_developer = true;  // the template knows "system" but not "developer"
};

namespace {

// Runs `body`; what it throws becomes an error with this code.
template <typename Body>
auto guarded(ErrorCode code, const char* what, Body body) -> decltype(body()) {
  try {
    return body();
  } catch (const std::exception& e) {
    return Error{code, std::string(what) + ": " + e.what(),
                 code == ErrorCode::kInvalidArgument ? "messages" : ""};
  } catch (...) {
    return Error{code, what, code == ErrorCode::kInvalidArgument ? "messages" : ""};
  }
}

Status check_messages_json(const std::string& messages_json) {
  if (messages_json.size() > kMaxTextBytes) {
    return invalid_argument("messages has " + std::to_string(messages_json.size()) +
                                " bytes; the limit is " + std::to_string(kMaxTextBytes),
                            "messages");
  }
  // llama.cpp's JSON writer and its template engine recurse; deep nesting would end the process.
  if (is_nested_deeper(messages_json, kMaxMessagesDepth)) {
    return invalid_argument(
        "messages is nested deeper than " + std::to_string(kMaxMessagesDepth) + " levels",
        "messages");
  }
  return {};
}

// The text of a message's content; parts are joined by newlines, as llama.cpp does.
std::string content_text(const common_chat_msg& message) {
  return message.content_parts.empty() ? message.content : message.render_content("\n");
}

common_json as_text_parts(const std::string& text) {
  common_json part = common_json::object();
  part["type"] = "text";
  part["text"] = text;
  common_json parts = common_json::array();
  parts.push_back(part);
  return parts;
}

// A history of tool calls holds their arguments as JSON text; some templates want the object.
void parse_arguments(common_json& message) {
  if (!message.contains("tool_calls")) {
    return;
  }
  for (common_json& call : message["tool_calls"]) {
    common_json& arguments = call["function"]["arguments"];
    if (!arguments.is_string()) {
      continue;
    }
    const auto text = arguments.get<std::string>();
    if (is_nested_deeper(text, kMaxMessagesDepth)) {
      throw std::invalid_argument("tool call arguments are nested too deep");
    }
    common_json parsed = common_json::parse_no_throw(text);
    if (!parsed.is_discarded()) {
      arguments = std::move(parsed);
    }
  }
}

// Joins a leading system message with the next one, for templates without a system role.
void fold_system(std::vector<common_chat_msg>& messages) {
  if (messages.size() < 2 || messages.front().role != "system") {
    return;
  }
  common_chat_msg& next = messages[1];
  next.content = content_text(messages.front()) + "\n" + content_text(next);
  next.content_parts.clear();
  messages.erase(messages.begin());
}

common_json to_template_json(const std::vector<common_chat_msg>& messages,
                             const chat_template_caps& caps) {
  common_json list = common_json::array();
  for (const common_chat_msg& message : messages) {
    const bool joins = caps.supports_string_content && !caps.supports_typed_content;
    common_json json = message.to_json_oaicompat(joins);
    if (!caps.supports_string_content && json["content"].is_string()) {
      json["content"] = as_text_parts(json["content"].get<std::string>());
    }
    if (caps.supports_object_arguments) {
      parse_arguments(json);
    }
    list.push_back(json);
  }
  return list;
}

std::string date_text(const char* format) {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  localtime_r(&now, &parts);
  char text[64];
  return {text, std::strftime(text, sizeof(text), format, &parts)};
}

// Everything a template may read. Only `messages` comes from the request.
jinja::context make_context(const common_chat_template& source, const common_json& messages,
                            bool add_generation_prompt) {
  jinja::context context(source.source());
  common_json own = common_json::object();
  own["bos_token"] = source.bos_token();
  own["eos_token"] = source.eos_token();
  own["enable_thinking"] = true;
  own["add_generation_prompt"] = add_generation_prompt;
  own["datetime"] = date_text("%b %d %Y");
  own["date_string"] = date_text("%d %b %Y");
  jinja::global_from_json(context, own, /*mark_input=*/false);
  common_json requested = common_json::object();
  requested["messages"] = messages;
  jinja::global_from_json(context, requested, /*mark_input=*/true);
  return context;
}

std::vector<PromptPart> run(const common_chat_template& source, const common_json& messages,
                            bool add_generation_prompt) {
  jinja::context context = make_context(source, messages, add_generation_prompt);
  jinja::runtime runtime(context);
  const auto gathered = jinja::runtime::gather_string_parts(runtime.execute(source.prog));
  std::vector<PromptPart> parts;
  for (auto& part : gathered->val_str.parts) {
    if (!part.val.empty()) {
      parts.push_back({std::move(part.val), part.is_input});
    }
  }
  return parts;
}

// llama.cpp tries a template without the dates and other values that it may read, and takes its
// failure for a dislike of plain strings. A template that prints a string's text does take strings.
bool prints_strings(const common_chat_template& source) {
  const std::string text = "a plain content";
  common_json message = common_json::object();
  message["role"] = "user";
  message["content"] = text;
  common_json messages = common_json::array();
  messages.push_back(message);
  try {
    RenderedPrompt prompt{run(source, messages, true)};
    return prompt.text().find(text) != std::string::npos;
  } catch (const std::exception&) {
    return false;
  }
}

std::string token_text(const llama_vocab* vocab, llama_token token) {
  const char* text = token < 0 ? nullptr : llama_vocab_get_text(vocab, token);
  return text == nullptr ? "" : text;
}

}  // namespace

ChatTemplate::ChatTemplate(std::unique_ptr<Analysed> analysed) : analysed_(std::move(analysed)) {}

ChatTemplate::~ChatTemplate() = default;

Result<std::unique_ptr<ChatTemplate>> ChatTemplate::create(const llama_model* model) {
  if (llama_model_chat_template(model, nullptr) == nullptr &&
      llama_model_chat_template(model, "tool_use") == nullptr) {
    return not_supported(
        "the model has no chat template; use /v1/completions, which takes the prompt as it is");
  }
  using Made = Result<std::unique_ptr<ChatTemplate>>;
  return guarded(
      ErrorCode::kNotSupported, "the model's chat template cannot be used", [&]() -> Made {
        // llama.cpp's own reader mends a few published templates.
        const common_chat_templates_ptr templates = common_chat_templates_init(model, "");
        const llama_vocab* vocab = llama_model_get_vocab(model);
        return create_from_source(common_chat_templates_source(templates.get()),
                                  token_text(vocab, llama_vocab_bos(vocab)),
                                  token_text(vocab, llama_vocab_eos(vocab)));
      });
}

Result<std::unique_ptr<ChatTemplate>> ChatTemplate::create_from_source(
    const std::string& source, const std::string& bos_token, const std::string& eos_token) {
  using Made = Result<std::unique_ptr<ChatTemplate>>;
  return guarded(ErrorCode::kNotSupported, "the chat template cannot be used", [&]() -> Made {
    std::unique_ptr<Analysed> analysed(
        new Analysed{.source = common_chat_template(source, bos_token, eos_token)});
    chat_template_caps& caps = analysed->source.caps;
    caps.supports_string_content = caps.supports_string_content || prints_strings(analysed->source);
    // gpt-oss is the family that tells developer from system.
    analysed->renames_developer = source.find("<|channel|>") == std::string::npos;
    return std::unique_ptr<ChatTemplate>(new ChatTemplate(std::move(analysed)));
  });
}

bool ChatTemplate::supports_tools() const { return analysed_->source.caps.supports_tools; }

Result<RenderedPrompt> ChatTemplate::render(const std::string& messages_json,
                                            const RenderOptions& options) const {
  GRAFT_RETURN_IF_ERROR(check_messages_json(messages_json));
  return guarded(
      ErrorCode::kInvalidArgument, "the chat template refused the messages",
      [&]() -> Result<RenderedPrompt> {
        auto messages = common_chat_msgs_parse_oaicompat(common_json::parse(messages_json));
        if (messages.empty()) {
          return invalid_argument("messages must not be empty", "messages");
        }
        std::string beginning;  // of the answer
        if (options.continue_final_message) {
          beginning = content_text(messages.back());
          messages.pop_back();
        }
        for (common_chat_msg& message : messages) {
          if (analysed_->renames_developer && message.role == "developer") {
            message.role = "system";
          }
        }
        if (!analysed_->source.caps.supports_system_role) {
          fold_system(messages);
        }
        const common_json json = to_template_json(messages, analysed_->source.caps);
        RenderedPrompt prompt{run(analysed_->source, json,
                                  options.add_generation_prompt || options.continue_final_message)};
        if (!beginning.empty()) {
          prompt.parts.push_back({std::move(beginning), true});
        }
        return prompt;
      });
}

}  // namespace graft
