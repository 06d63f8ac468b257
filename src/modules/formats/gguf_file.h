// Reader of the GGUF container, for adapter files: metadata, tensor names, shapes and bytes.
//
// Layout (version 2 and 3, little endian): "GGUF" | u32 version | u64 n_tensors | u64 n_keys |
// keys: string name, u32 type, value | tensors: string name, u32 n_dims, u64 dims[], u32 type,
// u64 offset | padding to the alignment | data. A string is u64 length and bytes; an array is u32
// element type, u64 count and the elements. Offsets count from the start of the data.
// Stricter than ggml's reader: what this one accepts, ggml accepts with the same meaning (fuzz/
// holds the two against each other). A pure function of the bytes; any thread. Spans point into
// the caller's bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"

namespace graft {

constexpr std::uint64_t kMaxGgufKeys = 4096;
constexpr std::uint64_t kMaxGgufTensors = 1U << 16;

enum class GgufType : std::uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64,
};

struct GgufArray {
  GgufType element_type = GgufType::kU8;
  std::uint64_t n_elements = 0;
};

using GgufValue = std::variant<std::uint64_t, std::int64_t, double, bool, std::string, GgufArray>;

struct GgufKey {
  std::string name;
  GgufType type = GgufType::kU8;
  GgufValue value;
};

// The element types that adapters come in, with ggml's numbers.
enum class GgufTensorType : std::uint32_t { kF32 = 0, kF16 = 1, kQ8_0 = 8, kBF16 = 30 };

const char* to_string(GgufTensorType type);

struct GgufTensor {
  std::string name;
  GgufTensorType type = GgufTensorType::kF32;
  std::uint32_t n_dims = 1;
  std::array<std::int64_t, 4> ne = {1, 1, 1, 1};  // innermost first; every dimension >= 1
  std::uint64_t offset = 0;                       // from the start of the data
  std::span<const std::byte> bytes;
};

struct GgufFile {
  std::uint32_t version = 0;
  std::uint64_t alignment = 32;
  std::vector<GgufKey> keys;
  std::vector<GgufTensor> tensors;

  const GgufKey* find(std::string_view key) const;
  // Empty when the key is absent or not a string.
  std::string string_or_empty(std::string_view key) const;
};

// `what` names the file in messages. Errors: kDataCorrupt, kNotSupported (byte order, version,
// tensor type).
Result<GgufFile> read_gguf(std::span<const std::byte> file, const std::string& what);

}  // namespace graft
