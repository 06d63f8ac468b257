// For tests and fuzz seeds only: small writers of safetensors and GGUF files, and tiny bases.
// They write what they are told, also nonsense. Not thread-safe, no state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "modules/base_model.h"

namespace graft::format_test {

using Bytes = std::vector<std::byte>;

inline void append(Bytes& bytes, const void* from, std::size_t n_bytes) {
  if (n_bytes == 0) return;
  const std::size_t n_before = bytes.size();
  bytes.resize(n_before + n_bytes);  // not insert(): g++ 12 warns of overflows inside it at -O3
  std::memcpy(bytes.data() + n_before, from, n_bytes);
}

template <typename T>
void append_value(Bytes& bytes, T value) {
  append(bytes, &value, sizeof(value));
}

inline Bytes floats_as_bytes(const std::vector<float>& values) {
  Bytes bytes;
  append(bytes, values.data(), values.size() * sizeof(float));
  return bytes;
}

// first, first + 1, ... : every value tells where it came from.
inline Bytes counting_floats(std::int64_t n, float first = 0) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < n; ++i) values.push_back(first + static_cast<float>(i));
  return floats_as_bytes(values);
}

// ---- safetensors ----

inline Bytes safetensors_from_header(const std::string& header, const Bytes& data_section) {
  Bytes file;
  append_value<std::uint64_t>(file, header.size());
  append(file, header.data(), header.size());
  append(file, data_section.data(), data_section.size());
  return file;
}

class SafetensorsWriter {
 public:
  SafetensorsWriter& add(const std::string& name, const std::string& dtype,
                         const std::vector<std::int64_t>& shape, const Bytes& bytes) {
    std::string dims;
    for (const std::int64_t n : shape) dims += (dims.empty() ? "" : ",") + std::to_string(n);
    entries_ += (entries_.empty() ? "" : ",") + std::string("\"") + name + "\":{\"dtype\":\"" +
                dtype + "\",\"shape\":[" + dims + "],\"data_offsets\":[" +
                std::to_string(section_.size()) + "," +
                std::to_string(section_.size() + bytes.size()) + "]}";
    append(section_, bytes.data(), bytes.size());
    return *this;
  }

  SafetensorsWriter& add_f32(const std::string& name, const std::vector<std::int64_t>& shape,
                             float first = 0) {
    std::int64_t n = 1;
    for (const std::int64_t dimension : shape) n *= dimension;
    return add(name, "F32", shape, counting_floats(n, first));
  }

  // lora_A [r, in] counting from 0 and lora_B [out, r] counting from 1000.
  SafetensorsWriter& add_lora(const std::string& module, std::int64_t r, std::int64_t n_in,
                              std::int64_t n_out) {
    add_f32("base_model.model." + module + ".lora_A.weight", {r, n_in});
    return add_f32("base_model.model." + module + ".lora_B.weight", {n_out, r}, 1000);
  }

  Bytes finish() const { return safetensors_from_header("{" + entries_ + "}", section_); }

 private:
  std::string entries_;
  Bytes section_;
};

// ---- GGUF ----

class GgufWriter {
 public:
  GgufWriter& add_string(const std::string& key, const std::string& value) {
    begin_key(key, 8);
    append_string(keys_, value);
    return *this;
  }
  GgufWriter& add_f32(const std::string& key, float value) {
    begin_key(key, 6);
    append_value(keys_, value);
    return *this;
  }
  GgufWriter& add_u32(const std::string& key, std::uint32_t value) {
    begin_key(key, 4);
    append_value(keys_, value);
    return *this;
  }
  GgufWriter& add_u32_array(const std::string& key, const std::vector<std::uint32_t>& values) {
    begin_key(key, 9);
    append_value<std::uint32_t>(keys_, 4);
    append_value<std::uint64_t>(keys_, values.size());
    for (const std::uint32_t value : values) append_value(keys_, value);
    return *this;
  }
  // `ne` innermost first; `type` as ggml numbers them.
  GgufWriter& add_tensor(const std::string& name, const std::vector<std::int64_t>& ne,
                         std::uint32_t type, const Bytes& bytes) {
    append_string(tensors_, name);
    append_value(tensors_, static_cast<std::uint32_t>(ne.size()));
    for (const std::int64_t n : ne) append_value(tensors_, n);
    append_value(tensors_, type);
    append_value<std::uint64_t>(tensors_, section_.size());
    append(section_, bytes.data(), bytes.size());
    section_.resize((section_.size() + 31) / 32 * 32);
    ++n_tensors_;
    return *this;
  }
  GgufWriter& add_f32_tensor(const std::string& name, const std::vector<std::int64_t>& ne,
                             float first = 0) {
    std::int64_t n = 1;
    for (const std::int64_t dimension : ne) n *= dimension;
    return add_tensor(name, ne, 0, counting_floats(n, first));
  }
  GgufWriter& add_adapter_keys(const std::string& architecture, float alpha) {
    add_string("general.type", "adapter").add_string("general.architecture", architecture);
    return add_string("adapter.type", "lora").add_f32("adapter.lora.alpha", alpha);
  }

  Bytes finish(std::uint32_t version = 3) const {
    Bytes file;
    append(file, "GGUF", 4);
    append_value(file, version);
    append_value(file, n_tensors_);
    append_value(file, n_keys_);
    append(file, keys_.data(), keys_.size());
    append(file, tensors_.data(), tensors_.size());
    file.resize((file.size() + 31) / 32 * 32);
    append(file, section_.data(), section_.size());
    return file;
  }

 private:
  static void append_string(Bytes& bytes, const std::string& text) {
    append_value<std::uint64_t>(bytes, text.size());
    append(bytes, text.data(), text.size());
  }
  void begin_key(const std::string& key, std::uint32_t type) {
    append_string(keys_, key);
    append_value(keys_, type);
    ++n_keys_;
  }

  Bytes keys_;
  Bytes tensors_;
  Bytes section_;
  std::uint64_t n_keys_ = 0;
  std::uint64_t n_tensors_ = 0;
};

// A file from raw parts: header counts, then whatever comes.
class RawGguf {
 public:
  RawGguf(std::uint64_t n_tensors, std::uint64_t n_keys) {
    append(bytes_, "GGUF", 4);
    u32(3).u64(n_tensors).u64(n_keys);
  }
  RawGguf& u32(std::uint32_t value) {
    append_value(bytes_, value);
    return *this;
  }
  RawGguf& u64(std::uint64_t value) {
    append_value(bytes_, value);
    return *this;
  }
  RawGguf& text(const std::string& value) {
    u64(value.size());
    append(bytes_, value.data(), value.size());
    return *this;
  }
  Bytes finish(std::size_t n_more = 4096) const {
    Bytes bytes = bytes_;
    bytes.resize(bytes.size() + n_more);
    return bytes;
  }

 private:
  Bytes bytes_;
};

// ---- bases ----

struct BaseShape {
  std::string architecture = "llama";
  std::int64_t n_layers = 2;
  std::int64_t n_embd = 16;
  std::int64_t n_heads = 2;
  std::int64_t n_heads_kv = 1;
  std::int64_t head_dim = 8;
  std::int64_t n_ff = 24;
  std::int64_t n_vocab = 20;
  std::int64_t n_experts = 0;
  bool tied_head = true;
  bool fused = false;  // attn_qkv, and gate and up in ffn_up, as phi3 has them
};

inline void add_block(BaseModel& base, const BaseShape& shape, std::int64_t layer) {
  const std::string prefix = "blk." + std::to_string(layer) + ".";
  const auto add = [&](const std::string& stem, std::int64_t n_in, std::int64_t n_out,
                       std::int64_t n_experts) {
    base.tensors[prefix + stem + ".weight"] = {{n_in, n_out, n_experts, 1}};
  };
  const std::int64_t q = shape.n_heads * shape.head_dim;
  const std::int64_t kv = shape.n_heads_kv * shape.head_dim;
  if (shape.fused) {
    add("attn_qkv", shape.n_embd, q + 2 * kv, 1);
    add("ffn_up", shape.n_embd, 2 * shape.n_ff, 1);
    add("ffn_down", shape.n_ff, shape.n_embd, 1);
  } else {
    add("attn_q", shape.n_embd, q, 1);
    add("attn_k", shape.n_embd, kv, 1);
    add("attn_v", shape.n_embd, kv, 1);
  }
  add("attn_output", q, shape.n_embd, 1);
  add("attn_norm", shape.n_embd, 1, 1);
  if (shape.n_experts > 0) {
    add("ffn_gate_inp", shape.n_embd, shape.n_experts, 1);
    add("ffn_gate_exps", shape.n_embd, shape.n_ff, shape.n_experts);
    add("ffn_up_exps", shape.n_embd, shape.n_ff, shape.n_experts);
    add("ffn_down_exps", shape.n_ff, shape.n_embd, shape.n_experts);
  } else if (!shape.fused) {
    add("ffn_gate", shape.n_embd, shape.n_ff, 1);
    add("ffn_up", shape.n_embd, shape.n_ff, 1);
    add("ffn_down", shape.n_ff, shape.n_embd, 1);
  }
}

inline BaseModel make_base(const BaseShape& shape) {
  BaseModel base;
  base.architecture = shape.architecture;
  base.n_layers = shape.n_layers;
  base.n_embd = shape.n_embd;
  base.n_vocab = shape.n_vocab;
  base.n_heads = shape.n_heads;
  base.n_heads_kv = shape.n_heads_kv;
  base.n_experts = shape.n_experts;
  base.head_dim_k = shape.head_dim;
  base.head_dim_v = shape.head_dim;
  base.tied_head = shape.tied_head;
  base.modules_supported = true;
  base.tensors["token_embd.weight"] = {{shape.n_embd, shape.n_vocab, 1, 1}};
  if (!shape.tied_head) base.tensors["output.weight"] = {{shape.n_embd, shape.n_vocab, 1, 1}};
  for (std::int64_t layer = 0; layer < shape.n_layers; ++layer) add_block(base, shape, layer);
  return base;
}

// ---- files ----

// A directory of its own that goes with the object.
class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string pattern = (std::filesystem::temp_directory_path() / "graft-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  std::string path() const { return path_.string(); }

  std::string write(const std::string& name, std::span<const std::byte> bytes) const {
    const std::filesystem::path file = path_ / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream out(file, std::ios::binary);
    out.write(reinterpret_cast<const char*>(bytes.data()),
              static_cast<std::streamsize>(bytes.size()));
    return file.string();
  }
  std::string write(const std::string& name, const std::string& text) const {
    return write(name, std::as_bytes(std::span(text)));
  }

 private:
  std::filesystem::path path_;
};

}  // namespace graft::format_test
