#include "modules/formats/safetensors.h"

#include <algorithm>
#include <limits>
#include <string_view>
#include <utility>

#include "modules/formats/strict_json.h"

namespace graft {
namespace {

constexpr std::size_t kMaxDimensions = 8;
constexpr std::size_t kMaxNameBytes = 1024;

struct Extent {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  SafetensorsTensor tensor;
};

// 0 for a type that is not on the list.
std::uint64_t bytes_of(std::string_view dtype) {
  static constexpr std::pair<std::string_view, std::uint64_t> kTypes[] = {
      {"F64", 8}, {"F32", 4}, {"F16", 2}, {"BF16", 2}, {"I64", 8}, {"I32", 4}, {"I16", 2},
      {"I8", 1},  {"U64", 8}, {"U32", 4}, {"U16", 2},  {"U8", 1},  {"BOOL", 1}};
  for (const auto& [name, n_bytes] : kTypes) {
    if (name == dtype) return n_bytes;
  }
  return 0;
}

std::uint64_t read_u64(std::span<const std::byte> bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < 8; ++i) {
    value |= std::to_integer<std::uint64_t>(bytes[i]) << (8 * i);
  }
  return value;
}

Error empty_tensor(const std::string& name) {
  return data_corrupt(name +
                      " has no elements. Files saved from DeepSpeed ZeRO-3 shards look like this: "
                      "gather the ZeRO-3 shards and save again");
}

Result<std::vector<std::int64_t>> read_shape(const nlohmann::json& entry, const std::string& name) {
  const auto found = entry.find("shape");
  if (found == entry.end() || !found->is_array()) return data_corrupt(name + " has no shape");
  if (found->size() > kMaxDimensions) {
    return data_corrupt(name + " has " + std::to_string(found->size()) +
                        " dimensions; the limit is " + std::to_string(kMaxDimensions));
  }
  std::vector<std::int64_t> shape;
  for (const auto& dimension : *found) {
    if (!dimension.is_number_unsigned()) return data_corrupt(name + " has a malformed shape");
    const auto n = dimension.get<std::uint64_t>();
    if (n == 0) return empty_tensor(name);
    if (n > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      return data_corrupt(name + " has a dimension that is too large");
    }
    shape.push_back(static_cast<std::int64_t>(n));
  }
  return shape;
}

// The product of the shape, in bytes, or an error when 64 bits cannot hold it.
Result<std::uint64_t> total_bytes(const std::vector<std::int64_t>& shape, std::uint64_t n_bytes,
                                  const std::string& name) {
  for (const std::int64_t n : shape) {
    const auto factor = static_cast<std::uint64_t>(n);
    if (n_bytes > std::numeric_limits<std::uint64_t>::max() / factor) {
      return data_corrupt(name + " has a shape whose product overflows 64 bits");
    }
    n_bytes *= factor;
  }
  return n_bytes;
}

Result<Extent> read_entry(const std::string& tensor_name, const nlohmann::json& entry,
                          std::span<const std::byte> section, const std::string& what) {
  const std::string name = what + ": tensor '" + tensor_name + "'";
  if (tensor_name.empty() || tensor_name.size() > kMaxNameBytes) {
    return data_corrupt(what + ": a tensor name has " + std::to_string(tensor_name.size()) +
                        " bytes; 1 to " + std::to_string(kMaxNameBytes) + " are allowed");
  }
  if (!entry.is_object()) return data_corrupt(name + " is not described by an object");
  const auto dtype = entry.find("dtype");
  if (dtype == entry.end() || !dtype->is_string()) return data_corrupt(name + " has no dtype");

  Extent extent;
  extent.tensor.name = tensor_name;
  extent.tensor.dtype = dtype->get<std::string>();
  const std::uint64_t value_bytes = bytes_of(extent.tensor.dtype);
  if (value_bytes == 0) {
    return data_corrupt(name + " has the unknown dtype '" + extent.tensor.dtype + "'");
  }
  GRAFT_ASSIGN_OR_RETURN(extent.tensor.shape, read_shape(entry, name));
  GRAFT_ASSIGN_OR_RETURN(const std::uint64_t expected,
                         total_bytes(extent.tensor.shape, value_bytes, name));

  const auto offsets = entry.find("data_offsets");
  if (offsets == entry.end() || !offsets->is_array() || offsets->size() != 2 ||
      !(*offsets)[0].is_number_unsigned() || !(*offsets)[1].is_number_unsigned()) {
    return data_corrupt(name + " has no valid data_offsets");
  }
  extent.begin = (*offsets)[0].get<std::uint64_t>();
  extent.end = (*offsets)[1].get<std::uint64_t>();
  if (extent.begin > extent.end || extent.end > section.size()) {
    return data_corrupt(name + " lies outside the file: bytes " + std::to_string(extent.begin) +
                        " to " + std::to_string(extent.end) + " of " +
                        std::to_string(section.size()));
  }
  if (extent.end - extent.begin != expected) {
    return data_corrupt(name + " has " + std::to_string(extent.end - extent.begin) +
                        " bytes; its shape needs " + std::to_string(expected));
  }
  extent.tensor.bytes = section.subspan(extent.begin, expected);
  return extent;
}

Status read_metadata(const nlohmann::json& entry, SafetensorsFile& file, const std::string& what) {
  if (!entry.is_object()) return data_corrupt(what + ": __metadata__ is not an object");
  for (const auto& [name, value] : entry.items()) {
    if (!value.is_string()) {
      return data_corrupt(what + ": __metadata__ '" + name + "' is not a string");
    }
    file.metadata.emplace(name, value.get<std::string>());
  }
  return {};
}

// Extents must follow each other and end where the file ends: bytes that no tensor owns would be
// a place to hide something, and overlaps a sign of damage.
Status check_coverage(const std::vector<Extent>& extents, std::uint64_t section_bytes,
                      const std::string& what) {
  std::uint64_t position = 0;
  for (const Extent& extent : extents) {
    if (extent.begin != position) {
      return data_corrupt(what + ": tensor '" + extent.tensor.name + "' starts at byte " +
                          std::to_string(extent.begin) + "; expected " + std::to_string(position));
    }
    position = extent.end;
  }
  if (position == section_bytes) return {};
  return data_corrupt(what + ": " + std::to_string(section_bytes - position) +
                      " bytes at the end belong to no tensor");
}

Result<std::string_view> header_text(std::span<const std::byte> file, const std::string& what) {
  if (file.size() < 8)
    return data_corrupt(what + ": not a safetensors file (shorter than 8 bytes)");
  const std::uint64_t header_bytes = read_u64(file);
  if (header_bytes > kMaxSafetensorsHeaderBytes) {
    return data_corrupt(what + ": not a safetensors file, or its header of " +
                        std::to_string(header_bytes) + " bytes is over the limit of " +
                        std::to_string(kMaxSafetensorsHeaderBytes));
  }
  if (header_bytes > file.size() - 8) {
    return data_corrupt(what + ": cut off inside its header of " + std::to_string(header_bytes) +
                        " bytes");
  }
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + 8, header_bytes);
  if (text.empty() || text.front() != '{') {
    return data_corrupt(what + ": not a safetensors file (its header is not an object)");
  }
  return text;
}

}  // namespace

Result<SafetensorsFile> read_safetensors(std::span<const std::byte> file, const std::string& what) {
  GRAFT_ASSIGN_OR_RETURN(const std::string_view text, header_text(file, what));
  const JsonLimits limits{.max_depth = 3,
                          .max_values = kMaxSafetensorsTensors * 10,
                          .max_names = kMaxSafetensorsTensors + 1};
  GRAFT_ASSIGN_OR_RETURN(const nlohmann::json header, parse_strict_json(text, limits, what));
  const std::span<const std::byte> section = file.subspan(8 + text.size());

  SafetensorsFile result;
  std::vector<Extent> extents;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") {
      GRAFT_RETURN_IF_ERROR(read_metadata(entry, result, what));
      continue;
    }
    if (extents.size() == kMaxSafetensorsTensors) {
      return data_corrupt(what + ": more than " + std::to_string(kMaxSafetensorsTensors) +
                          " tensors");
    }
    GRAFT_ASSIGN_OR_RETURN(Extent extent, read_entry(name, entry, section, what));
    extents.push_back(std::move(extent));
  }
  std::sort(extents.begin(), extents.end(),
            [](const Extent& x, const Extent& y) { return x.begin < y.begin; });
  GRAFT_RETURN_IF_ERROR(check_coverage(extents, section.size(), what));
  if (extents.empty()) {
    return data_corrupt(what +
                        " holds no tensors. Files saved from DeepSpeed ZeRO-3 shards look like "
                        "this: gather the ZeRO-3 shards and save again");
  }
  result.tensors.reserve(extents.size());
  for (Extent& extent : extents) result.tensors.push_back(std::move(extent.tensor));
  return result;
}

}  // namespace graft
