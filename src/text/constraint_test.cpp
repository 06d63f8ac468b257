#include "text/constraint.h"

#include <gtest/gtest.h>
#include <llama.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <string>
#include <vector>

#include "base/testing/sanitized.h"
#include "text/test_vocabulary.h"
#include "text/utf8.h"

namespace graft {
namespace {

using Kind = ConstraintSource::Kind;

ConstraintSource grammar(std::string text) {
  return {.kind = Kind::kGrammar, .text = std::move(text)};
}
ConstraintSource schema(std::string text) {
  return {.kind = Kind::kJsonSchema, .text = std::move(text)};
}
ConstraintSource regex(std::string text) { return {.kind = Kind::kRegex, .text = std::move(text)}; }

class ConstraintTest : public testing::Test {
 protected:
  void SetUp() override {
    model_ = load_counting_model();
    ASSERT_NE(model_, nullptr);
    auto vocabulary = Vocabulary::create(llama_model_get_vocab(model_.get()));
    ASSERT_TRUE(vocabulary);
    vocabulary_ = std::move(*vocabulary);
    trie_ = std::make_shared<TokenTrie>(*vocabulary_);
  }

  std::shared_ptr<const Constraint> compile(const ConstraintSource& source) {
    auto made = Constraint::compile(*vocabulary_, trie_, source);
    EXPECT_TRUE(made) << source.text << ": " << (made ? "" : made.error().message);
    return made ? *made : nullptr;
  }

  std::string refusal(const ConstraintSource& source) {
    const auto begin = std::chrono::steady_clock::now();
    auto made = Constraint::compile(*vocabulary_, trie_, source);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, kSlowness * std::chrono::seconds(2));
    EXPECT_FALSE(made) << source.text.substr(0, 200);
    if (made) return "";
    EXPECT_TRUE(made.error().code == ErrorCode::kInvalidArgument ||
                made.error().code == ErrorCode::kNotSupported)
        << made.error().message;
    return made.error().message;
  }

  // Whether the constraint takes exactly this text.
  bool matches(const std::shared_ptr<const Constraint>& constraint, std::string_view text) {
    ConstraintState state(constraint);
    for (const char& byte : text) {
      if (!state.accept_text({&byte, 1})) return false;
    }
    return state.may_end();
  }

  void expect_matches(const ConstraintSource& source, const std::vector<std::string>& yes,
                      const std::vector<std::string>& no) {
    const auto constraint = compile(source);
    if (constraint == nullptr) return;
    for (const auto& text : yes)
      EXPECT_TRUE(matches(constraint, text)) << source.text << " : " << text;
    for (const auto& text : no)
      EXPECT_FALSE(matches(constraint, text)) << source.text << " : " << text;
  }

  ModelPtr model_;
  std::unique_ptr<Vocabulary> vocabulary_;
  std::shared_ptr<const TokenTrie> trie_;
};

TEST_F(ConstraintTest, Grammars) {
  expect_matches(grammar("root ::= \"yes\" | \"no\""), {"yes", "no"}, {"", "y", "yesno", "maybe"});
  expect_matches(grammar("# x\nroot ::= item{2,3} # y\nitem ::= [a-c] |\n  \"-\"\n"),
                 {"ab", "a-c", "---"}, {"a", "abca", "ad"});
  expect_matches(grammar("root ::= ( \"a\"\n \"b\" )+ [^x]*"), {"ab", "abab", "abyz"},
                 {"a", "abx"});
  expect_matches(grammar("root ::= \"(\" root \")\" | \"x\""), {"x", "((x))"}, {"(x", "x)"});
  expect_matches(grammar("root ::= . [\\u4E00-\\u9FFF]?"),
                 {"a", "\xC3\xA9", "\xF0\x9F\x98\x80\xE4\xB8\xAD"}, {"ab", "\xC3", "\xED\xA0\x80"});
  expect_matches(grammar("root ::= (\"a\"?)* \"b\""), {"b", "aaab"}, {"a"});
}

TEST_F(ConstraintTest, BadGrammarsAreRefusedWithTheReason) {
  const std::vector<std::pair<std::string, std::string>> bad = {
      {"", "no rule 'root'"},
      {"a ::= \"b\"", "no rule 'root'"},
      {"root ::= b", "'b' is not defined"},
      {"root ::= \"a", "ends inside"},
      {"root = \"a\"", "expected '::='"},
      {"root ::= \"a\")", "expected the end"},
      {"root ::= (\"a\"", "expected ')'"},
      {"root ::= *", "nothing to repeat"},
      {"root ::= \"a\"{3,2}", "wrong way round"},
      {"root ::= \"a\"{2001}", "2000 repetitions"},
      {"root ::= \"a\"{99999999999999999999}", "2000 repetitions"},
      {"root ::= [z-a]", "backwards"},
      {"root ::= [\\uD800]", "no such character"},
      {"root ::= \"\\q\"", "unknown escape"},
      {"root ::= []", "no character"},
      {"root ::= root \"a\" | \"b\"", "left-recursive"},
      {"root ::= a\na ::= b \"x\"\nb ::= c a\nc ::= \"y\" |", "left-recursive"},
      {"root ::= \"a\" root", "always needs itself"},
      {"root ::= \"a\"\nroot ::= \"b\"", "defined twice"},
      {"root ::= <[999999]>", "no such token"},
      {"root ::= <no token of this name>", "not one token"},
      {std::string("root ::= \"a\0\"", 13), "U+0000"},
      {"root ::= \"\xFF\"", "not UTF-8"},
      {"root ::= " + std::string(50000, '('), "nested deeper"},
      {"root ::= \"" + std::string(70000, 'a') + "\"", "65536"},
      {"root ::= " +
           [] {
             std::string all;
             for (int i = 0; i < 100; ++i) all += "\"abc\"{2000} ";
             return all;
           }(),
       "131072 symbols"},
  };
  for (const auto& [text, reason] : bad) {
    EXPECT_NE(refusal(grammar(text)).find(reason), std::string::npos)
        << text.substr(0, 100) << " -> " << refusal(grammar(text));
  }
}

// What llama.cpp's own sampler needs seconds for at each token: equal stacks are one here.
TEST_F(ConstraintTest, AmbiguityCostsNoTime) {
  std::string optional = "root ::= \"b\" ";
  for (int i = 0; i < 100; ++i) optional += "\"a\"? ";
  for (const std::string& text :
       {optional + "\"c\"", std::string("root ::= \"b\" ((\"a\"?){0,10}){0,10} \"c\""),
        std::string("root ::= \"b\" ((\"a\"?){0,40}){0,40} \"c\"")}) {
    const auto begin = std::chrono::steady_clock::now();
    const auto constraint = compile(grammar(text));
    ASSERT_NE(constraint, nullptr);
    EXPECT_TRUE(matches(constraint, "bc"));
    EXPECT_TRUE(matches(constraint, "b" + std::string(100, 'a') + "c"));
    ConstraintState state(constraint);
    ASSERT_TRUE(state.accept_text("baaa"));
    TokenMask mask;
    ASSERT_TRUE(state.allowed(mask));
    EXPECT_LT(std::chrono::steady_clock::now() - begin, kSlowness * std::chrono::seconds(2))
        << text;
  }
}

// Stacks that differ cannot be one: 2^30 of them, and more than one set may hold.
TEST_F(ConstraintTest, ExplosionIsRefused) {
  std::string doubling = "root ::= \"b\" r0\n";
  for (int i = 0; i < 30; ++i) {
    const std::string next = "r" + std::to_string(i + 1);
    doubling += "r" + std::to_string(i) + " ::= " + next + " \"x\" | " + next + " \"y\"\n";
  }
  EXPECT_NE(refusal(grammar(doubling + "r30 ::= \"a\"")).find("too ambiguous"), std::string::npos);
}

// The same, but hidden behind more characters than are looked at beforehand.
TEST_F(ConstraintTest, LateExplosionFailsThatStepAlone) {
  std::string doubling = "root ::= [a-c]{300} r0\n";
  for (int i = 0; i < 30; ++i) {
    const std::string next = "r" + std::to_string(i + 1);
    doubling += "r" + std::to_string(i) + " ::= " + next + " \"x\" | " + next + " \"y\"\n";
  }
  const auto constraint = compile(grammar(doubling + "r30 ::= \"a\""));
  ASSERT_NE(constraint, nullptr);
  ConstraintState state(constraint);
  for (int i = 0; i < 299; ++i) ASSERT_TRUE(state.accept_text("a"));
  const auto begin = std::chrono::steady_clock::now();
  const auto last = vocabulary_->tokenize("a", {.add_special = false});
  ASSERT_EQ(last->size(), 1U);
  EXPECT_FALSE(state.fits(last->front()));
  EXPECT_FALSE(state.accept(last->front()));
  TokenMask mask;
  EXPECT_FALSE(state.allowed(mask));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, kSlowness * std::chrono::seconds(1));
}

TEST_F(ConstraintTest, RegularExpressions) {
  expect_matches(regex("a.c"),
                 {"abc",
                  "a\xC3\xA9"
                  "c"},
                 {"ac", "a\nc", "xabc", "abcx"});
  expect_matches(regex("^[A-Z]{2}-\\d{3,5}$"), {"AB-123", "AB-12345"},
                 {"AB-12", "ab-123", "AB-123456"});
  expect_matches(regex("(?:ab|c)+x?"), {"ab", "cabx", "cc"}, {"", "x", "ac"});
  expect_matches(regex("(?P<word>\\w+)@(\\w+)\\.com"), {"a_1@b.com"}, {"a@bxcom", "@b.com"});
  expect_matches(regex("^yes$|^no$"), {"yes", "no"}, {"yesno"});
  expect_matches(regex("[^\\s,]*?"), {"", "abc"}, {"a b", "a,b"});
  expect_matches(regex("[]a-]{,2}"), {"", "]-", "a"}, {"aaa", "b"});
  expect_matches(regex("\\x41\\u00e9\\.\\/\\t"), {"A\xC3\xA9./\t"}, {"A"});
  expect_matches(regex("[\\D]{2}\\S"), {"abc"}, {"a1c", "ab "});
  expect_matches(regex("a{2}b{1,}"), {"aab", "aabbb"}, {"ab", "aa"});
  expect_matches(regex("(a?)*b"), {"b", "aab"}, {"a"});
  expect_matches(regex("\"\\\\"), {"\"\\"}, {"\""});
}

TEST_F(ConstraintTest, UnsupportedExpressionsAreNamed) {
  const std::vector<std::pair<std::string, std::string>> bad = {
      {"(?=a)", "look-around"},
      {"(?<!a)b", "look-around"},
      {"(a)\\1", "back-reference"},
      {"(?P<x>a)(?P=x)", "back-reference"},
      {"\\bword\\b", "word boundary"},
      {"(?i)abc", "flags"},
      {"a*+", "possessive"},
      {"a**", "repeated"},
      {"\\p{L}", "Unicode property"},
      {"[[:alpha:]]", "POSIX"},
      {"a^b", "'^' inside"},
      {"a$b", "'$' inside"},
      {"(", "not closed"},
      {")", "closes nothing"},
      {"[a", "not closed"},
      {"a{2,1}", "wrong way round"},
      {"a{x}", "must be escaped"},
      {"a{3001}", "2000 repetitions"},
      {"*a", "nothing to repeat"},
      {"\\", "backslash at the end"},
      {"\\Z", "escape \\Z"},
      {"[b-a]", "backwards"},
      {"\\xZZ", "hexadecimal"},
      {std::string(100, '('), "nested deeper"},
      {std::string(70000, 'a'), "65536"}};
  for (const auto& [text, reason] : bad) {
    EXPECT_NE(refusal(regex(text)).find(reason), std::string::npos)
        << text.substr(0, 100) << " -> " << refusal(regex(text));
  }
}

TEST_F(ConstraintTest, Choices) {
  ConstraintSource source{.kind = Kind::kChoice, .choices = {"yes", "yesterday", "n\"o\\", "yes"}};
  expect_matches(source, {"yes", "yesterday", "n\"o\\"}, {"", "yest", "no"});
  source.choices = {};
  EXPECT_NE(refusal(source).find("no choices"), std::string::npos);
  source.choices = {""};
  EXPECT_NE(refusal(source).find("empty"), std::string::npos);
  source.choices.assign(1001, "a");
  EXPECT_NE(refusal(source).find("1000"), std::string::npos);
  source.choices.clear();
  for (int i = 0; i < 1000; ++i) source.choices.push_back("choice " + std::to_string(i));
  expect_matches(source, {"choice 0", "choice 999"}, {"choice 1000"});
}

TEST_F(ConstraintTest, JsonObject) {
  expect_matches({.kind = Kind::kJsonObject}, {"{}", "{\"a\": [1, {\"b\": null}], \"c\": \"\\n\"}"},
                 {"[]", "1", "{", "{\"a\"}"});
}

TEST_F(ConstraintTest, Schemas) {
  expect_matches(schema(R"({"type":"object","properties":{"a":{"type":"integer"},
      "b":{"type":"string","maxLength":2}},"required":["a"],"additionalProperties":false})"),
                 {R"({"a":1})", R"({"a": -7, "b": "xy"})"},
                 {R"({"b":"x"})", R"({"a":1.5})", R"({"a":1,"b":"xyz"})", R"({"a":1,"c":2})"});
  expect_matches(schema(R"({"enum":["x",1,null,true,{"a":[]}]})"),
                 {"\"x\"", "1", "null", "true", "{\"a\":[]}"}, {"x", "2", "false"});
  expect_matches(schema(R"({"type":["string","null"],"minLength":1})"), {"null", "\"a\""},
                 {"\"\""});
  expect_matches(schema(R"({"anyOf":[{"const":"a"},{"type":"array","items":{"type":"boolean"},
      "minItems":1,"maxItems":2}]})"),
                 {"\"a\"", "[true]", "[true,false]"}, {"[]", "[true,true,true]"});
  expect_matches(schema(R"({"type":"array","prefixItems":[{"type":"integer"},{"const":"x"}]})"),
                 {"[1,\"x\"]"}, {"[1]", "[\"x\",1]"});
  expect_matches(schema(R"({"type":"object","additionalProperties":{"type":"integer"},
      "properties":{"name":{"type":"null"}}})"),
                 {"{}", R"({"name":null})", R"({"name":null,"x":1})", R"({"surname":1})"},
                 {R"({"x":"y"})", R"({"name":1})"});
  expect_matches(schema(R"({"type":"string","format":"date"})"), {"\"2024-02-29\""},
                 {"\"2024-13-01\""});
  expect_matches(schema(R"({"type":"object","required":["k"],"additionalProperties":{"const":3}})"),
                 {R"({"k":3})"}, {"{}", R"({"k":4})"});
  expect_matches(schema("true"), {"1", "{}"}, {"x"});
}

TEST_F(ConstraintTest, SchemaReferences) {
  expect_matches(schema(R"({"$defs":{"node":{"type":"object","properties":{"v":{"type":"integer"},
      "next":{"$ref":"#/$defs/node"}},"required":["v"]}},"$ref":"#/$defs/node"})"),
                 {R"({"v":1})", R"({"v":1,"next":{"v":2,"next":{"v":3}}})"},
                 {R"({"next":{"v":1}})"});
  expect_matches(schema(R"({"type":"object","properties":{"a/b~c":{"type":"integer"},
      "x":{"$ref":"#/properties/a~1b~0c"},"children":{"type":"array","items":{"$ref":"#"}}}})"),
                 {R"({"x":5})", R"({"children":[{"x":1},{}]})"}, {R"({"x":"5"})"});
  expect_matches(schema(R"({"allOf":[{"$ref":"#/definitions/d"}],"title":"t",
      "definitions":{"d":{"type":"boolean"}}})"),
                 {"true"}, {"1"});
  // Names that llama.cpp's converter gives to rules of its own.
  expect_matches(
      schema(R"({"type":"object","properties":{"root":{"type":"null"},"space":{"type":"null"},
      "char":{"type":"null"},"a":{"type":"object","properties":{"kv":{"type":"null"}}},
      "a-kv":{"type":"integer"}},"required":["root","space","char","a","a-kv"]})"),
      {R"({"root":null,"space":null,"char":null,"a":{"kv":null},"a-kv":1})"},
      {R"({"root":null,"space":null,"char":null,"a":{"kv":null},"a-kv":null})"});
}

TEST_F(ConstraintTest, SchemaPatterns) {
  expect_matches(schema(R"({"type":"string","pattern":"^\\d{3}$"})"), {"\"123\""},
                 {"\"12\"", "123"});
  expect_matches(schema(R"({"type":"string","pattern":"b+"})"), {"\"b\"", "\"abbc\""}, {"\"ac\""});
  expect_matches(schema(R"({"type":"string","pattern":"^a[\"\\\\]|c$"})"),
                 {R"("a\"")", R"("a\\z")", R"("xxc")"}, {R"("a"")", R"("az")"});
  expect_matches(
      schema(R"({"type":"object","properties":{"p":{"pattern":"^.$"},"q":{"pattern":"^x$"}},
      "required":["p","q"]})"),
      {R"({"p":"\"","q":"x"})"}, {R"({"p":""","q":"x"})"});
}

TEST_F(ConstraintTest, SchemaIntegers) {
  const auto range = [&](const std::string& bounds, int low, int high) {
    const auto constraint = compile(schema("{\"type\":\"integer\"," + bounds + "}"));
    ASSERT_NE(constraint, nullptr);
    for (int value = -250; value <= 1250; ++value) {
      EXPECT_EQ(matches(constraint, std::to_string(value)), value >= low && value <= high)
          << bounds << ": " << value;
    }
  };
  range(R"("minimum":0,"maximum":100)", 0, 100);
  range(R"("minimum":-20,"maximum":-3)", -20, -3);
  range(R"("minimum":-7,"maximum":1003)", -7, 1003);
  range(R"("exclusiveMinimum":17,"exclusiveMaximum":231)", 18, 230);
  range(R"("minimum":1.5,"maximum":9.5)", 2, 9);
  range(R"("minimum":5)", 5, 99999);
  range(R"("minimum":123)", 123, 99999);
  range(R"("minimum":-12)", -12, 99999);
  range(R"("maximum":42)", -99999, 42);
  range(R"("maximum":-42)", -99999, -42);
}

TEST_F(ConstraintTest, UnenforceableSchemasAreNamed) {
  const std::vector<std::pair<std::string, std::string>> bad = {
      {R"({"type":"array","uniqueItems":true})", "'uniqueItems'"},
      {R"({"type":"number","minimum":0})", "'minimum'"},
      {R"({"not":{"type":"string"}})", "'not'"},
      {R"({"type":"object","properties":{"a":{"if":{}}}})", "#/properties/a: the keyword 'if'"},
      {R"({"type":"object","patternProperties":{}})", "'patternProperties'"},
      {R"({"type":"string","format":"email"})", "the format 'email'"},
      {R"x({"type":"string","pattern":"(?=a)"})x", "look-around"},
      {R"({"type":"string","pattern":"^a$","maxLength":1})", "beside 'pattern'"},
      {R"({"allOf":[{"type":"object"},{"type":"object"}]})", "'allOf'"},
      {R"({"type":"integer","multipleOf":3})", "'multipleOf'"},
      {R"({"$ref":"#/$defs/a","minLength":3,"$defs":{"a":{}}})", "beside '$ref'"},
      {R"({"frobnicate":1})", "'frobnicate'"},
  };
  for (const auto& [text, reason] : bad) {
    EXPECT_NE(refusal(schema(text)).find(reason), std::string::npos)
        << text << " -> " << refusal(schema(text));
    ConstraintSource lenient = schema(text);
    lenient.lenient = true;
    const auto constraint = compile(lenient);
    ASSERT_NE(constraint, nullptr);
    EXPECT_FALSE(constraint->ignored_keywords().empty()) << text;
  }
}

TEST_F(ConstraintTest, BadSchemasAreRefused) {
  const auto many = [](int n, const char* separator, const auto& item) {
    std::string text;
    for (int i = 0; i < n; ++i) text += (i > 0 ? separator : "") + item(i);
    return text;
  };
  const auto property = [](int i) { return "\"p" + std::to_string(i) + "\":{}"; };
  std::string deep = "{}";
  for (int i = 0; i < 70; ++i) deep = "{\"items\":" + deep + "}";
  std::string chain = "{\"$ref\":\"#/$defs/d0\",\"$defs\":{";
  for (int i = 0; i < 1500; ++i) {
    chain +=
        "\"d" + std::to_string(i) + "\":{\"$ref\":\"#/$defs/d" + std::to_string(i + 1) + "\"},";
  }
  chain += "\"d1500\":{}}}";
  std::string doubling = "{}";
  for (int i = 0; i < 20; ++i) {
    doubling = R"({"required":["a","b","c"],"additionalProperties":)" + doubling + "}";
  }
  const std::vector<std::pair<std::string, std::string>> bad = {
      {"{", "not valid JSON"},
      {"[]", "must be an object"},
      {"false", "allows no value"},
      {R"({"type":"strange"})", "no type 'strange'"},
      {R"({"type":3})", "'type'"},
      {R"({"type":[]})", "'type'"},
      {R"({"type":["array","array"]})", "different"},
      {R"({"enum":[]})", "'enum'"},
      {R"({"enum":["a"],"type":"integer"})", "no value"},
      {"{\"enum\":[" + many(1001, ",", [](int i) { return std::to_string(i); }) + "]}", "1000"},
      {"{\"properties\":{" + many(257, ",", property) + "}}", "256"},
      {R"({"type":"array","minItems":-1})", "'minItems'"},
      {R"({"type":"array","minItems":3,"maxItems":2})", "'minItems'"},
      {R"({"type":"array","maxItems":2001})", "2000"},
      {R"({"type":"string","maxLength":1e300})", "2000"},
      {R"({"type":"integer","minimum":5,"maximum":4})", "no integer"},
      {R"({"type":"integer","minimum":-9223372036854775808})", "1e15"},
      {R"({"$ref":"http://example.org/x"})", "same schema"},
      {R"({"$ref":"#/$defs/missing"})", "points to nothing"},
      {R"({"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}}})",
       "always needs itself"},
      {R"({"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]})",
       "always needs itself"},
      {R"({"anyOf":[{"$ref":"#"}]})", "always needs itself"},
      {deep, "nested deeper"},
      {std::string(100000, '[') + std::string(100000, ']'), "65536"},
      {doubling, "2000 parts"},
  };
  for (const auto& [text, reason] : bad) {
    EXPECT_NE(refusal(schema(text)).find(reason), std::string::npos)
        << text.substr(0, 100) << " -> " << refusal(schema(text));
  }
  expect_matches(schema(chain), {"1"}, {"x"});
  // All of them optional: the largest object that is accepted.
  expect_matches(schema("{\"properties\":{" + many(256, ",", property) + "}}"),
                 {"{}", R"({"p0":1,"p255":2})"}, {R"({"p255":1,"p0":2})", R"({"q":1})"});
}

TEST_F(ConstraintTest, ControlTokensAreNoText) {
  const TokenId eos = vocabulary_->eos();
  ConstraintState state(compile(regex(".{20}")));
  EXPECT_FALSE(*state.fits(eos));
  EXPECT_FALSE(*state.fits(-1));
  EXPECT_FALSE(*state.fits(vocabulary_->size()));
  TokenMask mask;
  ASSERT_TRUE(state.allowed(mask));
  int n_control = 0;
  for (TokenId token = 0; token < vocabulary_->size(); ++token) {
    EXPECT_EQ(*state.fits(token), mask.contains(token)) << token;
    if (!vocabulary_->is_control(token)) continue;
    ++n_control;
    EXPECT_FALSE(mask.contains(token)) << vocabulary_->piece(token);
  }
  EXPECT_GT(n_control, 0);
}

TEST_F(ConstraintTest, ControlTokensWhereTheyAreAskedFor) {
  TokenId start = -1;
  for (TokenId token = 0; token < vocabulary_->size(); ++token) {
    if (vocabulary_->piece(token) == "<|im_start|>") start = token;
  }
  ASSERT_GE(start, 0);
  ConstraintState by_token(compile(grammar("root ::= <|im_start|> \"a\"")));
  EXPECT_TRUE(*by_token.fits(start));
  EXPECT_FALSE(by_token.accept_text("<|im_start|>"));
  ASSERT_TRUE(by_token.accept(start));
  EXPECT_TRUE(by_token.accept_text("a"));
  EXPECT_TRUE(by_token.must_end());

  ConstraintSource source = grammar("root ::= \"<|im_start|>\" \"a\"");
  EXPECT_FALSE(*ConstraintState(compile(source)).fits(start));
  source.control_tokens = {start};
  ConstraintState by_text(compile(source));
  EXPECT_TRUE(*by_text.fits(start));
  TokenMask mask;
  ASSERT_TRUE(by_text.allowed(mask));
  EXPECT_TRUE(mask.contains(start));

  ConstraintState other(compile(grammar("root ::= !<|im_start|>{2}")));
  EXPECT_FALSE(*other.fits(start));
  ASSERT_TRUE(other.allowed(mask));
  for (TokenId token = 0; token < vocabulary_->size(); ++token) {
    EXPECT_EQ(mask.contains(token), *other.fits(token)) << token;
  }
}

bool begins_utf8(std::string_view text) {
  PartialCharacter partial;
  return std::all_of(text.begin(), text.end(), [&](char byte) {
    return push_utf8(partial, static_cast<std::uint8_t>(byte));
  });
}

// llama.cpp's sampler says the same of every token, at each place of random walks through grammars
// that it can bear; only that we never let broken UTF-8 or control tokens pass.
TEST_F(ConstraintTest, FitsWhatLlamasSamplerFits) {
  const std::vector<std::string> grammars = {
      "root ::= \"count: \" [0-9]+ (\", \" [0-9]+)*", "root ::= [^x]{3,9} (\"x\" | \"y\" root)?",
      "root ::= \"[\" (item (\",\" item)*)? \"]\"\nitem ::= \"\\\"\" [^\"\\\\]* \"\\\"\" | root",
      "root ::= . . [\\u0080-\\U0010FFFF] .*",
      "root ::= \"caf\xC3\xA9\" | \"\xE4\xB8\xAD\"+ [a-z]{0,4}"};
  const llama_vocab* vocab = llama_model_get_vocab(model_.get());
  std::mt19937 random(7);
  for (const std::string& text : grammars) {
    const auto constraint = compile(grammar(text));
    for (int walk = 0; walk < 5; ++walk) {
      ConstraintState state(constraint);
      llama_sampler* theirs = llama_sampler_init_grammar(vocab, text.c_str(), "root");
      ASSERT_NE(theirs, nullptr);
      std::string answer;
      for (int step = 0; step < 20; ++step) {
        std::vector<llama_token_data> data;
        for (TokenId id = 0; id < vocabulary_->size(); ++id) data.push_back({id, 0.0F, 0.0F});
        llama_token_data_array array{data.data(), data.size(), -1, false};
        llama_sampler_apply(theirs, &array);
        TokenMask mask;
        ASSERT_TRUE(state.allowed(mask));
        std::vector<TokenId> next;
        for (TokenId id = 0; id < vocabulary_->size(); ++id) {
          const bool ends = vocabulary_->is_end_of_generation(id);
          const bool is_text = ends || (!vocabulary_->is_control(id) &&
                                        begins_utf8(answer + std::string(vocabulary_->piece(id))));
          const bool fits = data[static_cast<std::size_t>(id)].logit == 0.0F && is_text;
          ASSERT_EQ(mask.contains(id), fits) << text << ": token " << id << " at step " << step;
          ASSERT_EQ(*state.fits(id), fits);
          if (fits && !ends) next.push_back(id);
        }
        if (next.empty()) break;
        const TokenId token = next[random() % next.size()];
        ASSERT_TRUE(state.accept(token));
        llama_sampler_accept(theirs, token);
        answer += vocabulary_->piece(token);
      }
      llama_sampler_free(theirs);
    }
  }
}

TEST_F(ConstraintTest, PlacesThatComeAgainAllowTheSame) {
  const auto constraint =
      compile(grammar(R"(root ::= "\"" ([a-z] | "\\" [nt])* "\"" [0-9]{2,30})"));
  ASSERT_NE(constraint, nullptr);
  ConstraintState state(constraint);
  const std::string text = R"("ab\nccdd\t\nefgh"0123456789)";
  for (std::size_t i = 0; i < text.size(); ++i) {
    TokenMask again;
    TokenMask fresh;
    ConstraintState other(constraint);
    ASSERT_TRUE(other.accept_text(std::string_view(text).substr(0, i)));
    ASSERT_TRUE(other.allowed(fresh));
    ASSERT_TRUE(state.allowed(again));
    ASSERT_TRUE(state.allowed(again));
    for (TokenId token = 0; token < vocabulary_->size(); ++token) {
      ASSERT_EQ(again.contains(token), fresh.contains(token)) << i << ", token " << token;
    }
    ASSERT_TRUE(state.accept_text(std::string_view(text).substr(i, 1)));
  }
}

TEST_F(ConstraintTest, TheCompilerRemembersTheLastOnes) {
  const ConstraintCompiler compiler(*vocabulary_);
  const auto first = compiler.compile(regex("a+"));
  ASSERT_TRUE(first);
  EXPECT_EQ(*compiler.compile(regex("a+")), *first);
  EXPECT_NE(*compiler.compile(grammar("root ::= \"a\"+")), *first);
  for (int i = 0; i < 40; ++i) ASSERT_TRUE(compiler.compile(regex("b" + std::to_string(i))));
  EXPECT_NE(*compiler.compile(regex("a+")), *first);
  EXPECT_FALSE(compiler.compile(regex("(")));
}

}  // namespace
}  // namespace graft
