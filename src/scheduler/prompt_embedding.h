// PromptEmbedding: pools the states of a prompt's rows into one vector of length 1. Rows come in
// order, each once, whatever the chunks and however often the request is preempted; sums run in
// that order in double precision, so the bits depend on the rows alone.
// Belongs to the engine thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "core/request.h"

namespace graft {

class PromptEmbedding {
 public:
  // Requires: n_prompt >= 1.
  PromptEmbedding(Pooling pooling, std::int32_t n_prompt)
      : n_known_(pooling == Pooling::kMean ? 0 : n_prompt - 1), n_rows_(n_prompt) {}

  // The rows from n_known() to n_rows() - 1 are still wanted.
  std::int32_t n_known() const { return n_known_; }
  std::int32_t n_rows() const { return n_rows_; }

  // Of the row n_known(). Requires: as many values every time.
  void add(std::span<const float> state);

  // kInternal when the pooled vector is not finite. Requires: every row was added.
  Result<std::vector<float>> take() const;

 private:
  std::int32_t n_known_;
  std::int32_t n_rows_;
  std::int32_t n_added_ = 0;
  std::vector<double> sum_;
};

}  // namespace graft
