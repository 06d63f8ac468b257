// PEFT LoRA -> Adapter: binds the tensors of an adapter_model.safetensors to the sites of a base,
// by the scale and meaning that its config gives. Every tensor is bound, or ignored with a reason,
// or the whole adapter is refused. A pure function; any thread.
#pragma once

#include "base/result.h"
#include "modules/adapter.h"
#include "modules/base_model.h"
#include "modules/formats/peft_config.h"
#include "modules/formats/safetensors.h"

namespace graft {

// Stacked experts may be far larger than the file that asks for them.
constexpr std::uint64_t kMaxFactorBytes = std::uint64_t{16} << 30;

// The digest is left empty. Errors: kNotSupported by name, kInvalidArgument when names or shapes do
// not fit the base, kDataCorrupt for contradictions and values that are not finite.
Result<Adapter> bind_peft_lora(const PeftConfig& config, const SafetensorsFile& file,
                               const BaseModel& base);

}  // namespace graft
