// Reader of the safetensors format: names, types, shapes and bytes, nothing of their meaning.
//
// Layout: u64 little-endian header length | JSON header, padded with spaces | data section.
// Header: {"name": {"dtype": "F32", "shape": [r, in], "data_offsets": [begin, end]}, ...}, offsets
// count from the start of the data section; "__metadata__" maps strings to strings.
// Accepted only if the tensors cover the data section exactly, without gap or overlap, and none is
// empty. A pure function of the bytes; any thread. Spans point into the caller's bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace graft {

constexpr std::uint64_t kMaxSafetensorsHeaderBytes = 16U << 20;
constexpr std::size_t kMaxSafetensorsTensors = 1U << 17;

struct SafetensorsTensor {
  std::string name;
  std::string dtype;                 // as the file says: "F32", "BF16", "I64", ...
  std::vector<std::int64_t> shape;   // outermost first; every dimension >= 1
  std::span<const std::byte> bytes;  // row-major, little endian
};

struct SafetensorsFile {
  std::vector<SafetensorsTensor> tensors;  // in the order of their bytes; never empty
  std::map<std::string, std::string> metadata;
};

// `what` names the file in messages. Errors: kDataCorrupt.
Result<SafetensorsFile> read_safetensors(std::span<const std::byte> file, const std::string& what);

}  // namespace graft
