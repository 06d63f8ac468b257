// Tensor names as PEFT files carry them, taken apart: which module, which part of it.
// "base_model.model.model.layers.0.self_attn.q_proj.lora_A.default.weight" is part lora_A of the
// module "model.layers.0.self_attn.q_proj". Wrapper prefixes of compilers, sharding and vision
// models are removed. Pure functions; any thread.
#pragma once

#include <string>
#include <string_view>

namespace graft {

enum class HfPart {
  kLoraA,       // lora_A.weight [r, in]
  kLoraB,       // lora_B.weight [out, r]
  kLoraBBias,   // lora_B.bias [out]
  kEmbeddingA,  // lora_embedding_A [r, vocab]
  kEmbeddingB,  // lora_embedding_B [d, r]
  kBaseCopy,    // base_layer.weight or base_layer.bias: what the module had before
  kPlain,       // .weight or .bias of a module itself
  kOther,       // a part of another method, or nothing known; see `note`
};

struct HfTensorName {
  std::string module;       // in the text model: "model.layers.0.mlp.up_proj", "lm_head"
  std::string peft_module;  // as PEFT's own patterns see it, without the text-model renaming
  HfPart part = HfPart::kOther;
  bool is_vision = false;  // of a vision or audio tower: not the text model
  std::string note;        // for kOther: the method it belongs to, e.g. "DoRA"; may be empty
};

HfTensorName parse_hf_tensor_name(std::string_view name);

}  // namespace graft
