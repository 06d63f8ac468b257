// AdapterFiles: what lies under a path, by content: the files of one module in memory of our own,
// and their digest over exactly these bytes. Formats that are recognised but not read are refused
// here by name: pickles, MLX, several adapters in one directory. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "modules/formats/file_source.h"

namespace graft {

constexpr std::uint64_t kMaxAdapterFileBytes = std::uint64_t{8} << 30;

enum class AdapterFormat { kPeft, kGguf };

struct AdapterFiles {
  AdapterFormat format = AdapterFormat::kPeft;
  std::vector<std::byte> config;   // kPeft: adapter_config.json
  std::vector<std::byte> weights;  // adapter_model.safetensors, or the GGUF file
  // SHA-256 over (u64 length and bytes of the name, u64 length and bytes of the content) of each
  // file, sorted by name. A GGUF file counts as "adapter.gguf", whatever it is called.
  std::string digest;
};

// `path` is a PEFT directory (or the parent of a single one) or a GGUF file.
// Errors: kNotFound, kNotSupported by name, kInvalidArgument with the way out.
Result<AdapterFiles> open_adapter_files(const FileSource& source, const std::string& path);

}  // namespace graft
