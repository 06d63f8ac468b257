// Tools, template keywords and answers of a chat. The input is five texts with a byte 0xFF between
// them: tools, keywords, messages, the name of a tool, an answer. Any bytes give a prompt or an
// error, and calls in answers are calls of declared tools.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "text/chat_output_parser.h"
#include "text/chat_template.h"

namespace {

using graft::ChatTemplate;

// One template that knows tools, and one that does not.
constexpr const char* kWithTools =
    "{% if tools %}<|im_start|>system\n{% for t in tools %}{{ t | tojson }}\n{% endfor %}"
    "<|im_end|>\n{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.tool_calls %}{% for c in m.tool_calls %}<tool_call>\n{\"name\": \"{{ c.function.name "
    "}}\", \"arguments\": {{ c.function.arguments | tojson }}}\n</tool_call>{% endfor %}{% else %}"
    "{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>"
    "assistant\n{% endif %}";
constexpr const char* kWithout =
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if style is defined %}{{ style }}{% endif %}";

std::unique_ptr<ChatTemplate> load(const char* source) {
  auto made = ChatTemplate::create_from_source(source, "<s>", "</s>");
  if (!made) std::abort();
  return std::move(*made);
}

const ChatTemplate& chat_template(bool with_tools) {
  static const auto native = load(kWithTools);
  static const auto plain = load(kWithout);
  return with_tools ? *native : *plain;
}

graft::ChatMessage parse(const graft::AnswerFormat& format, std::string_view text,
                         std::size_t size) {
  graft::ChatOutputParser parser(format.syntax);
  graft::ChatMessage message;
  for (std::size_t at = 0; at < text.size(); at += size) {
    append(message, parser.push(text.substr(at, size)));
  }
  append(message, parser.finish());
  return message;
}

void check(const ChatTemplate& chat, const graft::ChatRequest& request, std::string_view answer) {
  const auto made = chat.render(request);
  if (!made || made->format == nullptr) return;
  for (const std::size_t size : {std::size_t{1}, std::size_t{7}, answer.size() + 1}) {
    const graft::ChatMessage message = parse(*made->format, answer, size);
    for (const graft::ToolCall& call : message.tool_calls) {
      if (!made->format->syntax->has_tool(call.name)) std::abort();
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(bytes), size);
  std::array<std::string, 5> texts;
  for (std::string& text : texts) {
    const std::size_t end = rest.find('\xFF');
    text = rest.substr(0, end);
    rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
  }
  graft::ChatRequest request;
  request.tools_json = texts[0];
  request.template_kwargs_json = texts[1];
  request.messages_json =
      texts[2].empty() ? R"([{"role":"user","content":"x"}])" : std::move(texts[2]);
  request.named_tool = texts[3];
  for (const bool with_tools : {true, false}) {
    for (const auto choice : {graft::ToolChoice::kAuto, graft::ToolChoice::kRequired}) {
      request.tool_choice = choice;
      check(chat_template(with_tools), request, texts[4]);
    }
  }
  return 0;
}
