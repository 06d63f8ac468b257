#include "engine/gguf_header.h"

#include <gguf.h>
#include <llama.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "base/file_bytes.h"
#include "base/sha256.h"

namespace graft {

namespace {

constexpr std::uint64_t kMaxFileBytes = std::uint64_t{1} << 43;

struct GgufFree {
  void operator()(gguf_context* context) const { gguf_free(context); }
};
using GgufPtr = std::unique_ptr<gguf_context, GgufFree>;

// One file, mapped, with its parsed header.
struct GgufFile {
  std::string path;
  FileBytes bytes;
  GgufPtr gguf;
};

Result<GgufFile> open_gguf(const std::string& path) {
  GRAFT_ASSIGN_OR_RETURN(FileBytes bytes, FileBytes::open(path, kMaxFileBytes));
  const auto content = bytes.bytes();
  if (content.size() < 8 || std::memcmp(content.data(), "GGUF", 4) != 0) {
    return Error{ErrorCode::kDataCorrupt, path + " is not a GGUF file", {}};
  }
  GgufPtr gguf(gguf_init_from_file(path.c_str(), {.no_alloc = true, .ctx = nullptr}));
  if (gguf == nullptr) {
    return Error{ErrorCode::kDataCorrupt, path + ": the GGUF header cannot be read", {}};
  }
  for (std::int64_t i = 0; i < gguf_get_n_tensors(gguf.get()); ++i) {
    const std::uint64_t begin = std::uint64_t{gguf_get_data_offset(gguf.get())} +
                                std::uint64_t{gguf_get_tensor_offset(gguf.get(), i)};
    const std::uint64_t size = gguf_get_tensor_size(gguf.get(), i);
    if (begin > content.size() || size > content.size() - begin) {
      return Error{ErrorCode::kDataCorrupt,
                   path + ": the file ends inside tensor " + gguf_get_tensor_name(gguf.get(), i) +
                       "; is the download complete?",
                   {}};
    }
  }
  return GgufFile{path, std::move(bytes), std::move(gguf)};
}

// gguf.h aborts when a value is asked for as the wrong type, hence these.
std::string text_value(const gguf_context* gguf, const std::string& key) {
  const std::int64_t id = gguf_find_key(gguf, key.c_str());
  if (id < 0 || gguf_get_kv_type(gguf, id) != GGUF_TYPE_STRING) return {};
  return gguf_get_val_str(gguf, id);
}

std::optional<std::int64_t> integer_value(const gguf_context* gguf, const std::string& key) {
  const std::int64_t id = gguf_find_key(gguf, key.c_str());
  if (id < 0) return std::nullopt;
  switch (gguf_get_kv_type(gguf, id)) {
    case GGUF_TYPE_UINT8: return gguf_get_val_u8(gguf, id);
    case GGUF_TYPE_INT8: return gguf_get_val_i8(gguf, id);
    case GGUF_TYPE_UINT16: return gguf_get_val_u16(gguf, id);
    case GGUF_TYPE_INT16: return gguf_get_val_i16(gguf, id);
    case GGUF_TYPE_UINT32: return gguf_get_val_u32(gguf, id);
    case GGUF_TYPE_INT32: return gguf_get_val_i32(gguf, id);
    case GGUF_TYPE_INT64: return gguf_get_val_i64(gguf, id);
    case GGUF_TYPE_UINT64: return static_cast<std::int64_t>(gguf_get_val_u64(gguf, id));
    default: return std::nullopt;
  }
}

// Models for embeddings only: they look ahead and have no head that predicts a token.
bool is_non_causal(const gguf_context* gguf, const std::string& architecture) {
  const std::int64_t id = gguf_find_key(gguf, (architecture + ".attention.causal").c_str());
  return id >= 0 && gguf_get_kv_type(gguf, id) == GGUF_TYPE_BOOL && !gguf_get_val_bool(gguf, id);
}

// The parts of a split model are named PREFIX-00001-of-00003.gguf; any of them stands for all.
Result<std::vector<std::string>> part_paths(const GgufFile& file) {
  const std::int64_t n_parts = integer_value(file.gguf.get(), "split.count").value_or(0);
  if (n_parts <= 1) return std::vector<std::string>{file.path};
  constexpr std::int64_t kMaxParts = 4096;
  const std::int64_t part = integer_value(file.gguf.get(), "split.no").value_or(0);
  std::vector<char> text(file.path.size() + 64);
  if (n_parts > kMaxParts || part < 0 || part >= n_parts ||
      llama_split_prefix(text.data(), text.size(), file.path.c_str(),
                         static_cast<std::int32_t>(part),
                         static_cast<std::int32_t>(n_parts)) == 0) {
    return Error{ErrorCode::kDataCorrupt,
                 file.path + " says it is part " + std::to_string(part + 1) + " of " +
                     std::to_string(n_parts) + ", but its name does not",
                 {}};
  }
  const std::string prefix = text.data();
  std::vector<std::string> paths;
  for (std::int32_t i = 0; i < n_parts; ++i) {
    llama_split_path(text.data(), text.size(), prefix.c_str(), i,
                     static_cast<std::int32_t>(n_parts));
    paths.emplace_back(text.data());
  }
  return paths;
}

void add_to_fingerprint(Sha256& sha, const GgufFile& file) {
  constexpr std::size_t kSampleBytes = 4096;
  const auto bytes = file.bytes.bytes();
  const std::size_t data_offset = gguf_get_data_offset(file.gguf.get());
  sha.update(bytes.first(std::min(data_offset, bytes.size())));
  const std::uint64_t size = bytes.size();
  sha.update(std::as_bytes(std::span(&size, 1)));
  for (std::int64_t i = 0; i < gguf_get_n_tensors(file.gguf.get()); ++i) {
    const auto tensor = bytes.subspan(data_offset + gguf_get_tensor_offset(file.gguf.get(), i),
                                      gguf_get_tensor_size(file.gguf.get(), i));
    const std::size_t n = std::min(kSampleBytes, tensor.size());
    sha.update(tensor.first(n));
    sha.update(tensor.last(n));
  }
}

void add_tensors(GgufHeader& header, const gguf_context* gguf) {
  for (std::int64_t i = 0; i < gguf_get_n_tensors(gguf); ++i) {
    BaseTensor tensor;
    const std::int64_t* ne = gguf_get_tensor_ne(gguf, i);
    std::copy(ne, ne + 4, tensor.ne.begin());
    if (ne[1] > 1) {
      header.matrices_by_type[ggml_type_name(gguf_get_tensor_type(gguf, i))] += 1;
    }
    header.base.tensors.emplace(gguf_get_tensor_name(gguf, i), tensor);
  }
}

bool modules_are_proven_on(const std::string& architecture) {
  static const std::set<std::string> proven = {"llama",  "qwen2", "qwen3",
                                               "gemma3", "phi3",  "qwen3moe"};
  return proven.contains(architecture);
}

Status add_metadata(BaseModel& base, const GgufFile& file) {
  const gguf_context* gguf = file.gguf.get();
  const std::string type = text_value(gguf, "general.type");
  if (!type.empty() && type != "model") {
    return invalid_argument(file.path + " holds a GGUF of type \"" + type + "\", not a model");
  }
  base.architecture = text_value(gguf, "general.architecture");
  if (base.architecture.empty()) {
    return Error{ErrorCode::kDataCorrupt, file.path + " names no general.architecture", {}};
  }
  if (is_non_causal(gguf, base.architecture)) {
    return Error{ErrorCode::kNotSupported,
                 file.path + " is an embedding model; it cannot generate text",
                 {}};
  }
  base.name = text_value(gguf, "general.name");
  base.modules_supported = modules_are_proven_on(base.architecture);

  const auto integer = [&](const char* name, std::int64_t otherwise) {
    return integer_value(gguf, base.architecture + "." + name).value_or(otherwise);
  };
  base.n_experts = integer("expert_count", 0);
  base.head_dim_k = integer("attention.key_length", 0);
  base.head_dim_v = integer("attention.value_length", 0);
  return {};
}

}  // namespace

Result<GgufHeader> read_gguf_header(const std::string& path) {
  GRAFT_ASSIGN_OR_RETURN(GgufFile given, open_gguf(path));
  GgufHeader header;
  GRAFT_ASSIGN_OR_RETURN(header.paths, part_paths(given));
  Sha256 sha;
  for (const std::string& part : header.paths) {
    GRAFT_ASSIGN_OR_RETURN(const GgufFile file, open_gguf(part));
    // Only the first part carries the metadata.
    if (part == header.paths.front()) GRAFT_RETURN_IF_ERROR(add_metadata(header.base, file));
    add_tensors(header, file.gguf.get());
    add_to_fingerprint(sha, file);
    header.file_bytes += file.bytes.bytes().size();
  }
  header.base.tied_head = header.base.find("output.weight") == nullptr;
  header.base.digest = sha.finish_hex();
  return header;
}

}  // namespace graft
