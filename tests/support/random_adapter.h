// Adapters with random factors for any base: every projection of every block, or the ones that are
// named. The same seed gives the same values.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "modules/base_model.h"
#include "modules/module_version.h"

namespace graft {

struct RandomAdapterOptions {
  std::uint32_t seed = 1;
  std::int64_t rank = 16;
  float strength = 0.05F;  // standard deviation of B; A has 1 / sqrt(n_in)
  std::vector<std::string> projections = {"attn_q",   "attn_k", "attn_v",  "attn_output",
                                          "ffn_gate", "ffn_up", "ffn_down"};
};

// As a reader would deliver it, with its factors.
std::shared_ptr<Adapter> make_random_adapter(const BaseModel& base,
                                             const RandomAdapterOptions& options);

// Never null; fails the test when packing fails.
std::shared_ptr<const ModuleVersion> make_random_module(const BaseModel& base,
                                                        const RandomAdapterOptions& options);

}  // namespace graft
