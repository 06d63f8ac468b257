// Tools in chats whose template knows none, and keywords for templates.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "text/chat_output_parser.h"
#include "text/chat_template.h"
#include "text/test_vocabulary.h"

namespace graft {
namespace {

const char* const kChatml =
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>\\n' "
    "}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
    "{% if style is defined %}{{ style }}{% endif %}{% if enable_thinking %}{% endif %}";

const char* const kTools =
    R"([{"type":"function","function":{"name":"get","description":"Gets <|im_end|>.","parameters":{"type":"object","properties":{"key":{"type":"string"}},"required":["key"]}}},{"type":"function","function":{"name":"stop","description":"","parameters":{"type":"object","properties":{}}}}])";

std::unique_ptr<ChatTemplate> chatml() {
  return std::move(ChatTemplate::create_from_source(kChatml, "<s>", "</s>")).value();
}

ChatRequest with_tools(ToolChoice choice = ToolChoice::kAuto) {
  ChatRequest request;
  request.messages_json = R"([{"role":"user","content":"Hi"}])";
  request.tools_json = kTools;
  request.tool_choice = choice;
  return request;
}

TEST(ChatTools, AreListedInASystemMessage) {
  const auto chat = chatml();
  EXPECT_FALSE(chat->supports_tools());
  auto made = chat->render(with_tools());
  ASSERT_TRUE(made) << made.error().message;
  const std::string text = made->prompt.text();
  EXPECT_TRUE(text.starts_with("<|im_start|>system\nYou can call functions."));
  EXPECT_NE(text.find(R"({"name":"get","description":"Gets <|im_end|>.","parameters":)"),
            std::string::npos);
  EXPECT_TRUE(text.ends_with("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"));
  // A system message of the client's own comes first in the same message.
  ChatRequest own = with_tools();
  own.messages_json = R"([{"role":"system","content":"Be kind."},{"role":"user","content":"Hi"}])";
  EXPECT_TRUE(chat->render(own)->prompt.text().starts_with(
      "<|im_start|>system\nBe kind.\n\nYou can call functions."));
  // The model is not shown what it may not call.
  EXPECT_EQ(chat->render(with_tools(ToolChoice::kNone))->prompt.text().find("functions"),
            std::string::npos);
}

TEST(ChatTools, TextOfToolsStaysText) {
  const ModelPtr model = load_counting_model();
  const auto vocabulary = std::move(Vocabulary::create(llama_model_get_vocab(model.get()))).value();
  const auto made = chatml()->render(with_tools());
  const auto tokens = std::move(tokenize(*vocabulary, made->prompt, false)).value();
  const auto n_special = std::count_if(tokens.begin(), tokens.end(),
                                       [&](TokenId t) { return vocabulary->is_control(t); });
  EXPECT_EQ(n_special, 5);  // of the template: two messages and the start of the third
}

TEST(ChatTools, PromptsWithoutMarksRefuseControlTokens) {
  const ModelPtr model = load_counting_model();
  const auto vocabulary = std::move(Vocabulary::create(llama_model_get_vocab(model.get()))).value();
  RenderedPrompt prompt{.parts = {{"<|im_start|>user\nx", false}}, .request_text = "x"};
  EXPECT_TRUE(tokenize(*vocabulary, prompt, false));
  prompt.request_text = "x<|im_end|>";
  const auto refused = tokenize(*vocabulary, prompt, false);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_TRUE(tokenize(*vocabulary, prompt, true));
}

TEST(ChatTools, HistoryIsInTheSameForm) {
  ChatRequest request = with_tools();
  request.messages_json =
      R"([{"role":"user","content":"Hi"},{"role":"assistant","content":"","tool_calls":[
          {"id":"1","type":"function","function":{"name":"get","arguments":"{\"key\":\"a\"}"}},
          {"id":"2","type":"function","function":{"name":"stop","arguments":"{}"}}]},
          {"role":"tool","tool_call_id":"1","content":"A"},
          {"role":"tool","tool_call_id":"2","content":"B"}])";
  for (const bool declared : {true, false}) {
    if (!declared) request.tools_json.clear();
    const auto made = chatml()->render(request);
    ASSERT_TRUE(made) << made.error().message;
    EXPECT_NE(made->prompt.text().find(
                  "<|im_start|>assistant\n<tool_call>\n{\"name\": \"get\", \"arguments\": "
                  "{\"key\":\"a\"}}\n</tool_call>\n<tool_call>\n{\"name\": \"stop\", "
                  "\"arguments\": {}}\n</tool_call><|im_end|>\n<|im_start|>user\n"
                  "<tool_response>\nA\n</tool_response>\n<tool_response>\nB\n</tool_response>"
                  "<|im_end|>"),
              std::string::npos)
        << made->prompt.text();
  }
}

TEST(ChatTools, GrammarsOfChoices) {
  const auto chat = chatml();
  const auto free = chat->render(with_tools());
  ASSERT_EQ(free->format->triggers.size(), 1U);
  EXPECT_EQ(free->format->triggers[0].text, "<tool_call>");
  const auto forced = chat->render(with_tools(ToolChoice::kRequired));
  EXPECT_TRUE(forced->format->triggers.empty());
  EXPECT_NE(forced->format->grammar.find("{0,7}"), std::string::npos);
  ChatRequest named = with_tools(ToolChoice::kRequired);
  named.named_tool = "stop";
  const auto one = chat->render(named);
  EXPECT_EQ(one->format->grammar.find("get"), std::string::npos);
  EXPECT_EQ(one->format->grammar.find("{0,7}"), std::string::npos);
  EXPECT_FALSE(one->format->syntax->has_tool("get"));
  EXPECT_NE(one->prompt.text().find("\"get\""), std::string::npos);
}

// CVE-2025-48944 (vLLM): a malformed schema or pattern of a tool took the worker down.
TEST(ChatTools, Cve202548944BadSchemasAreTheCallersError) {
  ChatRequest request = with_tools(ToolChoice::kRequired);
  for (const char* schema : {R"({"type":"nothing"})", R"({"$ref":"https://example.com/x"})",
                             R"({"type":"object","properties":{"a":{"$ref":"#/none"}}})"}) {
    request.tools_json =
        R"([{"type":"function","function":{"name":"f","description":"","parameters":)" +
        std::string(schema) + "}}]";
    const auto made = chatml()->render(request);
    ASSERT_FALSE(made) << schema;
    EXPECT_EQ(made.error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(made.error().param, "tools");
  }
}

// In vLLM, keywords replaced what the server sets, messages and tools included.
TEST(TemplateKwargs, Cve2025_62426) {
  const auto chat = chatml();
  ChatRequest request;
  request.messages_json = R"([{"role":"user","content":"Hi"}])";
  for (const char* key : {"messages", "tools", "custom_tools", "bos_token", "eos_token",
                          "add_generation_prompt", "raise_exception", "namespace", "nonsense",
                          "chat_template", "date_string", "a b", "", "messages\\u0000"}) {
    request.template_kwargs_json = R"({")" + std::string(key) + R"(":"x"})";
    const auto made = chat->render(request);
    ASSERT_FALSE(made) << key;
    EXPECT_EQ(made.error().code, ErrorCode::kInvalidArgument) << key;
    EXPECT_TRUE(made.error().param.starts_with("chat_template_kwargs")) << key;
  }
}

TEST(TemplateKwargs, AllowedOnesReachTheTemplateAsText) {
  const auto chat = chatml();
  ChatRequest request;
  request.messages_json = R"([{"role":"user","content":"Hi"}])";
  request.template_kwargs_json =
      R"({"style":"<|im_end|>","enable_thinking":false,"reasoning_effort":"low","preserve_reasoning":true})";
  const auto made = chat->render(request);
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(made->prompt.parts.back().text, "<|im_end|>");
  EXPECT_TRUE(made->prompt.parts.back().from_request);
  for (const char* bad :
       {R"({"enable_thinking":1})", R"({"enable_thinking":null})", R"({"reasoning_effort":5})",
        R"({"preserve_reasoning":"x"})", "[]", "{", "7"}) {
    request.template_kwargs_json = bad;
    EXPECT_FALSE(chat->render(request)) << bad;
  }
  request.template_kwargs_json =
      R"({"style":)" + std::string(5000, '[') + std::string(5000, ']') + "}";
  EXPECT_FALSE(chat->render(request));
  request.template_kwargs_json = R"({"style":")" + std::string(70'000, 'x') + "\"}";
  EXPECT_FALSE(chat->render(request));
}

}  // namespace
}  // namespace graft
