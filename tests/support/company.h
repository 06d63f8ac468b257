// Company: runs one sequence beside others, in other chunks and other cells, and gives its logits,
// so that tests can demand the same bits. Not for several threads.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "support/raw_context.h"

namespace graft::testing {

inline constexpr int kPrompt = 150;
inline constexpr int kDecode = 6;
inline constexpr int kSequence = 3;

inline TokenId token_at(int position, int sequence, int n_vocab) {
  return (position * 37 + 11 * sequence + 5) % n_vocab;
}

inline void add_row(StepPlan& plan, int sequence, int position, bool output, int n_vocab) {
  plan.rows.push_back({token_at(position, sequence, n_vocab), position, sequence, output, -1});
}

// Company: other sequences that take a decode step in every batch.
struct Company {
  int n_others = 0;
  int chunk = 64;
  bool fragmented = false;  // free cells lie before, so that later tokens get lower cells
};

using Logits = std::vector<std::vector<float>>;

// Logits of the last prompt token and of kDecode steps of sequence kSequence.
inline Logits run_sequence(RawContext& context, const Company& company) {
  context.clear();
  const int n_vocab = context.n_vocab();
  std::vector<int> next(8, 0);
  StepPlan plan;
  const auto others = [&] {
    int n = 0;
    for (int s = 0; s < 8 && n < company.n_others; ++s) {
      if (s == kSequence) continue;
      add_row(plan, s, next[static_cast<std::size_t>(s)]++, n % 2 == 0, n_vocab);
      ++n;
    }
  };
  if (company.fragmented) {
    for (int i = 0; i < 90; ++i) add_row(plan, 7, i, false, n_vocab);
    EXPECT_EQ(context.decode(plan), 0);
    plan.clear();
  }
  for (int i = 0; company.n_others > 0 && i < 20; ++i) {
    others();
    EXPECT_EQ(context.decode(plan), 0);
    plan.clear();
  }
  Logits result;
  for (int position = 0; position < kPrompt;) {
    others();
    for (int i = 0; i < company.chunk && position < kPrompt; ++i, ++position) {
      add_row(plan, kSequence, position, position == kPrompt - 1, n_vocab);
    }
    EXPECT_EQ(context.decode(plan), 0);
    if (position == kPrompt) result.push_back(context.logits(plan.rows.size() - 1));
    plan.clear();
    if (company.fragmented && position > 60) context.remove(7);
  }
  for (int i = 0; i < kDecode; ++i) {
    others();
    add_row(plan, kSequence, kPrompt + i, true, n_vocab);
    EXPECT_EQ(context.decode(plan), 0);
    result.push_back(context.logits(plan.rows.size() - 1));
    plan.clear();
  }
  return result;
}

}  // namespace graft::testing
