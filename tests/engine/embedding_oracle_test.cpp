// Embeddings against libllama's own: a second context of the same model that pools in one
// micro-batch. Both take F32 weights, keys and values without flash attention's casts, so what is
// left is the order of sums: at most 1.4e-6 per value over these models (measured), where vectors
// have length 1. A wrong row or pooling shows as 1e-2.
#include <gtest/gtest.h>
#include <llama.h>

#include <bit>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "support/serving_rig.h"
#include "support/test_files.h"

namespace graft {
namespace {

constexpr double kTolerance = 1e-5;

struct FreeContext {
  void operator()(llama_context* context) const { llama_free(context); }
};

std::vector<double> normalised(const float* values, std::size_t n) {
  double square = 0;
  for (std::size_t i = 0; i < n; ++i) {
    square += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  }
  std::vector<double> result;
  for (std::size_t i = 0; i < n; ++i) {
    result.push_back(static_cast<double>(values[i]) / std::sqrt(square));
  }
  return result;
}

// What libllama makes of the tokens; empty when it cannot.
std::vector<double> libllama_embedding(const Model& model, std::vector<TokenId> tokens,
                                       enum llama_pooling_type pooling) {
  llama_context_params params = llama_context_default_params();
  params.n_ctx = 512;
  params.n_batch = 512;
  params.n_ubatch = 512;
  params.n_threads = 1;
  params.n_threads_batch = 1;
  params.type_k = GGML_TYPE_F32;
  params.type_v = GGML_TYPE_F32;
  params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
  params.embeddings = true;
  params.pooling_type = pooling;
  const std::unique_ptr<llama_context, FreeContext> context(
      llama_init_from_model(model.handle(), params));
  if (context == nullptr) return {};
  const auto n_tokens = static_cast<std::int32_t>(tokens.size());
  if (llama_decode(context.get(), llama_batch_get_one(tokens.data(), n_tokens)) != 0) return {};
  const float* values = llama_get_embeddings_seq(context.get(), 0);
  if (values == nullptr) return {};
  return normalised(values, static_cast<std::size_t>(llama_model_n_embd(model.handle())));
}

class EmbeddingOracle : public testing::TestWithParam<const char*> {};

TEST_P(EmbeddingOracle, MeanAndLastAgreeWithLibllama) {
  const auto model = load_model(source_file("tests/golden/models/" + std::string(GetParam())));
  GenerationRequest request;
  for (int i = 0; i < 90; ++i) {
    request.prompt.push_back((i * 37 + 11) % model->vocabulary().size());
  }
  request.stop.max_tokens = 0;
  // In chunks of at most 16 rows, which libllama's own pooling could not do.
  ServingRig rig(*model, {.engine = {.n_ctx = 256,
                                     .max_seqs = 2,
                                     .n_batch = 32,
                                     .n_threads = 1,
                                     .max_reported_rows = 16,
                                     .kv_type = KvType::kF32}});
  for (const auto& [pooling, theirs] : {std::pair{Pooling::kMean, LLAMA_POOLING_TYPE_MEAN},
                                        std::pair{Pooling::kLast, LLAMA_POOLING_TYPE_LAST}}) {
    request.embedding = pooling;
    const Answer answer = rig.ask(request);
    ASSERT_EQ(answer.end, Answer::End::kLength) << answer.error.message;
    const std::vector<double> expected = libllama_embedding(*model, request.prompt, theirs);
    ASSERT_EQ(answer.embedding_bits.size(), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_NEAR(std::bit_cast<float>(answer.embedding_bits[i]), expected[i], kTolerance);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(TinyModels, EmbeddingOracle,
                         testing::Values("llama.gguf", "llama_tied.gguf", "qwen2.gguf",
                                         "qwen3.gguf", "phi3.gguf", "gemma3.gguf", "qwen3moe.gguf"),
                         [](const auto& info) {
                           const std::string name(info.param);
                           return name.substr(0, name.find('.'));
                         });

}  // namespace
}  // namespace graft
