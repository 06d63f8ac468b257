#include "modules/store/load_module.h"

#include <gtest/gtest.h>

#include <string>

#include "modules/adapter.h"

namespace graft {
namespace {

TEST(ModuleName, FollowsTheGrammar) {
  for (const char* name : {"a", "0", "pirate", "a.b_c-d", "team/pirate-2", "x9"}) {
    EXPECT_TRUE(check_module_name(name)) << name;
  }
  EXPECT_TRUE(check_module_name(std::string(64, 'a')));
  EXPECT_TRUE(check_module_name(std::string(64, 'a') + "/" + std::string(64, 'b')));
  for (const char* name : {"", "A", "-a", "a-", ".a", "a.", "a..b", "a,b", "a@b", "a:b", "a b",
                           "/a", "a/", "a/b/c", "..", "\xC3\xA4", "a\nb", "a/.."}) {
    EXPECT_FALSE(check_module_name(name)) << name;
  }
  EXPECT_FALSE(check_module_name(std::string(65, 'a')));
}

TEST(ModuleName, MessagesShowNoControlCharacters) {
  const Status status = check_module_name("a\x1b[2J" + std::string(10000, 'x'));
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().message.find('\x1b'), std::string::npos);
  EXPECT_LT(status.error().message.size(), 400U);
}

TEST(LoadModule, ErrorsNameModuleFileAndReason) {
  BaseModel base;
  base.architecture = "llama";
  base.modules_supported = true;
  const auto missing = load_module({"ghost", "/nowhere/at/all"}, base, Precision::kFile);
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  EXPECT_NE(missing.error().message.find("'ghost'"), std::string::npos);
  EXPECT_NE(missing.error().message.find("/nowhere/at/all"), std::string::npos);

  const std::string step2 = std::string(GRAFT_SOURCE_DIR) + "/tests/synthetic/adapters/step2";
  const auto wrong_base = load_module({"step2", step2}, base, Precision::kFile);
  ASSERT_FALSE(wrong_base);
  EXPECT_NE(wrong_base.error().message.find("'step2'"), std::string::npos);
  EXPECT_NE(wrong_base.error().message.find(step2), std::string::npos);

  EXPECT_FALSE(load_module({"Bad Name", step2}, base, Precision::kFile));
}

TEST(LoadModule, KeepsTheDescriptionWithoutFactorBytes) {
  BaseModel base;
  base.architecture = "llama";
  base.modules_supported = true;
  base.n_layers = 2;
  base.n_heads = 4;
  base.n_heads_kv = 4;
  const std::string step2 = std::string(GRAFT_SOURCE_DIR) + "/tests/synthetic/adapters/step2";
  base.n_embd = 128;
  // The one tensor that this adapter extends.
  base.tensors["blk.0.attn_output.weight"] = {{32, 128, 1, 1}};
  const auto loaded = load_module({"step2", step2}, base, Precision::kFile);
  ASSERT_TRUE(loaded) << loaded.error().message;
  const ModuleVersion& version = **loaded;
  EXPECT_EQ(version.name, "step2");
  EXPECT_EQ(version.path, step2);
  EXPECT_GT(version.created_unix_s, 0);
  EXPECT_EQ(version.description->factor_bytes(), 0U);
  EXPECT_EQ(version.description->terms.size(), version.resident->terms().size());
  EXPECT_EQ(version.description->digest, version.digest());
  EXPECT_GT(version.resident->arena_bytes(), 0U);
}

}  // namespace
}  // namespace graft
