// The files over llama.cpp's chat library are this one and those that include text/llama_chat.h.
#include "text/chat_template.h"

#include <llama.h>

#include <optional>
#include <utility>

#include "text/generic_tools.h"
#include "text/llama_chat.h"
#include "text/marked_render.h"
#include "text/native_format.h"
#include "text/template_kwargs.h"
#include "text/template_messages.h"

namespace graft {
namespace {

std::string token_text(const llama_vocab* vocab, llama_token token) {
  const char* text = token < 0 ? nullptr : llama_vocab_get_text(vocab, token);
  return text == nullptr ? "" : text;
}

// One request on its way through the template.
struct Work {
  const ChatRequest& request;
  const AnalysedTemplate& analysed;
  common_json kwargs;
  std::vector<common_chat_msg> messages;
  common_json tools;                                // null without tools
  std::optional<common_chat_msg> to_continue = {};  // the beginning of the answer
  bool opens_answer = true;  // the prompt ends with the beginning of an empty answer
};

common_json callable_tools(const Work& work) {
  if (work.request.named_tool.empty()) {
    return work.tools;
  }
  common_json named = common_json::array();
  for (const common_json& tool : work.tools) {
    if (tool.at("function").at("name") == work.request.named_tool) {
      named.push_back(tool);
    }
  }
  return named;
}

autoparser::generation_params make_params(const Work& work, const common_json& messages) {
  autoparser::generation_params params;
  params.messages = messages;
  params.tools = callable_tools(work);
  params.tool_choice = work.request.tool_choice == ToolChoice::kRequired
                           ? COMMON_CHAT_TOOL_CHOICE_REQUIRED
                           : COMMON_CHAT_TOOL_CHOICE_AUTO;
  params.parallel_tool_calls = work.request.parallel_tool_calls && work.request.named_tool.empty();
  params.add_generation_prompt = work.opens_answer;
  params.extra_context = date_values();
  for (const auto& [key, value] : work.kwargs.items()) {
    params.extra_context[key] = value;
  }
  params.enable_thinking = work.kwargs.value("enable_thinking", common_json(true)).get<bool>();
  if (work.to_continue) {
    params.continue_msg = *work.to_continue;
    params.continue_final_message = work.to_continue->content.empty() &&
                                            work.to_continue->content_parts.empty() &&
                                            !work.to_continue->reasoning_content.empty()
                                        ? COMMON_CHAT_CONTINUATION_REASONING
                                        : COMMON_CHAT_CONTINUATION_CONTENT;
  }
  return params;
}

// The parts of a prompt that llama.cpp rendered as one string, from our own rendering of it.
RenderedPrompt with_marks(const Work& work, std::vector<PromptPart> parts, std::string prompt) {
  RenderedPrompt marked{.parts = std::move(parts), .request_text = {}};
  if (marked.text() == prompt) {
    return marked;
  }
  return {.parts = {{std::move(prompt), false}},
          .request_text = work.request.messages_json + work.request.tools_json +
                          work.request.template_kwargs_json};
}

// What llama.cpp put behind the prompt for a message that is continued: the message's own text is
// the request's.
void append_continuation(const Work& work, std::string generation_prompt, RenderedPrompt& prompt) {
  const std::string content = content_text(*work.to_continue);
  const std::string& own = content.empty() ? work.to_continue->reasoning_content : content;
  if (!generation_prompt.ends_with(own)) {
    prompt.parts.push_back({std::move(generation_prompt), true});
    return;
  }
  generation_prompt.resize(generation_prompt.size() - own.size());
  prompt.parts.push_back({std::move(generation_prompt), false});
  prompt.parts.push_back({own, true});
}

// The template has rendered these messages before; what fails now is up to the tools.
Result<NativeAnswer> make_answer(const Work& work, autoparser::generation_params params) {
  const bool has_tools = work.tools.is_array();
  return guarded(ErrorCode::kInvalidArgument, "the tools cannot be used",
                 has_tools ? "tools" : "messages", [&]() -> Result<NativeAnswer> {
                   return make_native_answer(work.analysed, std::move(params));
                 });
}

Result<RenderedChat> render_native(const Work& work) {
  const common_json messages = template_messages(work.messages, work.analysed);
  const bool is_special = work.analysed.is_special;
  const TemplateInput input{
      .messages = is_special ? special_messages(messages, work.analysed) : messages,
      .tools = work.tools,
      .kwargs = work.kwargs,
      .add_generation_prompt = work.opens_answer};
  RenderedPrompt prompt{.parts = render_marked(work.analysed.source, input), .request_text = {}};
  auto answer = make_answer(work, make_params(work, messages));
  if (!answer) return std::move(answer).error();
  if (work.to_continue) {
    append_continuation(work, std::move(answer->generation_prompt), prompt);
  }
  // A named tool is alone in llama.cpp's rendering; the model sees all of them.
  if (is_special && work.request.named_tool.empty()) {
    prompt = with_marks(work, std::move(prompt.parts), std::move(answer->prompt));
  }
  return RenderedChat{std::move(prompt), std::move(answer->format)};
}

// The answer is text, or has calls in our own form.
Result<RenderedChat> render_plain(Work work) {
  const bool has_tools = work.tools.is_array();
  if (has_tools || !work.analysed.source.caps.supports_tool_calls) {
    write_generic_tools(work.messages, work.tools, work.request.tool_choice);
  }
  const TemplateInput input{.messages = template_messages(std::move(work.messages), work.analysed),
                            .tools = {},
                            .kwargs = work.kwargs,
                            .add_generation_prompt = work.opens_answer || work.to_continue};
  RenderedChat chat;
  chat.prompt.parts = render_marked(work.analysed.source, input);
  if (work.to_continue) {
    chat.prompt.parts.push_back({content_text(*work.to_continue), true});
  }
  if (!has_tools) return chat;
  return guarded(ErrorCode::kInvalidArgument, "the tools cannot be used", "tools",
                 [&]() -> Result<RenderedChat> {
                   const ChatRequest& request = work.request;
                   chat.format = make_generic_answer(
                       callable_tools(work), request.tool_choice,
                       request.parallel_tool_calls && request.named_tool.empty());
                   return std::move(chat);
                 });
}

Result<RenderedChat> render_request(const ChatRequest& request, const AnalysedTemplate& analysed) {
  GRAFT_ASSIGN_OR_RETURN(common_json kwargs,
                         read_template_kwargs(request.template_kwargs_json, analysed.source));
  Work work{.request = request,
            .analysed = analysed,
            .kwargs = std::move(kwargs),
            .messages = common_chat_msgs_parse_oaicompat(common_json::parse(request.messages_json)),
            .tools = {}};
  if (work.messages.empty()) {
    return invalid_argument("messages must not be empty", "messages");
  }
  if (request.options.continue_final_message) {
    work.to_continue = std::move(work.messages.back());
    work.messages.pop_back();
    if (work.to_continue->empty()) work.to_continue.reset();
  }
  work.opens_answer = request.options.continue_final_message
                          ? !work.to_continue
                          : request.options.add_generation_prompt;
  if (!request.tools_json.empty() && request.tool_choice != ToolChoice::kNone) {
    work.tools = common_json::parse(request.tools_json);
  }
  const bool has_tools = work.tools.is_array() && !work.tools.empty();
  const bool is_native = has_tools ? analysed.writes_tools : analysed.has_syntax;
  return is_native ? render_native(work) : render_plain(std::move(work));
}

}  // namespace

ChatTemplate::ChatTemplate(std::unique_ptr<const AnalysedTemplate> analysed)
    : analysed_(std::move(analysed)) {}

ChatTemplate::~ChatTemplate() = default;

Result<std::unique_ptr<ChatTemplate>> ChatTemplate::create(const llama_model* model) {
  if (llama_model_chat_template(model, nullptr) == nullptr &&
      llama_model_chat_template(model, "tool_use") == nullptr) {
    return not_supported(
        "the model has no chat template; use /v1/completions, which takes the prompt as it is");
  }
  using Made = Result<std::unique_ptr<ChatTemplate>>;
  return guarded(
      ErrorCode::kNotSupported, "the model's chat template cannot be used", "", [&]() -> Made {
        // llama.cpp's own reader mends a few published templates.
        const common_chat_templates_ptr templates = common_chat_templates_init(model, "");
        const llama_vocab* vocab = llama_model_get_vocab(model);
        const std::string bos = token_text(vocab, llama_vocab_bos(vocab));
        const std::string eos = token_text(vocab, llama_vocab_eos(vocab));
        GRAFT_ASSIGN_OR_RETURN(
            auto made, create_from_source(common_chat_templates_source(templates.get()), bos, eos));
        const std::string tool_use = common_chat_templates_source(templates.get(), "tool_use");
        if (!tool_use.empty()) made->tool_use_ = analyse(tool_use, bos, eos);
        return made;
      });
}

Result<std::unique_ptr<ChatTemplate>> ChatTemplate::create_from_source(
    const std::string& source, const std::string& bos_token, const std::string& eos_token) {
  using Made = Result<std::unique_ptr<ChatTemplate>>;
  return guarded(ErrorCode::kNotSupported, "the chat template cannot be used", "", [&]() -> Made {
    return std::unique_ptr<ChatTemplate>(new ChatTemplate(analyse(source, bos_token, eos_token)));
  });
}

const AnalysedTemplate& ChatTemplate::for_tools() const {
  return tool_use_ != nullptr ? *tool_use_ : *analysed_;
}

bool ChatTemplate::supports_tools() const { return for_tools().writes_tools; }

Result<RenderedPrompt> ChatTemplate::render(const std::string& messages_json,
                                            const RenderOptions& options) const {
  ChatRequest request;
  request.messages_json = messages_json;
  request.options = options;
  GRAFT_ASSIGN_OR_RETURN(RenderedChat chat, render(request));
  return std::move(chat.prompt);
}

Result<RenderedChat> ChatTemplate::render(const ChatRequest& request) const {
  GRAFT_RETURN_IF_ERROR(check_json_text(request.messages_json, "messages"));
  GRAFT_RETURN_IF_ERROR(check_json_text(request.tools_json, "tools"));
  const bool has_tools = !request.tools_json.empty() && request.tool_choice != ToolChoice::kNone;
  const AnalysedTemplate& analysed = has_tools ? for_tools() : *analysed_;
  return guarded(ErrorCode::kInvalidArgument, "the chat template refused the messages", "messages",
                 [&]() -> Result<RenderedChat> { return render_request(request, analysed); });
}

}  // namespace graft
