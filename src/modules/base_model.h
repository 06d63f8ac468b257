// BaseModel: what readers and attach must know of the resident base: architecture, shapes, names.
// Filled by engine/ from the GGUF file and the site table; immutable, shared between threads.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <unordered_map>

#include "modules/site.h"

namespace graft {

struct BaseTensor {
  std::array<std::int64_t, 4> ne = {
      1, 1, 1, 1};  // ggml order: ne[0] = inputs, ne[1] = outputs, ne[2] = experts
};

struct BaseModel {
  std::string architecture;  // general.architecture, e.g. "llama"
  std::string name;          // general.name; may be empty
  std::string digest;        // fingerprint of the file(s): engine/gguf_header.h
  std::int64_t n_layers = 0;
  std::int64_t n_embd = 0;
  std::int64_t n_vocab = 0;
  std::int64_t n_heads = 0;
  std::int64_t n_heads_kv = 0;
  std::int64_t n_experts = 0;   // 0 = dense
  std::int64_t head_dim_k = 0;  // per head; n_embd / n_heads unless the file says otherwise
  std::int64_t head_dim_v = 0;
  bool tied_head = false;  // no output.weight: the head reads token_embd.weight
  // Every tensor of the file by GGUF name.
  std::unordered_map<std::string, BaseTensor> tensors;
  // Modules are proven on this architecture (llama, qwen2, qwen3, gemma3, phi3, qwen3moe).
  bool modules_supported = false;

  const BaseTensor* find(const std::string& tensor_name) const {
    const auto found = tensors.find(tensor_name);
    return found == tensors.end() ? nullptr : &found->second;
  }
};

}  // namespace graft
