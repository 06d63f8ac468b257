// The ops emitter (standard ggml operations) on the CPU: against the logits of transformers + PEFT
// in every golden case, against the fused emitter with many adapters in one batch, and what it must
// leave alone: rows without a module keep their bits.
#include <gtest/gtest.h>

#include "grafting/kernels/random_adapter.h"
#include "support/golden_cases.h"

namespace graft::testing {
namespace {

class OpsGolden : public ::testing::TestWithParam<GoldenCase> {};

TEST_P(OpsGolden, AgreesWithPeft) {
  constexpr auto kOps = EmitterKind::kOps;
  for (const GoldenPath& path :
       {GoldenPath{.name = "at once", .emitter = kOps},
        GoldenPath{.name = "plain attention", .our_attention = false, .emitter = kOps},
        GoldenPath{.name = "pieces beside the base", .chunk = 5, .company = true, .emitter = kOps},
        GoldenPath{.name = "token by token", .chunk = 1, .emitter = kOps}}) {
    EXPECT_LT(run_golden_case(GetParam(), path), kGoldenTolerance) << path.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, OpsGolden, ::testing::ValuesIn(read_golden_cases()),
                         golden_case_name);

using Logits = std::vector<std::vector<float>>;  // one per output row, in order
using AdapterScales = std::vector<std::pair<std::string, float>>;

constexpr int kPrompt = 6;
constexpr int kDecode = 3;

// Which adapters each sequence of a batch has; none: it runs on the base.
struct Mix {
  std::string model;
  std::vector<AdapterScales> sequences;
  std::map<std::string, std::shared_ptr<const ResidentAdapter>> made = {};  // not from files
};

Mix llama_mix() {
  return {"models/llama.gguf",
          {{},
           {{"adapters/llama_rank1", 1.0F}},
           {{"adapters/llama_rank3", 0.5F}},
           {{"adapters/llama_rank16", -0.7F}},
           {{"adapters/llama_bias", 1.0F}},
           {{"adapters/llama_embed", 1.0F}, {"adapters/llama_head", 0.8F}},
           {{"adapters/llama_linear", 1.0F}, {"adapters/llama_second", 0.2F}},
           {{"adapters/llama_rank3", 1.0F}}}};
}

Mix expert_mix() {
  return {"models/qwen3moe.gguf",
          {{},
           {{"adapters/qwen3moe_experts", 1.0F}},
           {{"adapters/qwen3moe_attention", 1.0F}},
           {{"adapters/qwen3moe_experts", 0.5F}, {"adapters/qwen3moe_attention", 0.3F}}}};
}

RawOptions options_of(EmitterKind emitter) {
  return {.n_ctx = 512,
          .n_batch = 64,
          .n_seqs = 8,
          .n_threads = 1,
          .emitter = emitter,
          .cache_type = GGML_TYPE_F32};
}

// The adapters of a mix in memory, and its batches: all prompts at once, then decode steps.
class MixRun {
 public:
  MixRun(const Mix& mix, Precision precision)
      : n_sequences_(mix.sequences.size()), adapters_(mix.made) {
    const Model& model = golden_model(mix.model);
    for (const AdapterScales& adapters : mix.sequences) {
      std::vector<PlannedAttachment>& set = sets_.emplace_back();
      for (const auto& [path, scale] : adapters) {
        std::shared_ptr<const ResidentAdapter>& adapter = adapters_[path];
        if (adapter == nullptr) adapter = golden_adapter(path, model, precision);
        set.push_back({adapter.get(), scale, 0});
      }
    }
  }

  // `with_modules` false: every sequence runs on the base.
  Logits run(RawContext& context, bool with_modules) const {
    context.clear();
    Logits logits;
    StepPlan plan;
    for (int position = 0, n = kPrompt; position < kPrompt + kDecode; position += n, n = 1) {
      plan.clear();
      if (with_modules) plan.sets = sets_;
      for (std::size_t s = 0; s < n_sequences_; ++s) {
        const bool has_module = with_modules && !sets_[s].empty();
        for (int i = position; i < position + n; ++i) {
          const auto sequence = static_cast<std::int32_t>(s);
          const TokenId token = (i * 7 + sequence * 13 + 3) % context.n_vocab();
          plan.rows.push_back({token, i, sequence, true, has_module ? sequence : -1});
        }
      }
      EXPECT_EQ(context.decode(plan), 0) << context.grafter().last_error();
      for (std::size_t i = 0; i < plan.rows.size(); ++i) {
        logits.push_back(context.logits(i));
        sequence_of_row_.push_back(plan.rows[i].sequence);
      }
    }
    return logits;
  }

  // Largest difference over the rows of one sequence.
  double difference(const Logits& a, const Logits& b, std::int32_t sequence) const {
    return differences(a, b, sequence).back();
  }
  double median_difference(const Logits& a, const Logits& b, std::int32_t sequence) const {
    const std::vector<double> of_rows = differences(a, b, sequence);
    return of_rows[of_rows.size() / 2];
  }

  std::int32_t n_sequences() const { return static_cast<std::int32_t>(n_sequences_); }
  const std::map<std::string, std::shared_ptr<const ResidentAdapter>>& adapters() const {
    return adapters_;
  }

 private:
  // Of each row of one sequence the largest difference, ascending.
  std::vector<double> differences(const Logits& a, const Logits& b, std::int32_t sequence) const {
    std::vector<double> of_rows;
    for (std::size_t i = 0; i < a.size(); ++i) {
      if (sequence_of_row_[i] == sequence) of_rows.push_back(largest_difference(a[i], b[i]));
    }
    std::sort(of_rows.begin(), of_rows.end());
    return of_rows;
  }

  std::size_t n_sequences_;
  std::map<std::string, std::shared_ptr<const ResidentAdapter>> adapters_;
  std::vector<std::vector<PlannedAttachment>> sets_;
  mutable std::vector<std::int32_t> sequence_of_row_;  // the same in every run
};

Logits run_alone(const Mix& mix, const MixRun& run, EmitterKind emitter, bool with_modules) {
  RawContext context(golden_model(mix.model).handle(), options_of(emitter));
  return run.run(context, with_modules);
}

enum class Judged { kWorstRow, kMedianRow };

// `tolerance` is relative to what the module changes at all. With F32 factors the two differ by
// rounding; for F16 and Q8_0 ggml's matmul also converts x to the type of its kernel.
void expect_agreement(const Mix& mix, Precision precision, double tolerance,
                      Judged judged = Judged::kWorstRow) {
  const MixRun run(mix, precision);
  const Logits base = run_alone(mix, run, EmitterKind::kFused, false);
  const Logits fused = run_alone(mix, run, EmitterKind::kFused, true);
  const Logits ops = run_alone(mix, run, EmitterKind::kOps, true);
  for (std::int32_t s = 0; s < run.n_sequences(); ++s) {
    if (mix.sequences[static_cast<std::size_t>(s)].empty()) {
      EXPECT_EQ(run.difference(fused, ops, s), 0) << "sequence " << s << " on the base";
      continue;
    }
    const double effect = run.difference(fused, base, s);
    EXPECT_GT(effect, 0.01) << "sequence " << s;
    const double difference = judged == Judged::kWorstRow ? run.difference(fused, ops, s)
                                                          : run.median_difference(fused, ops, s);
    EXPECT_LT(difference, tolerance * effect) << "sequence " << s;
  }
}

TEST(Ops, AgreesWithFusedInAMixedBatch) {
  expect_agreement(llama_mix(), Precision::kFile, 1e-5);
  expect_agreement(llama_mix(), Precision::kF16, 5e-3);
  expect_agreement(llama_mix(), Precision::kQ8_0, 0.1);
}

TEST(Ops, AgreesWithFusedAtExperts) {
  expect_agreement(expert_mix(), Precision::kFile, 1e-5);
  expect_agreement(expert_mix(), Precision::kF16, 5e-3);
  // That ggml rounds x to q8_0 can send a row to other experts, and then changes it by anything.
  expect_agreement(expert_mix(), Precision::kQ8_0, 0.05, Judged::kMedianRow);
}

RandomTerm term_at(const Model& model, SiteOp op, const std::string& tensor, std::int64_t rank) {
  const BaseTensor* weight = model.base().find(tensor);
  if (weight == nullptr) throw std::runtime_error("no tensor " + tensor);
  const bool is_lookup = op == SiteOp::kGetRows;
  return {.n_in = weight->ne[is_lookup ? 1 : 0],
          .n_out = weight->ne[is_lookup ? 0 : 1],
          .rank = rank,
          .n_experts = op == SiteOp::kMatMulId ? weight->ne[2] : 1,
          .op = op,
          .tensor = tensor};
}

// A term that acts on the last columns of its site only, with a bias.
RandomTerm last_columns(RandomTerm term, std::int64_t n_columns) {
  term.out_offset = term.n_out - n_columns;
  term.n_out = n_columns;
  term.bias = true;
  return term;
}

Mix random_mix(const std::string& path, ResidentType type, const std::vector<RandomTerm>& terms) {
  return {path,
          {{}, {{"random", 0.3F}}, {{"random", -0.2F}}, {}},
          {{"random", random_adapter(type, terms, 11)}}};
}

TEST(Ops, AgreesWithFusedOnPartsOfASite) {
  const std::string path = "models/llama.gguf";
  const Model& model = golden_model(path);
  const std::vector<RandomTerm> terms = {
      last_columns(term_at(model, SiteOp::kGetRows, "token_embd.weight", 4), 24),
      term_at(model, SiteOp::kMatMul, "blk.0.attn_q.weight", 2),
      last_columns(term_at(model, SiteOp::kMatMul, "blk.0.attn_q.weight", 3), 32),
      last_columns(term_at(model, SiteOp::kMatMul, "blk.1.ffn_up.weight", 33), 7),
      last_columns(term_at(model, SiteOp::kMatMul, "output.weight", 1), 100)};
  expect_agreement(random_mix(path, ResidentType::kF32, terms), Precision::kFile, 1e-5);
  expect_agreement(random_mix(path, ResidentType::kBF16, terms), Precision::kFile, 0.1);
}

TEST(Ops, AgreesWithFusedOnPartsOfExperts) {
  const std::string path = "models/qwen3moe.gguf";
  const Model& model = golden_model(path);
  const std::vector<RandomTerm> terms = {
      last_columns(term_at(model, SiteOp::kMatMulId, "blk.0.ffn_gate_exps.weight", 3), 10),
      term_at(model, SiteOp::kMatMulId, "blk.1.ffn_up_exps.weight", 5),
      last_columns(term_at(model, SiteOp::kMatMulId, "blk.1.ffn_down_exps.weight", 2), 32)};
  expect_agreement(random_mix(path, ResidentType::kF32, terms), Precision::kFile, 1e-5);
  expect_agreement(random_mix(path, ResidentType::kBF16, terms), Precision::kFile, 0.1);
}

TEST(Ops, RowsOfTheBaseKeepTheirBits) {
  const Mix mix = llama_mix();
  const MixRun run(mix, Precision::kF16);
  const Logits base = run_alone(mix, run, EmitterKind::kOps, false);
  const Logits mixed = run_alone(mix, run, EmitterKind::kOps, true);
  EXPECT_EQ(run.difference(base, mixed, 0), 0);
  EXPECT_GT(run.difference(base, mixed, 1), 0.01);
}

TEST(Ops, StepsWithoutModulesHaveNoNodesOfOurs) {
  const Mix mix = llama_mix();
  const MixRun run(mix, Precision::kFile);
  RawContext context(golden_model(mix.model).handle(), options_of(EmitterKind::kOps));
  const Logits base = run.run(context, false);
  EXPECT_EQ(context.grafter().stats().n_module_nodes, 0);
  run.run(context, true);
  EXPECT_GT(context.grafter().stats().n_module_nodes, 0);
  const Logits again = run.run(context, false);
  EXPECT_EQ(context.grafter().stats().n_module_nodes, 0);
  EXPECT_EQ(again, base);
}

// The factors of an adapter that is gone must not serve another one at its address.
TEST(Ops, ForgottenAdaptersAreUploadedAnew) {
  const Mix first{"models/llama.gguf", {{}, {{"adapters/llama_linear", 1.0F}}}};
  const Mix second{"models/llama.gguf", {{}, {{"adapters/llama_second", 1.0F}}}};
  RawContext context(golden_model(first.model).handle(), options_of(EmitterKind::kOps));
  for (int round = 0; round < 4; ++round) {
    const Mix& mix = round % 2 == 0 ? first : second;
    const MixRun run(mix, Precision::kFile);
    const Logits reused = run.run(context, true);
    EXPECT_EQ(reused, run_alone(mix, run, EmitterKind::kOps, true)) << "round " << round;
    for (const auto& [path, adapter] : run.adapters()) context.grafter().forget(adapter.get());
  }
}

TEST(Ops, DeterministicStepsRefuseModules) {
  const Mix mix = llama_mix();
  const MixRun run(mix, Precision::kFile);
  RawOptions options = options_of(EmitterKind::kOps);
  options.deterministic = true;
  RawContext context(golden_model(mix.model).handle(), options);
  run.run(context, false);
  StepPlan plan;
  plan.sets = {{{run.adapters().begin()->second.get(), 1.0F, 0}}};
  plan.rows.push_back({1, 0, 7, true, 0});
  context.clear();
  EXPECT_NE(context.decode(plan), 0);
  EXPECT_NE(context.grafter().last_error().find("standard operations"), std::string::npos)
      << context.grafter().last_error();
}

}  // namespace
}  // namespace graft::testing
