// What the headers of a model's GGUF file(s) say, read before libllama sees them: names and shapes
// of all tensors, architecture, dimensions, and a fingerprint of the content.
//
// The fingerprint is the SHA-256 over, per file in order: the header's bytes (all metadata, tensor
// names, types, shapes, offsets), the file's size, and the first and last 4 KiB of every tensor.
// It tells models apart without reading gigabytes: two files that differ only inside tensors, away
// from their ends, would share it, which training or requantising never produces.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "modules/base_model.h"

namespace graft {

struct GgufHeader {
  BaseModel base;                  // without the dimensions that Model asks libllama for
  std::vector<std::string> paths;  // all files of a split model, in order
  std::uint64_t file_bytes = 0;    // of all of them
  std::map<std::string, std::int32_t> matrices_by_type;  // how many matrices are "q4_0", ...
};

// Errors: kNotFound, kDataCorrupt when it is no readable GGUF file or a part is missing or cut off,
// kInvalidArgument when it is something else than a model (an adapter, say).
Result<GgufHeader> read_gguf_header(const std::string& path);

}  // namespace graft
