#include "modules/module_version.h"

#include <gtest/gtest.h>

namespace graft {
namespace {

std::shared_ptr<const ModuleVersion> version(const std::string& digest) {
  auto adapter = std::make_shared<Adapter>();
  adapter->digest = digest;
  LoraTerm term;
  term.site = {SiteOp::kMatMul, "blk.0.attn_q.weight"};
  term.n_in = term.n_out = term.rank = 1;
  term.a = {FactorType::kF32, 1, 1, std::vector<std::byte>(4)};
  term.b = term.a;
  adapter->terms.push_back(term);
  auto result = std::make_shared<ModuleVersion>();
  result->resident = ResidentAdapter::pack(adapter, Precision::kFile).value();
  return result;
}

std::string print_of(std::vector<Attachment> attachments) {
  return fingerprint(AttachmentSet{std::move(attachments)});
}

TEST(Fingerprint, CoversDigestScalePositionAndOrder) {
  const auto a = version("aa");
  const auto b = version("bb");
  EXPECT_EQ(print_of({}), "");
  const std::string one = print_of({{a, 1.0F, 0}});
  EXPECT_EQ(one.size(), 64U);
  EXPECT_EQ(one, print_of({{version("aa"), 1.0F, 0}}));  // content counts, not the object
  EXPECT_NE(one, print_of({{b, 1.0F, 0}}));
  EXPECT_NE(one, print_of({{a, 0.5F, 0}}));
  EXPECT_NE(one, print_of({{a, 1.0F, 7}}));
  EXPECT_NE(one, print_of({{a, 1.0F, 0}, {a, 1.0F, 0}}));
  EXPECT_NE(print_of({{a, 1.0F, 0}, {b, 1.0F, 0}}), print_of({{b, 1.0F, 0}, {a, 1.0F, 0}}));
  EXPECT_EQ(print_of({{a, 0.0F, 0}}), print_of({{a, -0.0F, 0}}));
}

TEST(SiteOp, HasGgmlsNames) {
  EXPECT_STREQ(to_string(SiteOp::kMatMul), "MUL_MAT");
  EXPECT_STREQ(to_string(SiteOp::kMatMulId), "MUL_MAT_ID");
  EXPECT_STREQ(to_string(SiteOp::kGetRows), "GET_ROWS");
}

}  // namespace
}  // namespace graft
