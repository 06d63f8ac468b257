// Faults that were published for other servers, where they concern requests: each test names the
// advisory whose failure it repeats here.
#include <gtest/gtest.h>

#include <concepts>
#include <fstream>
#include <sstream>

#include "api/fields.h"
#include "api/generation_call.h"
#include "api/keys/key_hash.h"
#include "api/testing/scripted_generation.h"
#include "api/testing/service_call.h"

namespace graft::api {
namespace {

class Advisories : public testing::Test {
 protected:
  Advisories()
      : registry_(test_registry()), service_({generation_, registry_, prompts_, test_facts()}) {
    service_.set_state(Service::State::kReady);
  }

  int status(const std::string& path, const std::string& body) {
    return call_service(service_, {"POST", path, {}, body}).status;
  }
  int complete(const std::string& more) {
    return status("/v1/completions", R"({"prompt":"hi","max_tokens":2,)" + more + "}");
  }
  int chat(const std::string& more) {
    return status("/v1/chat/completions",
                  R"({"messages":[{"role":"user","content":"hi"}],)" + more + "}");
  }
  bool nothing_ran() const { return generation_.submitted().empty(); }

  ScriptedGeneration generation_;
  FakePromptBuilder prompts_;
  Snapshot<RegistrySnapshot> registry_;
  Service service_;
};

// CVE-2026-21869 (llama.cpp server): a negative number from JSON reached operations on ranges of
// the key/value memory. Every integer that the API knows is checked, also those that it ignores.
TEST_F(Advisories, Cve202621869NegativeAndHugeIntegers) {
  int n_fields = 0;
  for (const Field& field : generation_fields()) {
    if (field.type != FieldType::kInteger || field.name == "seed" || field.name == "priority") {
      continue;
    }
    ++n_fields;
    for (const char* value : {"-2", "-9223372036854775808", "-1e30", "18446744073709551615", "1e30",
                              "1.5", "\"1\"", "[1]", "true"}) {
      const std::string more = "\"" + std::string(field.name) + "\":" + value;
      const bool in_chat = field.where != Endpoint::kCompletions;
      EXPECT_EQ(in_chat ? chat(more) : complete(more), 400) << more;
    }
  }
  EXPECT_GT(n_fields, 10);
  for (const char* more :
       {R"("lora":[{"id":-1}])", R"("lora":[{"id":4294967296}])", R"("stop_token_ids":[-1])",
        R"("logit_bias":{"-1":1})", R"("logit_bias":{"4294967297":1})",
        R"("logit_bias":{"1":1e999})", R"("logit_bias":{"1":NaN})"}) {
    const int refused = complete(more);
    EXPECT_TRUE(refused == 400 || refused == 404) << more << ": " << refused;
  }
  for (const char* prompt : {"[-1]", "[4294967297]", "[[1,-5]]", "[2147483648]"}) {
    EXPECT_EQ(status("/v1/completions", R"({"prompt":)" + std::string(prompt) + "}"), 400);
  }
  EXPECT_TRUE(nothing_ran());
}

// CVE-2026-34756 (vLLM): an unbounded `n` took all memory before anything was scheduled. So would
// any other count.
TEST_F(Advisories, Cve202634756CountsAreCapped) {
  const auto list = [](int n, const std::string& entry) {
    std::string text = "[" + entry;
    for (int i = 1; i < n; ++i) text += "," + entry;
    return text + "]";
  };
  EXPECT_EQ(complete(R"("n":1000000000)"), 400);
  EXPECT_EQ(complete(R"("n":17)"), 400);
  EXPECT_EQ(complete(R"("best_of":1000000000)"), 400);
  EXPECT_EQ(complete(R"("logprobs":1000000000)"), 400);
  EXPECT_EQ(chat(R"("logprobs":true,"top_logprobs":1000000000)"), 400);
  EXPECT_EQ(complete(R"("stop":)" + list(100'000, R"("x")")), 400);
  EXPECT_EQ(complete(R"("stop":[")" + std::string(100'000, 'x') + "\"]"), 400);
  EXPECT_EQ(complete(R"("stop_token_ids":)" + list(100'000, "1")), 400);
  EXPECT_EQ(complete(R"("modules":)" + list(1000, R"({"name":"pirate"})")), 400);
  std::string biases = R"("logit_bias":{"0":1)";
  for (int i = 1; i < 999; ++i) biases += ",\"" + std::to_string(i) + "\":1";
  for (int i = 0; i < 100; ++i) biases += ",\"00" + std::to_string(i) + "\":1";
  EXPECT_EQ(complete(biases + "}"), 400);
  EXPECT_EQ(status("/v1/completions", R"({"prompt":)" + list(100'000, R"("x")") + "}"), 400);
  EXPECT_EQ(status("/v1/completions", R"({"n":16,"prompt":["a","b"]})"), 400);
  EXPECT_TRUE(nothing_ran());
}

// CVE-2025-52566 (llama.cpp): a signed comparison in the tokenizer. Prompts are cut off by their
// bytes before there are tokens to count, and by the context afterwards.
TEST_F(Advisories, Cve202552566PromptsAreCapped) {
  EXPECT_EQ(
      status("/v1/completions", R"({"prompt":")" + std::string(std::size_t{1} << 20, 'x') + "\"}"),
      400);
  EXPECT_EQ(chat(R"("messages":[{"role":"user","content":")" +
                 std::string(std::size_t{1} << 20, 'x') + "\"}]"),
            400);
  EXPECT_TRUE(nothing_ran());
}

// CVE-2025-59425 (vLLM): keys were compared in a time that told how much of one was right. Hashes
// cannot be compared but through CRYPTO_memcmp: the type has no operator.
template <typename T>
concept Comparable = requires(const T& a, const T& b) {
  a == b;
};

TEST_F(Advisories, Cve202559425KeysAreComparedInConstantTime) {
  static_assert(!Comparable<KeyHash>);
  static_assert(Comparable<std::string>);
  std::ifstream file(std::string(GRAFT_SOURCE_DIR) + "/src/base/secret.cpp");
  std::ostringstream text;
  text << file.rdbuf();
  EXPECT_NE(text.str().find("CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0"), std::string::npos);
}

// JSON nested until a recursive reader has no stack left (SIGSEGV in several servers).
TEST_F(Advisories, DeepJsonCostsNoStack) {
  for (const std::string& opening : {std::string("["), std::string(R"({"a":)")}) {
    std::string body = R"({"prompt":)";
    for (int i = 0; i < 100'000; ++i) body += opening;
    EXPECT_EQ(status("/v1/completions", body), 400);
    EXPECT_EQ(status("/v1/chat/completions", body), 400);
  }
  EXPECT_TRUE(nothing_ran());
}

}  // namespace
}  // namespace graft::api
