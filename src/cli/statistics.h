// Small pure measures of what was measured. Any thread.
#pragma once

#include <span>
#include <vector>

namespace graft::cli {

// The value below which `part` (0 .. 1) of the values lie, by linear interpolation; 0 for none.
double quantile(std::vector<double> values, double part);

// How far two rows of logits over the same vocabulary are apart.
struct LogitDistance {
  double max_abs = 0;
  double mean_abs = 0;
  double kl = 0;  // of the distributions, from the first to the second, in nats
  bool same_top = true;
  bool bit_equal = true;
};

// Requires: equal sizes, not empty.
LogitDistance logit_distance(std::span<const float> a, std::span<const float> b);

}  // namespace graft::cli
