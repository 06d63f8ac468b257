// The tensors of a PEFT file, grouped by the module they belong to: the step between names and
// sites. Nothing is dropped: every tensor ends in exactly one list. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "modules/adapter.h"
#include "modules/formats/safetensors.h"

namespace graft {

// The factors of one module. Pointers into the SafetensorsFile; null = not in the file.
struct PeftModule {
  std::string peft_path;                    // what PEFT's patterns match against
  const SafetensorsTensor* a = nullptr;     // [r, in], embeddings: [r, vocab]
  const SafetensorsTensor* b = nullptr;     // [out, r]
  const SafetensorsTensor* bias = nullptr;  // [out]
  bool is_embedding = false;                // lora_embedding_A and _B

  std::int64_t rank() const { return a->shape[0]; }
};

// A weight or bias that is not a factor: a copy of the base's, or a replacement for it.
struct PeftPlainTensor {
  std::string module;
  const SafetensorsTensor* tensor = nullptr;
  bool is_base_copy = false;  // stands beside factors as base_layer.weight
};

struct PeftTensors {
  std::map<std::string, PeftModule> modules;  // by HfTensorName::module; factors complete
  std::vector<PeftPlainTensor> plain;
  std::vector<const SafetensorsTensor*> vision;
};

// Errors: a tensor of another method (named), half a pair, factors that contradict each other,
// values that are not F32, F16 or BF16, nothing but vision tensors.
Result<PeftTensors> group_peft_tensors(const SafetensorsFile& file);

// Requires: group_peft_tensors accepted the tensor as a factor.
FactorType factor_type(const SafetensorsTensor& tensor);

std::string shape_text(const std::vector<std::int64_t>& shape);  // "[16, 576]"

}  // namespace graft
