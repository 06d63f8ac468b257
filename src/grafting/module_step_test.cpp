// Which term acts on which rows: groups by (adapter, scale) in an order of content alone, row
// spaces, start positions, scales of zero, and what is refused.
#include "grafting/module_step.h"

#include <ggml.h>
#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <utility>

#include "grafting/kernels/random_adapter.h"

namespace graft {
namespace {

constexpr std::int64_t kWidth = 32;

std::shared_ptr<const ResidentAdapter> make_adapter(const std::string& digest,
                                                    const std::vector<RandomTerm>& shapes) {
  RandomFactors factors(7);
  auto adapter = std::make_shared<Adapter>();
  adapter->digest = digest;
  for (const RandomTerm& shape : shapes) {
    adapter->terms.push_back(factors.term(FactorType::kF32, shape));
  }
  return ResidentAdapter::pack(std::move(adapter), Precision::kFile).value();
}

RandomTerm matmul(const char* tensor) { return {.tensor = tensor}; }

// The graph of a step of `n_tokens` rows, of which the last site sees the outputs only.
class Model {
 public:
  Model() {
    lookup = sites.add({{SiteOp::kGetRows, "token_embd.weight"}, kWidth, kWidth, 1, ""});
    middle = sites.add({{SiteOp::kMatMul, "blk.0.attn_q.weight"}, kWidth, kWidth, 1, ""});
    head = sites.add({{SiteOp::kMatMul, "output.weight"}, kWidth, kWidth, 1, ""});
    context_.reset(ggml_init(
        {.mem_size = 8 * ggml_tensor_overhead(), .mem_buffer = nullptr, .no_alloc = true}));
  }

  const GraphIndex& graph(std::int64_t n_tokens, std::int64_t n_outputs) {
    ggml_reset(context_.get());
    index_ = {};
    index_.positions = ggml_new_tensor_1d(context_.get(), GGML_TYPE_I32, n_tokens);
    index_.out_ids = ggml_new_tensor_1d(context_.get(), GGML_TYPE_I32, n_outputs);
    index_.sites = {{.site = lookup, .position = 0},
                    {.site = middle, .position = 1},
                    {.site = head, .position = 2, .rows = RowSpace::kOutputs}};
    return index_;
  }

  GraphIndex& last() { return index_; }

  SiteTable sites;
  std::int32_t lookup = -1;
  std::int32_t middle = -1;
  std::int32_t head = -1;

 private:
  struct Free {
    void operator()(ggml_context* context) const { ggml_free(context); }
  };
  std::unique_ptr<ggml_context, Free> context_;
  GraphIndex index_;
};

class ModuleStepTest : public testing::Test {
 protected:
  // Rows of one sequence each, with the set named; every second one is an output.
  StepPlan plan(const std::vector<std::int32_t>& sets) const {
    StepPlan plan;
    plan.sets = {
        {{a_.get(), 0.5F, 0}}, {{b_.get(), 1.0F, 0}}, {{b_.get(), 1.0F, 0}, {a_.get(), 0.5F, 3}}};
    for (std::size_t i = 0; i < sets.size(); ++i) {
      const auto at = static_cast<std::int32_t>(i);
      plan.rows.push_back({10 + at, at, at, i % 2 == 1, sets[i]});
    }
    return plan;
  }

  static std::vector<std::int32_t> y_rows(const LoraWork& work) {
    std::vector<std::int32_t> rows;
    for (const LoraItem& item : work.items) rows.push_back(item.y_row);
    return rows;
  }

  Model model_;
  const std::shared_ptr<const ResidentAdapter> a_ =
      make_adapter("aa", {matmul("blk.0.attn_q.weight"),
                          matmul("output.weight"),
                          {.op = SiteOp::kGetRows, .tensor = "token_embd.weight"}});
  const std::shared_ptr<const ResidentAdapter> b_ =
      make_adapter("bb", {matmul("blk.0.attn_q.weight")});
  ModuleStep step_{model_.sites};
};

using Rows = std::vector<std::int32_t>;

TEST_F(ModuleStepTest, RowsAreGroupedByAdapterAndScaleInOrderOfContent) {
  // Rows 1 and 2 have b before a in their set; the groups stand by digest all the same.
  EXPECT_FALSE(step_.update_groups(plan({1, 2, 0, 2, -1})));
  ASSERT_TRUE(step_.build_site_work(model_.graph(5, 2)));
  ASSERT_EQ(step_.groups().size(), 2U);
  EXPECT_EQ(step_.groups()[0].adapter, a_.get());
  ASSERT_EQ(step_.site_work().size(), 3U);

  const SiteWork& middle = step_.site_work()[1];
  ASSERT_EQ(middle.work.size(), 2U);
  EXPECT_EQ(y_rows(middle.work[0]), Rows({2, 3})) << "row 1 is before position 3";
  EXPECT_EQ(middle.work[0].scale, 0.5F);
  EXPECT_EQ(y_rows(middle.work[1]), Rows({0, 1, 3}));
}

TEST_F(ModuleStepTest, ARowOnWhichOneContentActsTwiceIsInTwoGroups) {
  StepPlan twice = plan({0, 1, 0, 1});
  twice.sets[1] = {{a_.get(), 0.5F, 0}, {a_.get(), 0.5F, 0}};
  EXPECT_FALSE(step_.update_groups(twice));
  ASSERT_TRUE(step_.build_site_work(model_.graph(4, 2)));
  const SiteWork& middle = step_.site_work()[1];
  ASSERT_EQ(middle.work.size(), 2U);
  std::multiset<Rows> rows = {y_rows(middle.work[0]), y_rows(middle.work[1])};
  EXPECT_EQ(rows, (std::multiset<Rows>{{0, 1, 2, 3}, {1, 3}}));
}

TEST_F(ModuleStepTest, SitesBehindTheDropSeeTheOutputsAndLookupsSeeTheTokens) {
  EXPECT_FALSE(step_.update_groups(plan({0, 0, -1, 0})));
  ASSERT_TRUE(step_.build_site_work(model_.graph(4, 2)));
  ASSERT_EQ(step_.site_work().size(), 3U);
  const SiteWork& lookup = step_.site_work()[0];
  EXPECT_EQ(lookup.work[0].items[2].x_row, 13) << "the token of row 3";
  EXPECT_EQ(y_rows(lookup.work[0]), Rows({0, 1, 3}));
  EXPECT_EQ(y_rows(step_.site_work()[2].work[0]), Rows({0, 1})) << "rows 1 and 3 of the batch";
}

TEST_F(ModuleStepTest, EqualRowsKeepTheWorkAndOnlyReplaceTheTokens) {
  EXPECT_FALSE(step_.update_groups(plan({0, 1})));
  ASSERT_TRUE(step_.build_site_work(model_.graph(2, 1)));
  StepPlan next = plan({0, 1});
  next.rows[0].token = 21;
  EXPECT_TRUE(step_.update_groups(next));
  EXPECT_EQ(step_.site_work()[0].work[0].items[0].x_row, 21);
  EXPECT_FALSE(step_.update_groups(plan({1, 0})));
}

TEST_F(ModuleStepTest, AForgottenAdapterIsNotTakenForTheSame) {
  EXPECT_FALSE(step_.update_groups(plan({0, 1})));
  step_.forget(a_.get());
  EXPECT_FALSE(step_.update_groups(plan({0, 1})));
}

TEST_F(ModuleStepTest, AScaleOfZeroAndTheBaseHaveNoGroups) {
  StepPlan nothing = plan({-1, 0});
  nothing.sets[0][0].scale = 0.0F;
  step_.update_groups(nothing);
  EXPECT_FALSE(step_.has_groups());
  ASSERT_TRUE(step_.build_site_work(model_.graph(2, 1)));
  EXPECT_TRUE(step_.site_work().empty());
}

TEST_F(ModuleStepTest, RowsThatAreNotProvenOrBeyondTheGraphAreRefused) {
  step_.update_groups(plan({0, 0, 0}));
  model_.graph(3, 1);
  model_.last().sites[1].rows_proven = false;
  const Status unproven = step_.build_site_work(model_.last());
  ASSERT_FALSE(unproven);
  EXPECT_NE(unproven.error().message.find("blk.0.attn_q.weight"), std::string::npos);
  EXPECT_TRUE(step_.build_site_work(model_.graph(3, 1)));
  EXPECT_FALSE(step_.build_site_work(model_.graph(2, 1))) << "row 2 is not in this graph";
  step_.update_groups(plan({0, 0, 0, 0}));
  EXPECT_FALSE(step_.build_site_work(model_.graph(4, 1))) << "neither is the second output";
}

TEST_F(ModuleStepTest, TermsNeedASiteOfTheirShape) {
  EXPECT_TRUE(ModuleStep::check_attachable(model_.sites, *a_));
  const auto refusal = [&](const RandomTerm& term) {
    const Status status = ModuleStep::check_attachable(model_.sites, *make_adapter("cc", {term}));
    return status ? std::string() : status.error().message;
  };
  EXPECT_NE(refusal(matmul("blk.9.attn_q.weight")).find("no site"), std::string::npos);
  EXPECT_NE(refusal({.n_in = 64, .tensor = "output.weight"}).find("64 -> 32"), std::string::npos);
  EXPECT_NE(refusal({.out_offset = 1, .tensor = "output.weight"}), "");
  EXPECT_NE(refusal({.n_experts = 2, .tensor = "output.weight"}), "");
  model_.sites.refuse(model_.head, "of a reason");
  EXPECT_NE(refusal(matmul("output.weight")).find("of a reason"), std::string::npos);
}

}  // namespace
}  // namespace graft
