// Our modules against libllama's own LoRA, on the real model: the same GGUF files, written here,
// are read by our reader and by libllama. Ours computes a batch of eight sequences with an adapter
// each; libllama computes one sequence at a time. On F32 weights with F32 keys and values the two
// agree within 5e-4 (design section 11). On Q8_0 rounding alone moves logits by about 1, so the
// measure is how far libllama itself moves when a scale changes in its last bits.
#include <ggml.h>
#include <gguf.h>
#include <gtest/gtest.h>
#include <llama.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <random>

#include "engine/model.h"
#include "modules/formats/read_adapter.h"
#include "modules/residency/resident_adapter.h"
#include "support/raw_context.h"

namespace graft::testing {
namespace {

constexpr double kTolerance = 5e-4;
// Ours against libllama is one rounding against another, as the floor is; the larger of two maxima
// over some dozens of outputs may be this much above the other.
constexpr double kFloorFactor = 1.5;
constexpr int kSequences = 8;
constexpr int kDecode = 3;

struct LoraSpec {
  std::uint32_t seed = 1;
  std::int64_t rank = 8;
  float alpha = 16.0F;
};

// Mixed ranks, and an alpha that the scale alpha / rank must follow.
constexpr LoraSpec kSpecs[kSequences] = {{1, 2, 4.0F},  {2, 16, 16.0F}, {3, 5, 10.0F},
                                         {4, 8, 4.0F},  {5, 1, 3.0F},   {6, 12, 12.0F},
                                         {7, 4, 10.0F}, {8, 10, 10.0F}};
constexpr float kScales[kSequences] = {1.0F, 0.5F, 1.25F, 0.8F, -0.7F, 1.0F, 0.3F, 1.5F};

struct FreeGgml {
  void operator()(ggml_context* context) const { ggml_free(context); }
  void operator()(gguf_context* context) const { gguf_free(context); }
};

// How factors are stored. kRounded: in F32, the values that kF16 has.
enum class Factors { kF32, kF16, kRounded };

struct FactorShape {
  std::int64_t n_cols = 0;
  std::int64_t n_rows = 0;
  float deviation = 0;
};

// Uniform values with the given standard deviation; the same on every machine.
void add_factor(ggml_context* tensors, gguf_context* file, const std::string& name,
                const FactorShape& shape, Factors factors, std::mt19937& random) {
  ggml_tensor* tensor =
      ggml_new_tensor_2d(tensors, factors == Factors::kF16 ? GGML_TYPE_F16 : GGML_TYPE_F32,
                         shape.n_cols, shape.n_rows);
  ggml_set_name(tensor, name.c_str());
  const float half_width = shape.deviation * std::sqrt(3.0F);
  for (std::int64_t i = 0; i < shape.n_cols * shape.n_rows; ++i) {
    const float value = half_width * (static_cast<float>(random() >> 8U) * 0x1p-23F - 1.0F);
    const ggml_fp16_t half = ggml_fp32_to_fp16(value);
    if (factors == Factors::kF16) {
      static_cast<ggml_fp16_t*>(tensor->data)[i] = half;
    } else {
      static_cast<float*>(tensor->data)[i] =
          factors == Factors::kF32 ? value : ggml_fp16_to_fp32(half);
    }
  }
  gguf_add_tensor(file, tensor);
}

void write_lora(const std::string& path, const BaseModel& base, const LoraSpec& spec,
                Factors factors) {
  constexpr const char* kProjections[] = {"attn_q",   "attn_k", "attn_v",  "attn_output",
                                          "ffn_gate", "ffn_up", "ffn_down"};
  std::size_t n_bytes = 1 << 20;
  for (const char* projection : kProjections) {
    const BaseTensor* weight = base.find("blk.0." + std::string(projection) + ".weight");
    ASSERT_NE(weight, nullptr) << projection;
    n_bytes += static_cast<std::size_t>(base.n_layers) *
               (static_cast<std::size_t>(spec.rank * (weight->ne[0] + weight->ne[1])) * 4 +
                2 * ggml_tensor_overhead() + 128);
  }
  const std::unique_ptr<ggml_context, FreeGgml> tensors(
      ggml_init({.mem_size = n_bytes, .mem_buffer = nullptr, .no_alloc = false}));
  const std::unique_ptr<gguf_context, FreeGgml> file(gguf_init_empty());
  gguf_set_val_str(file.get(), "general.type", "adapter");
  gguf_set_val_str(file.get(), "general.architecture", base.architecture.c_str());
  gguf_set_val_str(file.get(), "adapter.type", "lora");
  gguf_set_val_f32(file.get(), "adapter.lora.alpha", spec.alpha);
  std::mt19937 random(spec.seed);
  for (std::int64_t layer = 0; layer < base.n_layers; ++layer) {
    for (const char* projection : kProjections) {
      const std::string name = "blk." + std::to_string(layer) + "." + projection + ".weight";
      const BaseTensor* weight = base.find(name);
      ASSERT_NE(weight, nullptr) << name;
      const float a_deviation = 1.0F / std::sqrt(static_cast<float>(weight->ne[0]));
      add_factor(tensors.get(), file.get(), name + ".lora_a",
                 {weight->ne[0], spec.rank, a_deviation}, factors, random);
      add_factor(tensors.get(), file.get(), name + ".lora_b", {spec.rank, weight->ne[1], 0.1F},
                 factors, random);
    }
  }
  ASSERT_TRUE(gguf_write_to_file(file.get(), path.c_str(), false)) << path;
}

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = ::testing::TempDir() + "/graft-parity-XXXXXX";
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot make " + name);
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  std::string file(int i) const { return path_ + "/adapter-" + std::to_string(i) + ".gguf"; }

 private:
  std::string path_;
};

// What acts on one sequence: indexes into kSpecs, with scales.
using Set = std::vector<std::pair<int, float>>;
using Logits = std::vector<std::vector<float>>;  // last prompt token, then each decode step

std::vector<Set> one_adapter_each(float factor = 1.0F) {
  std::vector<Set> sets;
  for (int i = 0; i < kSequences; ++i) sets.push_back({{i, factor * kScales[i]}});
  return sets;
}

// A model and the adapters, loaded by both sides from files of the same values.
class BothSides {
 public:
  explicit BothSides(const std::string& model_file, Factors ours = Factors::kF32,
                     Factors theirs = Factors::kF32) {
    auto model = Model::load({.path = cached_model(model_file)});
    if (!model) throw std::runtime_error(model.error().message);
    model_ = std::move(model).value();
    const TemporaryFolder folder;
    for (int i = 0; i < kSequences; ++i) {
      write_lora(folder.file(i), model_->base(), kSpecs[i], ours);
      ours_.push_back(read_ours(folder.file(i)));
      write_lora(folder.file(i), model_->base(), kSpecs[i], theirs);
      // Before any context exists: libllama sizes its graphs for the adapters it knows.
      theirs_.push_back(llama_adapter_lora_init(model_->handle(), folder.file(i).c_str()));
      if (theirs_.back() == nullptr) throw std::runtime_error("libllama refuses the adapter");
    }
  }

  RawContext context(const RawOptions& options) const { return {model_->handle(), options}; }

  // All sequences in one batch, prompts of different lengths in one step, then steps of one row
  // each.
  std::vector<Logits> run_ours(RawContext& context, const std::vector<Set>& sets) const {
    context.clear();
    std::vector<Logits> result(sets.size());
    for (int step = 0; step <= kDecode; ++step) {
      StepPlan plan;
      std::vector<std::size_t> outputs;
      for (std::size_t s = 0; s < sets.size(); ++s) {
        const int set = add_set(plan, sets[s]);
        const int sequence = static_cast<int>(s);
        const int end = prompt_length(sequence) + step;
        for (int p = step == 0 ? 0 : end - 1; p < end; ++p) {
          plan.rows.push_back(
              {token_at(p, sequence, context.n_vocab()), p, sequence, p + 1 == end, set});
        }
        outputs.push_back(plan.rows.size() - 1);
      }
      EXPECT_EQ(context.decode(plan), 0) << context.grafter().last_error();
      EXPECT_GT(context.grafter().stats().n_module_nodes, 0);
      for (std::size_t s = 0; s < sets.size(); ++s) {
        result[s].push_back(context.logits(outputs[s]));
      }
    }
    return result;
  }

  // One sequence alone with libllama's LoRA; the prompt in pieces of `chunk` tokens.
  Logits run_theirs(RawContext& context, int sequence, const Set& set, int chunk) const {
    context.clear();
    std::vector<llama_adapter_lora*> adapters;
    std::vector<float> scales;
    for (const auto& [index, scale] : set) {
      adapters.push_back(theirs_[static_cast<std::size_t>(index)]);
      scales.push_back(scale);
    }
    EXPECT_EQ(
        llama_set_adapters_lora(context.get(), adapters.data(), adapters.size(), scales.data()), 0);
    Logits result;
    const int n_prompt = prompt_length(sequence);
    for (int position = 0; position < n_prompt + kDecode;) {
      StepPlan plan;
      const int end = position < n_prompt ? std::min(position + chunk, n_prompt) : position + 1;
      for (; position < end; ++position) {
        plan.rows.push_back({token_at(position, sequence, context.n_vocab()), position, 0,
                             position + 1 >= n_prompt, -1});
      }
      EXPECT_EQ(context.decode(plan), 0);
      if (end >= n_prompt) result.push_back(context.logits(plan.rows.size() - 1));
    }
    return result;
  }

  std::vector<Logits> run_theirs(RawContext& context, const std::vector<Set>& sets,
                                 int chunk) const {
    std::vector<Logits> result;
    for (std::size_t s = 0; s < sets.size(); ++s) {
      result.push_back(run_theirs(context, static_cast<int>(s), sets[s], chunk));
    }
    return result;
  }

 private:
  static int prompt_length(int sequence) { return 9 + sequence; }
  static TokenId token_at(int position, int sequence, int n_vocab) {
    return (position * 37 + 11 * sequence + 5) % n_vocab;
  }

  std::shared_ptr<const ResidentAdapter> read_ours(const std::string& path) const {
    auto adapter = read_adapter(path, model_->base());
    if (!adapter) throw std::runtime_error(adapter.error().message);
    auto resident = ResidentAdapter::pack(std::move(adapter).value(), Precision::kFile);
    if (!resident) throw std::runtime_error(resident.error().message);
    return std::move(resident).value();
  }

  int add_set(StepPlan& plan, const Set& set) const {
    if (set.empty()) return -1;
    std::vector<PlannedAttachment> attachments;
    for (const auto& [index, scale] : set) {
      attachments.push_back({ours_[static_cast<std::size_t>(index)].get(), scale, 0});
    }
    plan.sets.push_back(std::move(attachments));
    return static_cast<int>(plan.sets.size()) - 1;
  }

  std::unique_ptr<Model> model_;
  std::vector<std::shared_ptr<const ResidentAdapter>> ours_;
  std::vector<llama_adapter_lora*> theirs_;  // owned by the model
};

double difference(const Logits& a, const Logits& b) {
  double worst = a.size() == b.size() ? 0.0 : 1e30;
  for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) {
    worst = std::max(worst, largest_difference(a[i], b[i]));
  }
  return worst;
}

double difference(const std::vector<Logits>& a, const std::vector<Logits>& b) {
  double worst = a.size() == b.size() ? 0.0 : 1e30;
  for (std::size_t s = 0; s < a.size() && s < b.size(); ++s) {
    worst = std::max(worst, difference(a[s], b[s]));
  }
  return worst;
}

constexpr int kWhole = 64;  // a prompt in one piece

constexpr RawOptions kPlainF32{.n_ctx = 512,
                               .n_batch = 128,
                               .n_threads = 1,
                               .grafter = false,
                               .flash_attention = false,
                               .cache_type = GGML_TYPE_F32};

// Ours with ggml's plain attention, as libllama has it.
constexpr RawOptions kOursPlain{.n_ctx = 512,
                                .n_batch = 128,
                                .n_threads = 1,
                                .attention = false,
                                .flash_attention = false,
                                .cache_type = GGML_TYPE_F32};

// Ours with the attention step, as it serves.
constexpr RawOptions kOursStep{
    .n_ctx = 512, .n_batch = 128, .n_threads = 1, .cache_type = GGML_TYPE_F32};

class F32Parity : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    sides_ = std::make_unique<BothSides>("SmolLM2-135M-Instruct-F32.gguf");
    RawContext context(sides_->context(kPlainF32));
    expected_ = sides_->run_theirs(context, one_adapter_each(), kWhole);
  }
  static void TearDownTestSuite() { sides_.reset(); }

  static std::unique_ptr<BothSides> sides_;
  static std::vector<Logits> expected_;  // libllama, one adapter at a time
};
std::unique_ptr<BothSides> F32Parity::sides_;
std::vector<Logits> F32Parity::expected_;

TEST_F(F32Parity, EightAdaptersInOneBatchAgreeWithLibllamaOneAtATime) {
  for (const RawOptions& options : {kOursPlain, kOursStep}) {
    RawContext context(sides_->context(options));
    const std::vector<Logits> ours = sides_->run_ours(context, one_adapter_each());
    for (std::size_t s = 0; s < kSequences; ++s) {
      EXPECT_LT(difference(ours[s], expected_[s]), kTolerance)
          << "sequence " << s << (options.attention ? ", attention step" : ", plain attention");
    }
    RecordProperty(options.attention ? "step" : "plain",
                   std::to_string(difference(ours, expected_)));
  }
}

TEST_F(F32Parity, SumsOfAdaptersAndTheBaseAgreeWithLibllama) {
  const std::vector<Set> sets = {
      {{0, 0.6F}, {1, 1.2F}}, {}, {{2, 1.0F}, {3, -0.5F}, {4, 0.25F}}, {{1, 1.0F}}};
  RawContext reference(sides_->context(kPlainF32));
  const std::vector<Logits> theirs = sides_->run_theirs(reference, sets, kWhole);
  for (const RawOptions& options : {kOursPlain, kOursStep}) {
    RawContext context(sides_->context(options));
    EXPECT_LT(difference(sides_->run_ours(context, sets), theirs), kTolerance);
  }
}

// The tolerance is small enough to find small faults, in every sequence.
TEST_F(F32Parity, AScaleThatIsWrongByATenthOfAPercentIsFound) {
  RawContext context(sides_->context(kOursPlain));
  const std::vector<Logits> ours = sides_->run_ours(context, one_adapter_each(1.001F));
  for (std::size_t s = 0; s < kSequences; ++s) {
    EXPECT_GT(difference(ours[s], expected_[s]), kTolerance) << "sequence " << s;
  }
}

TEST_F(F32Parity, AnotherRowsAdapterIsFound) {
  std::vector<Set> shifted = one_adapter_each();
  std::rotate(shifted.begin(), shifted.begin() + 1, shifted.end());
  RawContext context(sides_->context(kOursPlain));
  const std::vector<Logits> ours = sides_->run_ours(context, shifted);
  for (std::size_t s = 0; s < kSequences; ++s) {
    EXPECT_GT(difference(ours[s], expected_[s]), 1000 * kTolerance) << "sequence " << s;
  }
}

// F16 factors are multiplied as what they are; libllama would round the activations to F16 too, so
// it gets their values in F32.
TEST(F16Parity, FactorsInHalfPrecisionAgreeWithTheirValuesInLibllama) {
  const BothSides sides("SmolLM2-135M-Instruct-F32.gguf", Factors::kF16, Factors::kRounded);
  RawContext reference(sides.context(kPlainF32));
  const auto theirs = sides.run_theirs(reference, one_adapter_each(), kWhole);
  for (const RawOptions& options : {kOursPlain, kOursStep}) {
    RawContext context(sides.context(options));
    EXPECT_LT(difference(sides.run_ours(context, one_adapter_each()), theirs), kTolerance);
    EXPECT_GT(difference(sides.run_ours(context, one_adapter_each(1.001F)), theirs), kTolerance);
  }
}

// Root mean square over all logits of a sequence: steadier than the largest of 200,000.
double rms_difference(const Logits& a, const Logits& b) {
  double sum = a.size() == b.size() ? 0.0 : 1e30;
  std::size_t n = 0;
  for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) {
    for (std::size_t v = 0; v < a[i].size(); ++v, ++n) {
      const double d = static_cast<double>(a[i][v]) - static_cast<double>(b[i][v]);
      sum += d * d;
    }
  }
  return std::sqrt(sum / static_cast<double>(n));
}

struct Spread {
  double largest = 0;  // of any logit
  double rms = 0;      // of the worst sequence
  double smallest_rms = 1e30;

  void add(const std::vector<Logits>& a, const std::vector<Logits>& b) {
    largest = std::max(largest, difference(a, b));
    for (std::size_t s = 0; s < a.size(); ++s) {
      const double distance = rms_difference(a[s], b[s]);
      rms = std::max(rms, distance);
      smallest_rms = std::min(smallest_rms, distance);
    }
  }
};

// On quantised weights activations are rounded at every matmul, so a difference in the last bit
// grows through the layers. How far is libllama's to say: with the same prompt and attention, and
// every scale changed by a few millionths, which is what another order of summation amounts to.
TEST(Q8Parity, DiffersFromLibllamaNoMoreThanAFewMillionthsInTheScaleDo) {
  const BothSides sides("SmolLM2-135M-Instruct-Q8_0.gguf");
  const std::vector<Set> sets = one_adapter_each();
  RawContext reference(
      sides.context({.n_ctx = 512, .n_batch = 128, .n_threads = 1, .grafter = false}));
  const std::vector<Logits> theirs = sides.run_theirs(reference, sets, kWhole);
  Spread floor;
  for (const float factor : {1.000001F, 0.999999F, 1.000003F}) {
    floor.add(sides.run_theirs(reference, one_adapter_each(factor), kWhole), theirs);
  }
  RawContext context(sides.context({.n_ctx = 512, .n_batch = 128, .n_threads = 1}));
  Spread ours;
  ours.add(sides.run_ours(context, sets), theirs);
  RecordProperty("floor", std::to_string(floor.largest) + ", rms " + std::to_string(floor.rms));
  RecordProperty("ours", std::to_string(ours.largest) + ", rms " + std::to_string(ours.rms));
  EXPECT_GT(floor.rms, 0.0);
  EXPECT_LT(ours.largest, kFloorFactor * floor.largest);
  EXPECT_LT(ours.rms, kFloorFactor * floor.rms);
  // Another row's adapter, or none, is seen above that in every sequence.
  std::vector<Set> shifted = sets;
  std::rotate(shifted.begin(), shifted.begin() + 1, shifted.end());
  Spread wrong;
  wrong.add(sides.run_ours(context, shifted), theirs);
  RecordProperty("shifted", std::to_string(wrong.smallest_rms));
  EXPECT_GT(wrong.smallest_rms, kFloorFactor * floor.rms);
}

}  // namespace
}  // namespace graft::testing
