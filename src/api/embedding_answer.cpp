#include "api/embedding_answer.h"

#include <cmath>
#include <utility>

#include "api/base64.h"
#include "api/json_text.h"

namespace graft::api {
namespace {

// The first n values, as long as the whole was.
std::vector<float> cut(std::span<const float> values, std::size_t n) {
  std::vector<float> kept(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(n));
  if (n == values.size()) return kept;
  double square = 0;
  for (const float value : kept) square += static_cast<double>(value) * static_cast<double>(value);
  if (square == 0) return kept;
  const double length = std::sqrt(square);
  for (float& value : kept) value = static_cast<float>(static_cast<double>(value) / length);
  return kept;
}

}  // namespace

EmbeddingAnswer::EmbeddingAnswer(EmbeddingShape shape)
    : shape_(std::move(shape)), vectors_(shape_.n_inputs) {}

void EmbeddingAnswer::add(std::size_t input, std::span<const float> values) {
  const std::vector<float> kept = cut(values, shape_.n_dimensions);
  std::string& out = vectors_[input];
  ++n_added_;
  if (shape_.base64) {
    out = "\"";
    append_base64_floats(out, kept);
    out += "\"";
    return;
  }
  out = "[";
  for (std::size_t i = 0; i < kept.size(); ++i) {
    if (i > 0) out.push_back(',');
    append_logprob(out, kept[i]);
  }
  out += "]";
}

std::string EmbeddingAnswer::body() const {
  std::string out = R"({"object":"list","data":[)";
  for (std::size_t i = 0; i < vectors_.size(); ++i) {
    if (i > 0) out.push_back(',');
    out += R"({"object":"embedding","index":)" + std::to_string(i) + R"(,"embedding":)";
    out += vectors_[i] + "}";
  }
  out += R"(],"model":)";
  append_json_string(out, shape_.model);
  const std::string n_tokens = std::to_string(shape_.n_prompt_tokens);
  out += R"(,"usage":{"prompt_tokens":)" + n_tokens + R"(,"total_tokens":)" + n_tokens + "}";
  return out + R"(,"graft":)" + shape_.graft_json + "}";
}

}  // namespace graft::api
