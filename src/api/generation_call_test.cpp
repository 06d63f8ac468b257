#include "api/generation_call.h"

#include <gtest/gtest.h>

#include "api/fields.h"
#include "api/testing/scripted_generation.h"

namespace graft::api {
namespace {

Result<GenerationCall> chat(const std::string& more) {
  return parse_chat_call(
      R"({"messages":[{"role":"user","content":"hi"}])" + (more.empty() ? "" : "," + more) + "}",
      test_facts());
}
Result<GenerationCall> completion(const std::string& more) {
  return parse_completions_call(R"({"prompt":"hi")" + (more.empty() ? "" : "," + more) + "}",
                                test_facts());
}
Result<GenerationCall> chat_body(const std::string& body) {
  return parse_chat_call(body, test_facts());
}
Result<GenerationCall> completion_body(const std::string& body) {
  return parse_completions_call(body, test_facts());
}

std::string nested(int depth) {
  return R"({"x":)" + std::string(static_cast<std::size_t>(depth - 1), '[') +
         std::string(static_cast<std::size_t>(depth - 1), ']') +
         R"(,"messages":[{"role":"user","content":"hi"}]})";
}

TEST(GenerationCall, Defaults) {
  const auto call = chat("");
  ASSERT_TRUE(call);
  EXPECT_EQ(call->model, "");
  EXPECT_EQ(call->stop.max_tokens, -1);
  EXPECT_EQ(call->sampling.temperature, 1.0F);
  EXPECT_FALSE(call->sampling.n_logprobs);
  EXPECT_FALSE(call->sampling.seed);
  EXPECT_EQ(call->n_choices, 1);
  EXPECT_EQ(completion("")->stop.max_tokens, 16);
}

TEST(GenerationCall, EverythingHonouredIsRead) {
  const auto call = chat(
      R"("model":"m","max_tokens":7,"temperature":0,"top_k":40,"top_p":0.9,"min_p":0.1,"n":3,
         "seed":5,"stop":["a","b"],"stop_token_ids":[1,2],"ignore_eos":true,"min_tokens":2,
         "presence_penalty":1,"frequency_penalty":-1,"repetition_penalty":1.5,"stream":true,
         "stream_options":{"include_usage":true,"continuous_usage_stats":true},"logprobs":true,
         "top_logprobs":4,"logit_bias":{"10":-100,"11":5.5},"user":"me",
         "modules":[{"name":"x","scale":0.5},{"name":"y"}],"continue_final_message":true)");
  ASSERT_TRUE(call) << call.error().message;
  EXPECT_EQ(call->model, "m");
  EXPECT_EQ(call->stop.max_tokens, 7);
  EXPECT_EQ(call->sampling.temperature, 0.0F);
  EXPECT_EQ(call->sampling.top_k, 40);
  EXPECT_EQ(call->sampling.top_p, 0.9F);
  EXPECT_EQ(call->sampling.min_p, 0.1F);
  EXPECT_EQ(call->n_choices, 3);
  EXPECT_EQ(call->sampling.seed, 5U);
  EXPECT_EQ(call->stop.strings, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(call->stop.token_ids, (std::vector<TokenId>{1, 2}));
  EXPECT_TRUE(call->stop.ignore_eos);
  EXPECT_EQ(call->stop.min_tokens, 2);
  EXPECT_EQ(call->sampling.presence_penalty, 1.0F);
  EXPECT_EQ(call->sampling.frequency_penalty, -1.0F);
  EXPECT_EQ(call->sampling.repetition_penalty, 1.5F);
  EXPECT_TRUE(call->stream && call->include_usage && call->continuous_usage);
  EXPECT_EQ(call->sampling.n_logprobs, 4);
  EXPECT_EQ(call->sampling.logit_bias,
            (std::vector<std::pair<TokenId, float>>{{10, -100.0F}, {11, 5.5F}}));
  ASSERT_EQ(call->modules.size(), 2U);
  EXPECT_EQ(call->modules[0].scale, 0.5F);
  EXPECT_EQ(call->modules[1].scale, 1.0F);
  EXPECT_TRUE(call->chat->continue_final_message);
}

TEST(GenerationCall, Aliases) {
  EXPECT_EQ(chat(R"("max_completion_tokens":9)")->stop.max_tokens, 9);
  EXPECT_EQ(chat(R"("n_predict":9)")->stop.max_tokens, 9);
  EXPECT_EQ(completion(R"("n_predict":-1)")->stop.max_tokens, -1);
  EXPECT_EQ(chat(R"("repeat_penalty":1.25)")->sampling.repetition_penalty, 1.25F);
  EXPECT_EQ(chat(R"("top_k":-1)")->sampling.top_k, 0);
  EXPECT_GT(chat(R"("top_p":0)")->sampling.top_p, 0.0F);
  EXPECT_FALSE(chat(R"("seed":-1)")->sampling.seed);
  EXPECT_TRUE(chat(R"("seed":9223372036854775807)")->sampling.seed);
  EXPECT_TRUE(chat(R"("seed":-9223372036854775807)")->sampling.seed);
  EXPECT_EQ(chat(R"("stop":"x")")->stop.strings.size(), 1U);
  EXPECT_EQ(completion(R"("logprobs":3)")->sampling.n_logprobs, 3);
  EXPECT_EQ(chat(R"("logprobs":true)")->sampling.n_logprobs, 0);
  EXPECT_FALSE(chat(R"("logprobs":false,"top_logprobs":0)")->sampling.n_logprobs);
  EXPECT_EQ(chat(R"("lora":[{"id":1,"scale":2}])")->modules[0].index, 1);
}

TEST(GenerationCall, NullMeansAbsent) {
  for (const Field& field : generation_fields()) {
    if (field.name == "messages" || field.name == "prompt") continue;
    const std::string more = "\"" + std::string(field.name) + "\":null";
    EXPECT_TRUE(chat(more)) << more;
    EXPECT_TRUE(completion(more)) << more;
  }
}

TEST(GenerationCall, ExtrasOfOtherServers) {
  const auto call = completion(
      R"("include_stop_str_in_output":true,"skip_special_tokens":false,"add_special_tokens":false,
         "return_token_ids":true,"return_tokens":true,"return_tokens_as_token_ids":true,
         "timings_per_token":true,"truncate_prompt_tokens":-1,"n_probs":4,"bad_words":["ab"],
         "allowed_token_ids":[3,4],"top_p":0.5,"min_p":0.5,"samplers":["top_k","min_p"])");
  ASSERT_TRUE(call) << call.error().message;
  EXPECT_TRUE(call->stop.keeps_string);
  EXPECT_TRUE(call->shows_special);
  EXPECT_FALSE(call->add_special);
  EXPECT_TRUE(call->report.token_ids);
  EXPECT_TRUE(call->report.tokens);
  EXPECT_TRUE(call->report.tokens_as_ids);
  EXPECT_TRUE(call->report.timings);
  EXPECT_EQ(call->truncate_prompt_tokens, -1);
  EXPECT_EQ(call->sampling.n_logprobs, 4);
  EXPECT_EQ(call->bad_words, std::vector<std::string>{"ab"});
  EXPECT_EQ(call->sampling.allowed_tokens, (std::vector<TokenId>{3, 4}));
  EXPECT_EQ(call->sampling.top_p, 1.0F);  // not among the samplers
  EXPECT_EQ(call->sampling.min_p, 0.5F);
  EXPECT_EQ(call->sampling.penalty_last_n, 0);
  const auto plain = completion("\"seed\":1");
  EXPECT_FALSE(plain->shows_special || plain->stop.keeps_string || plain->report.token_ids);
  EXPECT_TRUE(plain->add_special);
  EXPECT_EQ(plain->truncate_prompt_tokens, 0);
  EXPECT_TRUE(chat(R"("add_special_tokens":false)"));
}

TEST(GenerationCall, PromptForms) {
  EXPECT_EQ(completion_body(R"({"prompt":["a","b"]})")->prompts.size(), 2U);
  EXPECT_EQ(completion_body(R"({"prompt":[1,2,3]})")->prompts.size(), 1U);
  EXPECT_EQ(completion_body(R"({"prompt":[[1],[2,3]]})")->prompts.size(), 2U);
  EXPECT_EQ(completion_body(R"({"prompt":["a",[2,3]]})")->prompts.size(), 2U);
}

TEST(GenerationCall, ContentForms) {
  EXPECT_TRUE(chat_body(
      R"({"messages":[{"role":"developer","content":[{"type":"text","text":"a"}]},
                      {"role":"user","content":"b","name":"me"},
                      {"role":"assistant","content":"c"}]})"));
  const auto call = chat_body(R"({"messages":[{"role":"developer","content":"a","x":1}]})");
  EXPECT_EQ(call->chat->messages_json, R"([{"content":"a","role":"system"}])");
}

TEST(GenerationCall, IgnoredFieldsAndUnknownKeysPass) {
  EXPECT_TRUE(chat(R"("store":true,"metadata":{},"service_tier":"auto","unheard_of":[{"x":null}],
      "tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"none","response_format":{"type":"text"},
      "best_of":1,"typical_p":1.0,"mirostat":0,"echo":false,"grammar":"","stream":true,
      "stream_options":{"include_obfuscation":false},"priority":0,"cache_salt":"s",
      "safety_identifier":"x","prompt_cache_key":"k","verbosity":"low","modalities":["text"],
      "prediction":{},"cache_prompt":true,"id_slot":3,"parallel_tool_calls":true)"));
}

struct BadField {
  std::string json;
  const char* param;
};

void expect_refused(const Result<GenerationCall>& call, const BadField& bad) {
  ASSERT_FALSE(call) << bad.json;
  EXPECT_EQ(call.error().code, ErrorCode::kInvalidArgument) << bad.json;
  EXPECT_EQ(call.error().param, bad.param) << bad.json;
  EXPECT_NE(call.error().message.find("'"), std::string::npos) << call.error().message;
}

TEST(GenerationCall, BadValuesNameTheirField) {
  const BadField cases[] = {
      {R"("model":3)", "model"},
      {R"("model":"")", "model"},
      {R"("model":")" + std::string(513, 'm') + "\"", "model"},
      {R"("max_tokens":0)", "max_tokens"},
      {R"("max_tokens":-5)", "max_tokens"},
      {R"("max_tokens":1e9)", "max_tokens"},
      {R"("max_tokens":1.5)", "max_tokens"},
      {R"("max_tokens":"7")", "max_tokens"},
      {R"("max_tokens":true)", "max_tokens"},
      {R"("max_tokens":2147483648)", "max_tokens"},
      {R"("max_tokens":18446744073709551615)", "max_tokens"},
      {R"("n_predict":0)", "n_predict"},
      {R"("n_predict":-2)", "n_predict"},
      {R"("temperature":-0.1)", "temperature"},
      {R"("temperature":11)", "temperature"},
      {R"("temperature":"hot")", "temperature"},
      {R"("temperature":[1])", "temperature"},
      {R"("top_p":1.01)", "top_p"},
      {R"("top_p":-1)", "top_p"},
      {R"("top_k":-2)", "top_k"},
      {R"("top_k":0.5)", "top_k"},
      {R"("min_p":2)", "min_p"},
      {R"("repetition_penalty":0)", "repetition_penalty"},
      {R"("repeat_penalty":-1)", "repeat_penalty"},
      {R"("presence_penalty":2.5)", "presence_penalty"},
      {R"("frequency_penalty":-3)", "frequency_penalty"},
      {R"("seed":"x")", "seed"},
      {R"("seed":1.5)", "seed"},
      {R"("n":0)", "n"},
      {R"("n":17)", "n"},
      {R"("n":1000000000)", "n"},
      {R"("n":1e9)", "n"},
      {R"("n":-1)", "n"},
      {R"("stop":5)", "stop"},
      {R"("stop":"")", "stop"},
      {R"("stop":["a",""])", "stop"},
      {R"("stop":["a",1])", "stop"},
      {R"("stop":")" + std::string(1025, 's') + "\"", "stop"},
      {R"("stop_token_ids":[-1])", "stop_token_ids[0]"},
      {R"("stop_token_ids":[1,1000])", "stop_token_ids[1]"},
      {R"("stop_token_ids":["1"])", "stop_token_ids[0]"},
      {R"("stop_token_ids":[4294967296])", "stop_token_ids[0]"},
      {R"("stop_token_ids":1)", "stop_token_ids"},
      {R"("ignore_eos":"yes")", "ignore_eos"},
      {R"("min_tokens":-1)", "min_tokens"},
      {R"("min_tokens":9,"max_tokens":8)", "min_tokens"},
      {R"("stream":1)", "stream"},
      {R"("stream_options":{})", "stream_options"},
      {R"("stream":true,"stream_options":[])", "stream_options"},
      {R"("stream":true,"stream_options":{"include_usage":1})", "stream_options.include_usage"},
      {R"("logit_bias":[])", "logit_bias"},
      {R"("logit_bias":{"x":1})", "logit_bias"},
      {R"("logit_bias":{"-1":1})", "logit_bias"},
      {R"("logit_bias":{"1000":1})", "logit_bias"},
      {R"("logit_bias":{"99999999999999999999":1})", "logit_bias"},
      {R"("logit_bias":{"1 ":1})", "logit_bias"},
      {R"("logit_bias":{"":1})", "logit_bias"},
      {R"("logit_bias":{"1":101})", "logit_bias"},
      {R"("logit_bias":{"1":"NaN"})", "logit_bias"},
      {R"("logit_bias":{"1":null})", "logit_bias"},
      {R"("modules":"a")", "modules"},
      {R"("modules":["a"])", "modules[0]"},
      {R"("modules":[{}])", "modules[0].name"},
      {R"("modules":[{"name":""}])", "modules[0].name"},
      {R"("modules":[{"name":1}])", "modules[0].name"},
      {R"("modules":[{"name":"a","scale":"1"}])", "modules[0].scale"},
      {R"("lora":[{"id":"0"}])", "lora[0].id"},
      {R"("lora":[{"id":0.0}])", "lora[0].id"},
      {R"("lora":[{"id":true}])", "lora[0].id"},
      {R"("lora":[{"id":18446744073709551615}])", "lora[0].id"},
      {R"("lora":[{"scale":1}])", "lora[0].id"},
      {R"("lora":[0])", "lora[0]"},
      {R"("modules":[],"lora":[])", "lora"},
      {R"("user":5)", "user"},
      {R"("metadata":"x")", "metadata"},
      {R"("response_format":{})", "response_format.type"},
      {R"("best_of":"x")", "best_of"},
      {R"("bad_words":[""])", "bad_words"},
      {R"("bad_words":[1])", "bad_words"},
      {R"("bad_words":[")" + std::string(257, 'b') + "\"]", "bad_words"},
      {R"("allowed_token_ids":[])", "allowed_token_ids"},
      {R"("allowed_token_ids":[1000])", "allowed_token_ids[0]"},
      {R"("truncate_prompt_tokens":0)", "truncate_prompt_tokens"},
      {R"("truncate_prompt_tokens":-2)", "truncate_prompt_tokens"},
      {R"("n_probs":21)", "n_probs"},
  };
  for (const BadField& bad : cases) {
    expect_refused(chat(bad.json), bad);
    expect_refused(completion(bad.json), bad);
  }
  const BadField chat_only[] = {
      {R"("logprobs":2)", "logprobs"},
      {R"("top_logprobs":2)", "top_logprobs"},
      {R"("logprobs":false,"top_logprobs":1)", "top_logprobs"},
      {R"("logprobs":true,"top_logprobs":21)", "top_logprobs"},
      {R"("logprobs":true,"top_logprobs":-1)", "top_logprobs"},
      {R"("max_completion_tokens":0)", "max_completion_tokens"},
      {R"("tools":{})", "tools"},
  };
  for (const BadField& bad : chat_only) expect_refused(chat(bad.json), bad);
  const BadField completion_only[] = {
      {R"("logprobs":true)", "logprobs"},
      {R"("logprobs":21)", "logprobs"},
      {R"("logprobs":-1)", "logprobs"},
      {R"("logprobs":1.5)", "logprobs"},
  };
  for (const BadField& bad : completion_only) expect_refused(completion(bad.json), bad);
}

// A field that a reader takes without its check would throw or overflow here.
TEST(GenerationCall, EveryFieldSurvivesEveryType) {
  for (const Field& field : generation_fields()) {
    for (const char* value : {"true", "-1", "0.5", "1e300", "38888888888888888888888", "\"x\"",
                              "[]", "[null]", "[[]]", "{}", R"({"x":null})", R"([{"x":1}])"}) {
      const std::string more = "\"" + std::string(field.name) + "\":" + value;
      for (const auto& call : {chat_body("{" + more + "}"), completion_body("{" + more + "}"),
                               chat(more), completion(more)}) {
        if (!call) {
          EXPECT_FALSE(call.error().message.empty()) << more;
        }
      }
    }
  }
}

TEST(GenerationCall, ListsAreCapped) {
  const auto repeated = [](const std::string& item, int n) {
    std::string list = item;
    for (int i = 1; i < n; ++i) list += "," + item;
    return list;
  };
  EXPECT_EQ(chat(R"("stop":[)" + repeated("\"x\"", 100'000) + "]").error().param, "stop");
  EXPECT_EQ(chat(R"("stop_token_ids":[)" + repeated("1", 129) + "]").error().param,
            "stop_token_ids");
  EXPECT_EQ(chat(R"("modules":[)" + repeated(R"({"name":"a"})", 65) + "]").error().param,
            "modules");
  std::string biases;
  for (int i = 0; i < 1025; ++i) {
    biases += (i == 0 ? "\"" : ",\"") + std::to_string(i) + "\":1";
  }
  EXPECT_EQ(chat("\"logit_bias\":{" + biases + "}").error().param, "logit_bias");
  EXPECT_EQ(completion_body(R"({"prompt":[)" + repeated("\"x\"", 17) + "]}").error().param,
            "prompt");
  EXPECT_EQ(completion_body(R"({"prompt":["a","b"],"n":9})").error().param, "prompt");
  EXPECT_EQ(
      chat_body(R"({"messages":[)" + repeated(R"({"role":"user","content":"x"})", 4097) + "]}")
          .error()
          .param,
      "messages");
}

TEST(GenerationCall, UnsupportedFieldsAreNamed) {
  const BadField cases[] = {
      {R"("echo":true)", "echo"},
      {R"("best_of":2)", "best_of"},
      {R"("use_beam_search":true)", "use_beam_search"},
      {R"("mirostat":2)", "mirostat"},
      {R"("typical_p":0.5)", "typical_p"},
  };
  for (const BadField& bad : cases) {
    const auto call = chat(bad.json);
    ASSERT_FALSE(call) << bad.json;
    EXPECT_EQ(call.error().code, ErrorCode::kNotSupported) << bad.json;
    EXPECT_EQ(call.error().param, bad.param);
    EXPECT_NE(call.error().message.find("is not supported yet"), std::string::npos);
  }
  EXPECT_EQ(completion(R"("suffix":"x")").error().code, ErrorCode::kNotSupported);
}

TEST(GenerationCall, WhatIsAskedOfThePrompt) {
  const auto echoed = completion(R"("echo":true,"logprobs":2,"max_tokens":0)");
  ASSERT_TRUE(echoed) << echoed.error().message;
  EXPECT_TRUE(echoed->echo);
  EXPECT_EQ(echoed->stop.max_tokens, 0);
  EXPECT_EQ(completion(R"("prompt_logprobs":0,"n_predict":0)")->n_prompt_logprobs, 0);
  EXPECT_EQ(completion(R"("prompt_logprobs":null)")->n_prompt_logprobs, std::nullopt);
  const BadField cases[] = {
      {R"("max_tokens":0)", "max_tokens"},
      {R"("n_predict":0)", "n_predict"},
      {R"("max_tokens":0,"echo":false)", "max_tokens"},
      {R"("prompt_logprobs":-1)", "prompt_logprobs"},
      {R"("prompt_logprobs":true)", "prompt_logprobs"},
      {R"("prompt_logprobs":1,"stream":true)", "prompt_logprobs"},
      {R"("echo":1)", "echo"},
  };
  for (const BadField& bad : cases) {
    const auto call = completion(bad.json);
    ASSERT_FALSE(call) << bad.json;
    EXPECT_EQ(call.error().param, bad.param);
  }
}

TEST(GenerationCall, BadMessages) {
  const BadField cases[] = {
      {R"({})", "messages"},
      {R"({"messages":null})", "messages"},
      {R"({"messages":"hi"})", "messages"},
      {R"({"messages":[]})", "messages"},
      {R"({"messages":["hi"]})", "messages[0]"},
      {R"({"messages":[{"content":"x"}]})", "messages[0].role"},
      {R"({"messages":[{"role":5,"content":"x"}]})", "messages[0].role"},
      {R"({"messages":[{"role":"robot","content":"x"}]})", "messages[0].role"},
      {R"({"messages":[{"role":"user"}]})", "messages[0].content"},
      {R"({"messages":[{"role":"user","content":null}]})", "messages[0].content"},
      {R"({"messages":[{"role":"user","content":5}]})", "messages[0].content"},
      {R"({"messages":[{"role":"user","content":[]}]})", "messages[0].content"},
      {R"({"messages":[{"role":"user","content":["x"]}]})", "messages[0].content[0]"},
      {R"({"messages":[{"role":"user","content":[{"type":"text"}]}]})",
       "messages[0].content[0].text"},
      {R"({"messages":[{"role":"user","content":"x","name":7}]})", "messages[0].name"},
  };
  for (const BadField& bad : cases) expect_refused(chat_body(bad.json), bad);
  const auto image = chat_body(
      R"({"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}]})");
  EXPECT_EQ(image.error().code, ErrorCode::kNotSupported);
}

TEST(GenerationCall, BadPrompts) {
  const BadField cases[] = {
      {R"({})", "prompt"},
      {R"({"prompt":null})", "prompt"},
      {R"({"prompt":5})", "prompt"},
      {R"({"prompt":{}})", "prompt"},
      {R"({"prompt":[]})", "prompt"},
      {R"({"prompt":[[]]})", "prompt[0]"},
      {R"({"prompt":[null]})", "prompt[0]"},
      {R"({"prompt":[1,"a"]})", "prompt[1]"},
      {R"({"prompt":["a",1]})", "prompt[1]"},
      {R"({"prompt":[1000]})", "prompt[0]"},
      {R"({"prompt":[-1]})", "prompt[0]"},
      {R"({"prompt":[1.0]})", "prompt[0]"},
      {R"({"prompt":[[1],[2,9999999999]]})", "prompt[1][1]"},
  };
  for (const BadField& bad : cases) expect_refused(completion_body(bad.json), bad);
}

TEST(GenerationCall, BadJson) {
  const std::string cases[] = {
      "",
      "   ",
      "{",
      "[]",
      "\"x\"",
      "null",
      "{\"messages\":[}",
      "{} {}",
      "{'messages':1}",
      "{\"a\":NaN}",
      "{\"a\":Infinity}",
      "{\"a\":1e999}",
      "{\"a\":01}",
      "{\"a\":\"\\u0000\"}",
      "{\"a\\u0000b\":1}",
      std::string("{\"a\":\"\0\"}", 9),
      "{\"a\":\"\\ud800\"}",
      "{\"a\":\"\\udc00\"}",
      "{\"a\":\"\\ud800\\u0041\"}",
      "{\"a\":\"\xff\"}",
      "{\"a\":\"\xc0\x80\"}",
      "{\"a\":\"\xed\xa0\x80\"}",
      "{\"a\":\"\n\"}",
      "{\"a\":\"\\x\"}",
      nested(66),
      std::string(100'000, '['),
      std::string(100'000, '{'),
      "{\"a\":[" + std::string(2'000'000, ',') + "]}",
  };
  for (const std::string& body : cases) {
    const auto call = chat_body(body);
    ASSERT_FALSE(call) << body.substr(0, 60);
    EXPECT_EQ(call.error().code, ErrorCode::kInvalidArgument) << body.substr(0, 60);
    EXPECT_FALSE(completion_body(body));
  }
  EXPECT_TRUE(chat_body(nested(64)));
  // What looks like the forbidden escape but is none.
  EXPECT_TRUE(chat(R"("user":"\\u0000 [[[ \" }}}")"));
  EXPECT_TRUE(chat(R"("user":"\ud83d\ude00")"));
}

}  // namespace
}  // namespace graft::api
