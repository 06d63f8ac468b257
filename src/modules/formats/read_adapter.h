// The way into this folder: from a path to an Adapter that fits a base, or to a description of it
// that needs no base. The format is found by content. Any thread; blocks on the disk.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "modules/adapter.h"
#include "modules/base_model.h"
#include "modules/formats/file_source.h"

namespace graft {

// Errors: kNotFound; kNotSupported, naming what the adapter needs ("DoRA is not supported yet");
// kInvalidArgument when it does not fit the base; kDataCorrupt; kResourceExhausted.
Result<std::shared_ptr<const Adapter>> read_adapter(const std::string& path, const BaseModel& base);
Result<std::shared_ptr<const Adapter>> read_adapter(const FileSource& source,
                                                    const std::string& path, const BaseModel& base);

struct TensorSummary {
  std::string name;
  std::string type;                 // "F32", "BF16", "Q8_0"
  std::vector<std::int64_t> shape;  // outermost first, as in PyTorch
};

struct AdapterSummary {
  std::string format;               // "PEFT LoRA (safetensors)", "GGUF LoRA"
  std::string base_name;            // what the author says it was trained on
  std::string architecture;         // GGUF only; else empty
  std::vector<std::int64_t> ranks;  // distinct ranks of the factors, ascending
  double alpha = 0;                 // 0 = none in the file
  bool use_rslora = false;
  std::vector<std::string> targets;  // kinds of modules, e.g. "q_proj" or "attn_q", sorted
  std::vector<TensorSummary> tensors;
  std::uint64_t n_bytes = 0;  // of the module's files
  std::string digest;
  std::string refusal;  // why serving would refuse it whatever the base; empty = it would not
};

// Describes also what cannot be served: see `refusal`. Errors: files that cannot be read at all.
Result<AdapterSummary> inspect_adapter(const std::string& path);

}  // namespace graft
