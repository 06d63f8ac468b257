// From module names of Hugging Face models to the sites of a GGUF base: which weight, which rows of
// it, which expert, and whether the converter reordered those rows. Proven for llama (and what is
// converted to it: mistral, mixtral, smollm), qwen2, qwen3, gemma3, phi3 and qwen3moe.
// Pure functions of the name and the base; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "modules/base_model.h"
#include "modules/site.h"

namespace graft {

// One weight of the base that a module reaches. A fused module on a split base has several.
struct SiteSlice {
  SiteKey site;
  std::int64_t out_offset = 0;    // first output of the site
  std::int64_t row_begin = 0;     // first of the module's own output rows
  std::int64_t n_out = 0;         // rows of both
  std::int64_t n_rope_heads = 0;  // > 0: rows are stored in interleaved order, per head
};

struct ModuleSites {
  std::int64_t n_in = 0;   // kGetRows: rows of the table
  std::int64_t n_out = 0;  // of the whole module
  std::vector<SiteSlice> slices;
  std::optional<std::int64_t> expert;  // the module is one expert of kMatMulId sites
  std::int64_t n_experts = 1;
};

// `module` as HfTensorName::module. Errors: kInvalidArgument, saying what does not exist.
Result<ModuleSites> find_module_sites(const std::string& module, const BaseModel& base);

// The operation that reads a tensor of the base, if an adapter may act on it: linear weights of
// blocks, expert weights, the output head and the embedding table. Norms and others: nothing.
std::optional<SiteOp> adaptable_op(const std::string& tensor, const BaseModel& base);

// Refuses architectures on which modules are not proven, naming those that are.
Status check_architecture(const BaseModel& base);

}  // namespace graft
