// Chat templates of published models, from llama.cpp's source tree: prompts with tools and a
// history of calls are those that llama.cpp makes, forced calls have a grammar, and calls of
// several families are parsed byte by byte to what they are as a whole.
#include <chat.h>
#include <gtest/gtest.h>

#include <fstream>
#include <optional>
#include <sstream>
#include <string>

#include "text/chat_output_parser.h"
#include "text/chat_template.h"
#include "text/constraint.h"
#include "text/test_vocabulary.h"
#include "text/trigger_finder.h"

namespace graft {
namespace {

const char* const kTools = R"([
  {"type":"function","function":{"name":"get_weather","description":"Weather of a city.",
   "parameters":{"type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer"}},
                 "required":["city"]}}},
  {"type":"function","function":{"name":"get","description":"Gets a key.",
   "parameters":{"type":"object","properties":{"key":{"type":"string"}},"required":["key"]}}}])";

const char* const kQuestion = R"([{"role":"user","content":"Weather in Paris?"}])";

const char* const kCall = R"([
  {"role":"user","content":"Weather in Paris?"},
  {"role":"assistant","content":"","tool_calls":[{"id":"abcdefgh1","type":"function",
    "function":{"name":"get_weather","arguments":"{\"city\": \"Par\u00eds [1]\", \"days\": 3}"}}]}])";

const char* const kHistory = R"([
  {"role":"user","content":"Weather in Paris?"},
  {"role":"assistant","content":"","tool_calls":[{"id":"abcdefgh1","type":"function",
    "function":{"name":"get_weather","arguments":"{\"city\": \"Paris\"}"}}]},
  {"role":"tool","tool_call_id":"abcdefgh1","content":"Sunny."},
  {"role":"assistant","content":"It is sunny."},
  {"role":"user","content":"And tomorrow?"}])";

// One of each way to write calls, and of the families that llama.cpp has parsers of their own for.
const char* const kNames[] = {"Qwen-Qwen2.5-7B-Instruct",
                              "Qwen-Qwen3-0.6B",
                              "Qwen3-Coder",
                              "GLM-4.6",
                              "NousResearch-Hermes-3-Llama-3.1-8B-tool_use",
                              "meta-llama-Llama-3.1-8B-Instruct",
                              "mistralai-Mistral-Nemo-Instruct-2407",
                              "mistralai-Ministral-3-14B-Reasoning-2512",
                              "openai-gpt-oss-120b",
                              "deepseek-ai-DeepSeek-V3.2",
                              "moonshotai-Kimi-K2",
                              "google-gemma-4-31B-it",
                              "meetkai-functionary-medium-v3.2",
                              "ibm-granite-granite-4.0"};

std::string read(const std::string& name) {
  std::ifstream file(std::string(GRAFT_LLAMA_CPP_DIR) + "/models/templates/" + name + ".jinja");
  EXPECT_TRUE(file) << name;
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::unique_ptr<ChatTemplate> load(const std::string& name) {
  auto made = ChatTemplate::create_from_source(read(name), "<s>", "</s>");
  EXPECT_TRUE(made) << name << ": " << (made ? "" : made.error().message);
  return made ? std::move(*made) : nullptr;
}

ChatRequest request_of(const std::string& messages, ToolChoice choice) {
  ChatRequest request;
  request.messages_json = messages;
  request.tools_json = kTools;
  request.tool_choice = choice;
  return request;
}

std::string llama_prompt(const std::string& name, const std::string& messages) {
  const auto templates = common_chat_templates_init(nullptr, read(name), "<s>", "</s>");
  common_chat_templates_inputs inputs;
  inputs.messages = common_chat_msgs_parse_oaicompat(common_json::parse(messages));
  inputs.tools = common_chat_tools_parse_oaicompat(common_json::parse(kTools));
  inputs.parallel_tool_calls = true;
  inputs.reasoning_format = COMMON_REASONING_FORMAT_AUTO;
  return common_chat_templates_apply(templates.get(), inputs).prompt;
}

// The text of a call as the template itself writes it into the history.
std::string written_call(const ChatTemplate& chat) {
  const std::string asked = chat.render(request_of(kQuestion, ToolChoice::kAuto))->prompt.text();
  ChatRequest called = request_of(kCall, ToolChoice::kAuto);
  called.options.add_generation_prompt = false;
  const std::string all = chat.render(called)->prompt.text();
  std::string text = all.starts_with(asked) ? all.substr(asked.size()) : "";
  for (const char* end : {"<|im_end|>", "<|eot_id|>", "</s>", "<|end_of_text|>", "<|call|>",
                          "<｜end▁of▁sentence｜>", "<|tool_response>"}) {
    text = text.substr(0, text.find(end));
  }
  return text;
}

ChatMessage parse_in_pieces(const AnswerFormat& format, const std::string& text, std::size_t size) {
  ChatOutputParser parser(format.syntax);
  ChatMessage message;
  for (std::size_t at = 0; at < text.size(); at += size) {
    append(message, parser.push(text.substr(at, size)));
  }
  append(message, parser.finish());
  EXPECT_FALSE(parser.failed()) << parser.error();
  return message;
}

class PublishedTemplates : public testing::TestWithParam<const char*> {};

TEST_P(PublishedTemplates, PromptsAreThoseOfLlamaCpp) {
  const auto chat = load(GetParam());
  ASSERT_NE(chat, nullptr);
  EXPECT_TRUE(chat->supports_tools());
  for (const char* messages : {kQuestion, kHistory}) {
    const auto made = chat->render(request_of(messages, ToolChoice::kAuto));
    ASSERT_TRUE(made) << made.error().message;
    EXPECT_EQ(made->prompt.text(), llama_prompt(GetParam(), messages));
    EXPECT_EQ(made->prompt.request_text, "");
    bool question_is_marked = false;
    for (const PromptPart& part : made->prompt.parts) {
      question_is_marked =
          question_is_marked ||
          (part.from_request && part.text.find("Weather in Paris?") != std::string::npos);
    }
    EXPECT_TRUE(question_is_marked);
  }
}

TEST_P(PublishedTemplates, ForcedCallsHaveAGrammarFromTheStart) {
  const auto chat = load(GetParam());
  ASSERT_NE(chat, nullptr);
  ChatRequest request = request_of(kQuestion, ToolChoice::kRequired);
  const auto forced = chat->render(request);
  ASSERT_TRUE(forced) << forced.error().message;
  EXPECT_NE(forced->format->grammar.find("root ::="), std::string::npos);
  EXPECT_TRUE(forced->format->triggers.empty());
  request.named_tool = "get";
  const auto named = chat->render(request);
  ASSERT_TRUE(named) << named.error().message;
  // The model sees both tools, and may call one.
  EXPECT_NE(named->prompt.text().find("get_weather"), std::string::npos);
  EXPECT_EQ(named->format->grammar.find("get_weather"), std::string::npos);
}

TEST_P(PublishedTemplates, CallsAreTheSameInAnyPieces) {
  const auto chat = load(GetParam());
  ASSERT_NE(chat, nullptr);
  const auto made = chat->render(request_of(kQuestion, ToolChoice::kAuto));
  ASSERT_TRUE(made) << made.error().message;
  const std::string text = written_call(*chat);
  ASSERT_NE(text, "");
  const ChatMessage whole = parse_in_pieces(*made->format, text, text.size());
  ASSERT_EQ(whole.tool_calls.size(), 1U) << text;
  EXPECT_EQ(whole.tool_calls[0].name, "get_weather");
  EXPECT_EQ(common_json::parse(whole.tool_calls[0].arguments).dump(),
            R"({"city":"París [1]","days":3})");
  EXPECT_EQ(whole.content.find_first_not_of(" \n"), std::string::npos) << whole.content;
  for (const std::size_t size : {1U, 2U, 7U}) {
    EXPECT_EQ(parse_in_pieces(*made->format, text, size), whole) << text;
  }
}

// Answers without a call are content, also where they hold what a call could begin with.
TEST_P(PublishedTemplates, PlainAnswersAreContent) {
  const auto chat = load(GetParam());
  ASSERT_NE(chat, nullptr);
  const auto made = chat->render(request_of(kQuestion, ToolChoice::kAuto));
  ASSERT_TRUE(made) << made.error().message;
  for (const std::string text : {"It is warm.", "Use {braces} and [1] <so>.", "a < b", "Hm {"}) {
    std::string written = text;
    if (std::string(GetParam()) == "openai-gpt-oss-120b") {
      written = "<|channel|>final<|message|>" + text;
    } else if (std::string(GetParam()) == "meetkai-functionary-medium-v3.2") {
      written = "all\n" + text;
    } else if (std::string(GetParam()) == "deepseek-ai-DeepSeek-V3.2") {
      written = "</think>" + text;  // the prompt has opened the reasoning
    }
    for (const std::size_t size : {1U, 1000U}) {
      EXPECT_EQ(parse_in_pieces(*made->format, written, size).content, text);
    }
  }
}

// The grammars go through our own engine: what the template writes fits, from the prompt's end or
// from the trigger on, and text without a call does not.
TEST_P(PublishedTemplates, GrammarsTakeWhatTheTemplateWrites) {
  const ModelPtr model = load_counting_model();
  const auto vocabulary = std::move(Vocabulary::create(llama_model_get_vocab(model.get()))).value();
  const auto chat = load(GetParam());
  ASSERT_NE(chat, nullptr);
  const std::string text = written_call(*chat);
  for (const auto choice : {ToolChoice::kRequired, ToolChoice::kAuto}) {
    const auto made = chat->render(request_of(kQuestion, choice));
    ASSERT_TRUE(made) << made.error().message;
    const AnswerFormat& format = *made->format;
    if (format.grammar.empty()) continue;  // a call without a mark: nothing says where it begins
    const auto constraint = Constraint::compile(
        *vocabulary, {.kind = ConstraintSource::Kind::kGrammar, .text = format.grammar});
    ASSERT_TRUE(constraint) << constraint.error().message << "\n" << format.grammar;
    ConstraintState state(*constraint);
    std::string begun = text;
    if (!format.triggers.empty()) {
      auto finder = TriggerFinder::create(format.triggers);
      ASSERT_TRUE(finder);
      std::optional<std::string> found;
      std::size_t at = 0;
      for (; !found && at < text.size(); ++at) found = finder->push(text.substr(at, 1));
      // Functionary's first call begins in the prompt; llama.cpp's trigger misses it too.
      if (!found && std::string(GetParam()) == "meetkai-functionary-medium-v3.2") continue;
      ASSERT_TRUE(found) << text;
      begun = *found + text.substr(at);
    }
    const Status prefix = state.accept_text(format.grammar_prefix);
    EXPECT_TRUE(prefix) << format.grammar_prefix << "\n" << format.grammar;
    const Status accepted = state.accept_text(begun);
    EXPECT_TRUE(accepted) << begun << "\n" << format.grammar;
    EXPECT_FALSE(state.accept_text("{{{")) << format.grammar;
  }
}

TEST(ReasoningTemplate, SplitsReasoningAndContinuesAnswers) {
  const auto chat = load("Qwen-Qwen3-0.6B");
  ASSERT_NE(chat, nullptr);
  ChatRequest request;
  request.messages_json = kQuestion;
  const auto made = chat->render(request);
  ASSERT_TRUE(made && made->format != nullptr);
  EXPECT_TRUE(made->format->grammar.empty());
  const ChatMessage message =
      parse_in_pieces(*made->format, "<think>\nHm, [[[.\n</think>\n\nIt is {warm}.", 3);
  EXPECT_EQ(message.reasoning, "Hm, [[[.\n");
  EXPECT_EQ(message.content, "It is {warm}.");
  // Without tools nothing nests, so depth is nobody's concern.
  EXPECT_FALSE(made->format->syntax->nests());

  request.messages_json =
      R"([{"role":"user","content":"2+2?"},{"role":"assistant","content":"The sum"}])";
  request.options.continue_final_message = true;
  const auto continued = chat->render(request);
  ASSERT_TRUE(continued) << continued.error().message;
  EXPECT_TRUE(continued->prompt.text().ends_with("The sum"));
  EXPECT_EQ(continued->prompt.parts.back().text, "The sum");
  EXPECT_TRUE(continued->prompt.parts.back().from_request);
  EXPECT_EQ(parse_in_pieces(*continued->format, " is 4.", 2).content, " is 4.");
}

INSTANTIATE_TEST_SUITE_P(All, PublishedTemplates, testing::ValuesIn(kNames));

}  // namespace
}  // namespace graft
