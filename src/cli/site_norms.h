// How strong an adapter is at each place: the Frobenius norm of scale * B A, without ever forming
// the product: ||B A||^2 = sum of the elements of (B^T B) * (A A^T), two matrices of rank x rank.
// Pure; any thread.
#pragma once

#include <string>
#include <vector>

#include "modules/adapter.h"

namespace graft::cli {

struct SiteNorm {
  std::string site;    // "mul_mat blk.3.attn_q.weight"
  double update = 0;   // ||scale * B A||, over all experts
  double a = 0;        // ||A||
  double b = 0;        // ||B||
  float scale = 1.0F;  // the term's own
};

// One per term, in the adapter's order. Requires: the adapter has its factor bytes.
std::vector<SiteNorm> site_norms(const Adapter& adapter);

// Why an adapter of these norms changes little or nothing, one line per reason; empty when nothing
// speaks against an effect.
std::vector<std::string> explain_no_effect(const std::vector<SiteNorm>& norms, float request_scale);

}  // namespace graft::cli
