// API keys without routes: the file, the ring, limits.
#include <gtest/gtest.h>

#include <type_traits>

#include "api/keys/admission.h"
#include "api/keys/key_file.h"
#include "api/keys/key_sources.h"
#include "api/testing/scripted_generation.h"
#include "base/secret.h"
#include "modules/formats/format_test_support.h"

namespace graft::api {
namespace {

using std::chrono::seconds;

const std::string kHash = KeyHash::of("secret").hex();

ApiKey make_key(const std::string& name, const std::string& text) {
  return {.name = name, .hash = KeyHash::of(text), .tenant = name};
}

KeyRing ring_of(std::vector<ApiKey> keys, const KeyRing& before = {}) {
  return KeyRing::create(std::move(keys), false, before).value();
}

std::string refusal(const std::string& line) {
  const auto keys = parse_key_file("# first\n" + line + "\n", "keys.jsonl");
  if (keys) return "accepted";
  EXPECT_NE(keys.error().message.find("keys.jsonl, line 2: "), std::string::npos)
      << keys.error().message;
  return keys.error().message;
}

std::string entry(const std::string& more) {
  return R"({"name":"a","sha256":")" + kHash + "\"" + more + "}";
}

TEST(KeyFile, ReadsEveryField) {
  const std::string text = "# a comment\n\n" +
                           entry(R"(,"tenant":"t","role":"inference","modules":["x/*","y"],)"
                                 R"("max_concurrent":4,"requests_per_minute":60,)"
                                 R"("tokens_per_minute":1000)") +
                           "\r\n" + R"({"name":"b","sha256":")" + KeyHash::of("other").hex() +
                           R"(","role":"admin"})";
  const auto keys = parse_key_file(text, "f");
  ASSERT_TRUE(keys) << keys.error().message;
  ASSERT_EQ(keys->size(), 2U);
  const ApiKey& a = keys->at(0);
  EXPECT_TRUE(a.hash.matches(KeyHash::of("secret")));
  EXPECT_EQ(a.tenant, "t");
  EXPECT_FALSE(a.is_admin);
  EXPECT_EQ(a.limits.max_concurrent, 4);
  EXPECT_EQ(a.limits.requests_per_minute, 60);
  EXPECT_EQ(a.limits.tokens_per_minute, 1000);
  const ApiKey& b = keys->at(1);
  EXPECT_TRUE(b.is_admin);
  EXPECT_EQ(b.tenant, "b");
  EXPECT_FALSE(b.modules.has_value());
  EXPECT_EQ(b.limits.max_concurrent, 0);
  const auto again = parse_key_file(key_file_line(a) + "\n" + key_file_line(b), "f");
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(key_file_line(again->at(0)), key_file_line(a));
  EXPECT_EQ(key_file_line(again->at(1)), key_file_line(b));
}

TEST(KeyFile, RefusesWhatItDoesNotUnderstand) {
  EXPECT_EQ(refusal(entry("")), "accepted");
  for (const auto& [line, part] : std::initializer_list<std::pair<std::string, std::string>>{
           {"{", "not valid JSON"},
           {"[]", "a JSON object"},
           {R"({"sha256":")" + kHash + "\"}", "'name' is missing"},
           {R"({"name":"a"})", "'sha256' is missing"},
           {R"({"name":"a","sha256":"abc"})", "64 digits"},
           {R"({"name":"a","sha256":")" + std::string(64, 'A') + "\"}", "64 digits"},
           {R"({"name":"a","key":"secret","sha256":")" + kHash + "\"}", "'key'"},
           {R"({"name":"a b","sha256":")" + kHash + "\"}", "'name'"},
           {R"({"name":"","sha256":")" + kHash + "\"}", "'name'"},
           {R"({"name":7,"sha256":")" + kHash + "\"}", "'name'"},
           {entry(R"(,"name":"b")"), "twice"},
           {entry(R"(,"role":"root")"), "'role'"},
           {entry(R"(,"tenant":"")"), "'tenant'"},
           {entry(R"(,"modules":"x")"), "'modules'"},
           {entry(R"(,"modules":[1])"), "'modules'"},
           {entry(R"(,"modules":["*"])"), "'modules'"},
           {entry(R"(,"modules":["x*"])"), "'modules'"},
           {entry(R"(,"modules":["/*"])"), "'modules'"},
           {entry(R"(,"max_concurrent":0)"), "'max_concurrent'"},
           {entry(R"(,"max_concurrent":-1)"), "'max_concurrent'"},
           {entry(R"(,"requests_per_minute":1.5)"), "'requests_per_minute'"},
           {entry(R"(,"tokens_per_minute":1e99)"), "'tokens_per_minute'"},
           {entry(R"(,"tokens_per_minute":18446744073709551615)"), "'tokens_per_minute'"},
           {entry(R"(,"tokens_per_min":5)"), "'tokens_per_min' is not a field"}}) {
    EXPECT_NE(refusal(line).find(part), std::string::npos) << line << ": " << refusal(line);
  }
}

TEST(KeyRing, FindsByHashAndRefusesTwins) {
  const KeyRing ring = ring_of({make_key("a", "secret"), make_key("b", "other")});
  EXPECT_EQ(ring.find("secret")->name, "a");
  EXPECT_EQ(ring.find("other")->name, "b");
  for (const char* wrong : {"", "secre", "secret ", "Secret", "secretsecret"}) {
    EXPECT_EQ(ring.find(wrong), nullptr) << wrong;
  }
  EXPECT_EQ(ring.find(kHash), nullptr);  // the hash itself opens nothing
  EXPECT_FALSE(KeyRing::create({make_key("a", "x"), make_key("a", "y")}, false, {}));
  EXPECT_FALSE(KeyRing::create({make_key("a", "x"), make_key("b", "x")}, false, {}));
}

TEST(KeyRing, SaysWhoNeedsAKey) {
  EXPECT_FALSE(KeyRing().needs_key_for_inference());
  EXPECT_FALSE(KeyRing().needs_key_for_admin());
  ApiKey admin = make_key("a", "x");
  admin.is_admin = true;
  const KeyRing only_admin = ring_of({admin});
  EXPECT_FALSE(only_admin.needs_key_for_inference());
  EXPECT_TRUE(only_admin.needs_key_for_admin());
  const KeyRing inference = ring_of({make_key("a", "x")});
  EXPECT_TRUE(inference.needs_key_for_inference());
  EXPECT_TRUE(inference.needs_key_for_admin());
  // A file without a line lets nobody in.
  const KeyRing closed = KeyRing::create({}, true, {}).value();
  EXPECT_TRUE(closed.needs_key_for_inference());
  EXPECT_TRUE(closed.needs_key_for_admin());
}

TEST(KeyRing, UsageOutlivesAReload) {
  const KeyRing before = ring_of({make_key("a", "x"), make_key("b", "y")});
  ASSERT_FALSE(before.find("x")->usage->begin({}, KeyUsage::Clock::now()));
  const KeyRing after = ring_of({make_key("renamed", "x"), make_key("b", "z")}, before);
  EXPECT_EQ(after.find("x")->usage->n_running(), 1);
  EXPECT_EQ(after.find("z")->usage->n_running(), 0);
}

TEST(KeySources, BringsFlagsAndFileTogether) {
  const format_test::TemporaryDirectory directory;
  const std::string path = directory.write("keys.jsonl", entry("") + "\n");
  const auto ring = load_key_ring({{"one", "two"}, {"root"}, path}, {});
  ASSERT_TRUE(ring) << ring.error().message;
  EXPECT_EQ((*ring)->size(), 4U);
  EXPECT_NE((*ring)->find("one")->tenant, (*ring)->find("two")->tenant);
  EXPECT_TRUE((*ring)->find("root")->is_admin);
  EXPECT_EQ((*ring)->find("secret")->name, "a");
  EXPECT_FALSE(load_key_ring({{"secret"}, {}, path}, {}));  // the same key twice
  const auto missing = load_key_ring({{}, {}, directory.path() + "/none"}, {});
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().message.find("/none"), std::string::npos);
  const auto closed =
      load_key_ring({{}, {}, directory.write("empty", std::string("# none\n"))}, {});
  ASSERT_TRUE(closed);
  EXPECT_TRUE((*closed)->needs_key_for_inference());
}

TEST(KeyUsage, ConcurrencyIsCountedUpAndDown) {
  KeyUsage usage;
  const KeyLimits limits{.max_concurrent = 2};
  const auto now = KeyUsage::Clock::now();
  EXPECT_FALSE(usage.begin(limits, now));
  EXPECT_FALSE(usage.begin(limits, now));
  const auto refused = usage.begin(limits, now);
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->message, "This key may run 2 requests at once.");
  EXPECT_EQ(usage.n_running(), 2);
  usage.end();
  EXPECT_FALSE(usage.begin(limits, now));
}

TEST(KeyUsage, RequestsRefillEvenly) {
  KeyUsage usage;
  const KeyLimits limits{.requests_per_minute = 6};
  auto now = KeyUsage::Clock::now();
  for (int i = 0; i < 6; ++i) EXPECT_FALSE(usage.begin(limits, now));
  const auto refused = usage.begin(limits, now);
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->retry_after_s, 10);
  now += seconds(10);
  EXPECT_FALSE(usage.begin(limits, now));
  EXPECT_TRUE(usage.begin(limits, now));
  now += seconds(3600);  // not more than one minute's worth
  for (int i = 0; i < 6; ++i) EXPECT_FALSE(usage.begin(limits, now));
  EXPECT_TRUE(usage.begin(limits, now));
}

TEST(KeyUsage, TokensAreADebtThatDelaysTheNextRequest) {
  KeyUsage usage;
  const KeyLimits limits{.requests_per_minute = 100, .tokens_per_minute = 60};
  auto now = KeyUsage::Clock::now();
  EXPECT_FALSE(usage.begin(limits, now));
  usage.add_tokens(150);
  const auto refused = usage.begin(limits, now);
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->retry_after_s, 91);  // 90 in debt, and one to spend
  EXPECT_EQ(usage.n_running(), 1);
  now += seconds(92);
  EXPECT_FALSE(usage.begin(limits, now));
}

TEST(KeyUsage, ARefusalCountsNothing) {
  KeyUsage usage;
  const KeyLimits limits{.max_concurrent = 1, .requests_per_minute = 2};
  const auto now = KeyUsage::Clock::now();
  EXPECT_FALSE(usage.begin(limits, now));
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(usage.begin(limits, now));
  usage.end();
  EXPECT_FALSE(usage.begin(limits, now));
}

TEST(Caller, SeesOnlyItsModules) {
  const auto registry = test_registry();
  Caller all{std::make_shared<const ApiKey>(make_key("a", "x"))};
  EXPECT_EQ(all.visible(registry), registry);
  EXPECT_EQ(Caller{}.visible(registry), registry);
  ApiKey some = make_key("a", "x");
  some.modules = {"formal", "team/*"};
  EXPECT_TRUE(some.may_use("team/x"));
  EXPECT_FALSE(some.may_use("team"));
  EXPECT_FALSE(some.may_use("teams/x"));
  EXPECT_FALSE(some.may_use("pirate"));
  const auto seen = Caller{std::make_shared<const ApiKey>(some)}.visible(registry);
  ASSERT_EQ(seen->modules.size(), 1U);
  EXPECT_EQ(seen->modules[0]->name, "formal");
  EXPECT_EQ(seen->base_names, registry->base_names);
  some.modules = std::vector<std::string>();
  EXPECT_TRUE(Caller{std::make_shared<const ApiKey>(some)}.visible(registry)->modules.empty());
  some.is_admin = true;
  EXPECT_TRUE(some.may_use("pirate"));
}

TEST(Secret, RandomKeysDiffer) {
  EXPECT_EQ(random_hex(16).size(), 32U);
  EXPECT_NE(random_hex(16), random_hex(16));
  EXPECT_TRUE(equal_in_constant_time("abc", "abc"));
  EXPECT_FALSE(equal_in_constant_time("abc", "abd"));
  EXPECT_FALSE(equal_in_constant_time("abc", "abcd"));
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

}  // namespace
}  // namespace graft::api
