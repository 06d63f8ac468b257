#include "router/resolve.h"

#include <gtest/gtest.h>

#include <limits>

#include "router/near_names.h"

namespace graft {
namespace {

std::shared_ptr<const ModuleVersion> module_version(std::string name, char digit, std::int64_t id) {
  auto adapter = std::make_shared<Adapter>();
  adapter->digest = std::string(64, digit);
  auto version = std::make_shared<ModuleVersion>();
  version->name = std::move(name);
  version->id = id;
  version->description = std::move(adapter);
  return version;
}

class ResolveTest : public testing::Test {
 protected:
  ResolveTest() {
    registry_.base_names = {"SmolLM2", "base"};
    registry_.modules = {module_version("pirate", 'a', 0), module_version("team/formal", 'b', 1)};
  }

  Result<Resolution> by_model(const std::string& model) { return resolve(registry_, model, {}); }
  Result<Resolution> by_list(std::vector<ModuleChoice> choices, const std::string& model = "base") {
    return resolve(registry_, model, choices);
  }

  RegistrySnapshot registry_;
};

TEST_F(ResolveTest, BaseNamesAttachNothing) {
  for (const char* name : {"base", "SmolLM2", ""}) {
    const auto result = by_model(name);
    ASSERT_TRUE(result) << name;
    EXPECT_TRUE(result->attachments.empty());
  }
  EXPECT_EQ(by_model("")->model, "SmolLM2");
  EXPECT_EQ(by_model("base")->model, "base");
}

TEST_F(ResolveTest, EveryFormOfAModuleNameAttachesIt) {
  for (const char* name : {"pirate", "pirate@aaaa", "base:pirate", "SmolLM2:pirate",
                           "base:pirate@aaaaaaaaaaaa", "team/formal", "base:team/formal"}) {
    const auto result = by_model(name);
    ASSERT_TRUE(result) << name << ": " << result.error().message;
    ASSERT_EQ(result->attachments.attachments.size(), 1U);
    EXPECT_EQ(result->attachments.attachments[0].scale, 1.0F);
    EXPECT_EQ(result->model, name);
  }
}

TEST_F(ResolveTest, TheNameInsideAReference) {
  for (const char* reference : {"new", "new@abcd", "base:new", "SmolLM2:new@abcd1234"}) {
    EXPECT_EQ(module_name_in(registry_, reference), "new") << reference;
  }
  EXPECT_EQ(module_name_in(registry_, "team/new@abcd"), "team/new");
  EXPECT_EQ(module_name_in(registry_, "base"), "");
  EXPECT_EQ(module_name_in(registry_, ""), "");
}

TEST_F(ResolveTest, UnknownNamesAreNeverTheBase) {
  for (const char* name : {"pirat", "Pirate", "pirate@bbbb", "pirate@", "pirate@aa", "pirate@AAAA",
                           "other:pirate", "base:", ":pirate", "base:base", "@aaaa", " base"}) {
    const auto result = by_model(name);
    ASSERT_FALSE(result) << name;
    EXPECT_EQ(result.error().code, ErrorCode::kNotFound);
    EXPECT_EQ(result.error().param, "model");
  }
  EXPECT_NE(by_model("pirat").error().message.find("'pirate'"), std::string::npos);
}

TEST_F(ResolveTest, ListsKeepOrderAndScale) {
  const auto result = by_list({{"team/formal", {}, 0.5F}, {"pirate", {}, -2.0F}});
  ASSERT_TRUE(result);
  const auto& attachments = result->attachments.attachments;
  ASSERT_EQ(attachments.size(), 2U);
  EXPECT_EQ(attachments[0].module->name, "team/formal");
  EXPECT_EQ(attachments[0].scale, 0.5F);
  EXPECT_EQ(attachments[1].scale, -2.0F);
}

TEST_F(ResolveTest, ScaleZeroDetaches) {
  const auto result = by_list({{"pirate", {}, 0.0F}});
  ASSERT_TRUE(result);
  EXPECT_TRUE(result->attachments.empty());
}

TEST_F(ResolveTest, IdsKeepTheirMeaningWhenAModuleGoes) {
  registry_.modules.erase(registry_.modules.begin());
  const auto result = by_list({{"", 1, 0.5F}});
  ASSERT_TRUE(result);
  EXPECT_EQ(result->attachments.attachments[0].module->name, "team/formal");
  const auto gone = by_list({{"", 0, 1.0F}});
  ASSERT_FALSE(gone);
  EXPECT_EQ(gone.error().message, "There is no module with id 0; there are: 1.");
  registry_.modules.push_back(module_version("unregistered", 'c', -1));
  EXPECT_FALSE(by_list({{"", -1, 1.0F}}));
}

TEST_F(ResolveTest, DefaultsActWhereNoModuleIsNamed) {
  registry_.default_attachments.attachments.push_back({registry_.modules[0], 0.25F});
  for (const char* name : {"", "base"}) {
    const auto result = by_model(name);
    ASSERT_TRUE(result);
    ASSERT_EQ(result->attachments.attachments.size(), 1U);
    EXPECT_EQ(result->attachments.attachments[0].scale, 0.25F);
  }
  EXPECT_EQ(by_model("team/formal")->attachments.attachments.size(), 1U);
  EXPECT_EQ(by_model("team/formal")->attachments.attachments[0].scale, 1.0F);
  EXPECT_TRUE(by_list({{"pirate", {}, 0.0F}})->attachments.empty());
}

TEST_F(ResolveTest, IdsChoose) {
  const auto result = by_list({{"", 1, 0.5F}});
  ASSERT_TRUE(result);
  EXPECT_EQ(result->attachments.attachments[0].module->name, "team/formal");
  for (const std::int64_t id :
       {std::int64_t{-1}, std::int64_t{2}, std::numeric_limits<std::int64_t>::max(),
        std::numeric_limits<std::int64_t>::min()}) {
    EXPECT_EQ(by_list({{"", id, 1.0F}}).error().code, ErrorCode::kNotFound) << id;
  }
}

TEST_F(ResolveTest, BadListsAreRefused) {
  EXPECT_EQ(by_list({{"pirate", {}, 1.0F}, {"pirate@aaaa", {}, 1.0F}}).error().code,
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(by_list({{"pirate", {}, 0.0F}, {"pirate", {}, 1.0F}}).error().code,
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(by_list({{"pirate", {}, 100.5F}}).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(by_list({{"pirate", {}, std::numeric_limits<float>::quiet_NaN()}}).error().code,
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(by_list({{"base", {}, 1.0F}}).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(by_list({{"pirate", {}, 1.0F}}, "team/formal").error().code,
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(by_list({{"pirate", {}, 1.0F}}, "nothing").error().code, ErrorCode::kNotFound);
  EXPECT_EQ(by_list({{"pirate", {}, 1.0F}, {"pirat", {}, 1.0F}}).error().param, "modules[1]");
}

TEST(NearNames, EditDistance) {
  EXPECT_EQ(edit_distance("", "abc"), 3U);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
  EXPECT_EQ(edit_distance("same", "same"), 0U);
}

TEST(NearNames, NearestFirstAndBounded) {
  const std::vector<std::string> known = {"alpha", "alpine", "beta", "alpha-two", "alphb"};
  EXPECT_EQ(near_names("alpha", {"zzz"}), std::vector<std::string>{});
  EXPECT_EQ(near_names("alphx", known).size(), 2U);
  EXPECT_EQ(near_names("alphx", known)[0], "alpha");
  EXPECT_TRUE(near_names(std::string(1000, 'a'), known).empty());
  EXPECT_TRUE(near_names("q", known).empty());
}

}  // namespace
}  // namespace graft
