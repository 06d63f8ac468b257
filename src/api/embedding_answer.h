// EmbeddingAnswer: the one JSON object that /v1/embeddings answers with. Each vector becomes text
// as soon as it is known, so that no moment is long. Used by one strand.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace graft::api {

struct EmbeddingShape {
  std::string model;       // as the client named it
  std::string graft_json;  // {"modules": [...]}
  std::int64_t n_prompt_tokens = 0;
  std::size_t n_inputs = 0;
  std::size_t n_dimensions = 0;  // of each vector, at most what the model gives
  bool base64 = false;
};

class EmbeddingAnswer {
 public:
  explicit EmbeddingAnswer(EmbeddingShape shape);

  // Requires: an input that was not added yet, at least n_dimensions values.
  void add(std::size_t input, std::span<const float> values);
  bool complete() const { return n_added_ == shape_.n_inputs; }
  // Requires: complete().
  std::string body() const;

 private:
  EmbeddingShape shape_;
  std::vector<std::string> vectors_;  // as JSON
  std::size_t n_added_ = 0;
};

}  // namespace graft::api
