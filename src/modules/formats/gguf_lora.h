// GGUF LoRA (llama.cpp's convert_lora_to_gguf) -> Adapter.
//
// Keys: general.type "adapter", adapter.type "lora", general.architecture of the base,
// adapter.lora.alpha f32. Tensors: "<tensor of the base>.lora_a" ne = {in, r} and ".lora_b"
// ne = {r, out}, experts with a third dimension; "token_embd.weight.lora_a" ne = {r, vocab}.
// The converter has permuted rows already. Scale = alpha / r per tensor, 1 without an alpha.
// Pure functions; any thread.
#pragma once

#include <string>

#include "base/result.h"
#include "modules/adapter.h"
#include "modules/base_model.h"
#include "modules/formats/gguf_file.h"

namespace graft {

// What the keys say; errors name files that are something else: models, control vectors, aLoRA.
struct GgufLoraHeader {
  std::string architecture;
  std::string base_name;
  double alpha = 0;  // 0 = none
};

Result<GgufLoraHeader> read_gguf_lora_header(const GgufFile& file);

// The digest is left empty. Errors as bind_peft_lora.
Result<Adapter> bind_gguf_lora(const GgufFile& file, const BaseModel& base);

}  // namespace graft
