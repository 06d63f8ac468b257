#include "api/module_choice.h"

#include <gtest/gtest.h>

#include "api/testing/scripted_generation.h"

namespace graft::api {
namespace {

std::string name_of_path(const std::string& target, const std::string& method = "POST") {
  auto found = find_route(method, target);
  const auto* match = std::get_if<RouteMatch>(&found);
  return match == nullptr ? "none" : match->module + "|" + std::string(match->route->path);
}

TEST(ModuleHeader, ListsNamesWithScales) {
  const auto choices = parse_module_header(" a*0.5 ,team/b@0123,c * -1e1");
  ASSERT_TRUE(choices);
  ASSERT_EQ(choices->size(), 3U);
  EXPECT_EQ((*choices)[0].name, "a");
  EXPECT_EQ((*choices)[0].scale, 0.5F);
  EXPECT_EQ((*choices)[1].name, "team/b@0123");
  EXPECT_EQ((*choices)[1].scale, 1.0F);
  EXPECT_EQ((*choices)[2].scale, -10.0F);
}

TEST(ModuleHeader, RefusesWhatIsNoList) {
  for (const char* value : {"", " ", ",", "a,", ",a", "a,,b", "*1", "a*", "a*x", "a*1x", "a*1*2",
                            "a*0x10", "a*1e999"}) {
    const auto choices = parse_module_header(value);
    ASSERT_FALSE(choices) << value;
    EXPECT_EQ(choices.error().param, kModuleHeader);
  }
  EXPECT_FALSE(parse_module_header(std::string(513, 'a')));
  std::string many = "a";
  for (int i = 0; i < 63; ++i) many += ",a";
  EXPECT_TRUE(parse_module_header(many));
  EXPECT_FALSE(parse_module_header(many + ",a"));
}

TEST(ModulePath, OneOrTwoPartsBeforeV1) {
  EXPECT_EQ(name_of_path("/m/a/v1/completions"), "a|/v1/completions");
  EXPECT_EQ(name_of_path("/m/team/task/v1/completions?x=1"), "team/task|/v1/completions");
  EXPECT_EQ(name_of_path("/m/v1/v1/completions"), "v1|/v1/completions");
  EXPECT_EQ(name_of_path("/m/v1/task/v1/completions"), "v1/task|/v1/completions");
  EXPECT_EQ(name_of_path("/m/team/v1/v1/completions"), "team/v1|/v1/completions");
  EXPECT_EQ(name_of_path("/m/a%40beef/v1/completions"), "a@beef|/v1/completions");
  EXPECT_EQ(name_of_path("/m/a/v1/models/b", "GET"), "a|/v1/models/*");
  EXPECT_EQ(name_of_path("/v1/completions"), "|/v1/completions");
}

TEST(ModulePath, RefusesTheRest) {
  for (const char* target :
       {"/m/", "/m//v1/completions", "/m/a", "/m/a/", "/m/a/v1", "/m/a/v1/", "/m/a/v1/nothing",
        "/m/a/completions", "/m/a/b/c/v1/completions", "/m/a%2Fb/v1/completions",
        "/m/a%00/v1/completions", "/m/%C0%AF/v1/completions", "/m/a//v1/completions",
        "/m/a/v1/../v1/completions", "/m/m/a/v1/x", "/M/a/v1/completions"}) {
    EXPECT_EQ(name_of_path(target), "none") << target;
  }
}

class WishesTest : public testing::Test {
 protected:
  // The modules as "name*scale ...", or "error PARAM".
  std::string chosen(const std::string& model, std::vector<ModuleChoice> list,
                     const std::string& header, const std::string& path) {
    const auto resolution = resolve_wishes(*registry_, {model, list, header, path});
    if (!resolution) return "error " + resolution.error().param;
    std::string text;
    for (const Attachment& attachment : resolution->attachments.attachments) {
      text += attachment.module->name + "*" + std::to_string(attachment.scale).substr(0, 3) + " ";
    }
    return text;
  }

  std::shared_ptr<const RegistrySnapshot> registry_ = test_registry();
};

TEST_F(WishesTest, EachPlaceAlone) {
  EXPECT_EQ(chosen("", {}, "", ""), "");
  EXPECT_EQ(chosen("pirate", {}, "", ""), "pirate*1.0 ");
  EXPECT_EQ(chosen("base", {{"formal", {}, 0.5F}}, "", ""), "formal*0.5 ");
  EXPECT_EQ(chosen("base", {}, "formal*0.5,pirate", ""), "formal*0.5 pirate*1.0 ");
  EXPECT_EQ(chosen("", {}, "", "base:pirate"), "pirate*1.0 ");
  EXPECT_EQ(chosen("", {}, "", "tiny"), "");
}

TEST_F(WishesTest, SeveralPlacesMustAgree) {
  EXPECT_EQ(chosen("pirate", {}, "pirate", "pirate"), "pirate*1.0 ");
  EXPECT_EQ(chosen("", {{"pirate", {}, 1.0F}}, "pirate@aaaa", ""), "pirate*1.0 ");
  EXPECT_EQ(chosen("pirate", {}, "pirate*0.5", ""), "error x-graft-module");
  EXPECT_EQ(chosen("", {}, "formal", "pirate"), "error path");
  EXPECT_EQ(chosen("formal", {}, "", "pirate"), "error path");
  EXPECT_EQ(chosen("pirate", {}, "", "base"), "error path");
  EXPECT_EQ(chosen("", {{"formal", {}, 1.0F}, {"pirate", {}, 1.0F}}, "pirate,formal", ""),
            "error x-graft-module")
      << "order matters";
  EXPECT_EQ(chosen("", {{"pirate", {}, 0.0F}}, "pirate", ""), "error x-graft-module");
}

TEST_F(WishesTest, UnknownNamesAreErrorsEverywhere) {
  EXPECT_EQ(chosen("gpt-4", {}, "", "pirate"), "error model");
  EXPECT_EQ(chosen("", {}, "ghost", ""), "error x-graft-module");
  EXPECT_EQ(chosen("", {}, "", "ghost"), "error path");
  EXPECT_EQ(chosen("", {}, "pirate*101", ""), "error x-graft-module");
  EXPECT_EQ(chosen("", {}, "pirate,pirate", ""), "error x-graft-module");
}

TEST_F(WishesTest, DefaultsGiveWayToAnyChoice) {
  auto registry = std::make_shared<RegistrySnapshot>(*registry_);
  registry->default_attachments.attachments.push_back({registry->modules[0], 0.5F});
  registry_ = registry;
  EXPECT_EQ(chosen("", {}, "", ""), "pirate*0.5 ");
  EXPECT_EQ(chosen("base", {}, "", ""), "pirate*0.5 ");
  EXPECT_EQ(chosen("", {}, "formal", ""), "formal*1.0 ");
  EXPECT_EQ(chosen("", {}, "", "base"), "");
  EXPECT_EQ(chosen("formal", {}, "formal", ""), "formal*1.0 ");
}

}  // namespace
}  // namespace graft::api
