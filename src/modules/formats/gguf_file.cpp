#include "modules/formats/gguf_file.h"

#include <bit>
#include <cstring>
#include <limits>
#include <unordered_set>
#include <utility>

namespace graft {
namespace {

constexpr std::uint64_t kMaxKeyBytes = 1024;
constexpr std::uint64_t kMaxTensorNameBytes = 63;  // ggml keeps 64 with the closing zero
constexpr std::uint64_t kMaxAlignment = 1U << 16;
constexpr std::uint64_t kMaxTensorBytes = std::uint64_t{1} << 48;

// Reads numbers and strings one after the other; every read says whether the bytes were there.
class ByteCursor {
 public:
  explicit ByteCursor(std::span<const std::byte> bytes) : bytes_(bytes) {}

  std::uint64_t position() const { return position_; }
  std::uint64_t n_left() const { return bytes_.size() - position_; }

  template <typename T>
  bool read(T& value) {
    if (n_left() < sizeof(T)) return false;
    std::memcpy(&value, bytes_.data() + position_, sizeof(T));
    position_ += sizeof(T);
    return true;
  }

  bool read_string(std::string& text, std::uint64_t max_bytes) {
    std::uint64_t n_bytes = 0;
    if (!read(n_bytes) || n_bytes > max_bytes || n_bytes > n_left()) return false;
    text.assign(reinterpret_cast<const char*>(bytes_.data()) + position_, n_bytes);
    position_ += n_bytes;
    return true;
  }

  bool skip(std::uint64_t n_bytes) {
    if (n_bytes > n_left()) return false;
    position_ += n_bytes;
    return true;
  }

 private:
  std::span<const std::byte> bytes_;
  std::uint64_t position_ = 0;
};

static_assert(std::endian::native == std::endian::little, "GGUF is read as little endian");

// 0 for strings, arrays and unknown types.
std::uint64_t scalar_bytes(std::uint32_t type) {
  switch (static_cast<GgufType>(type)) {
    case GgufType::kU8:
    case GgufType::kI8:
    case GgufType::kBool: return 1;
    case GgufType::kU16:
    case GgufType::kI16: return 2;
    case GgufType::kU32:
    case GgufType::kI32:
    case GgufType::kF32: return 4;
    case GgufType::kU64:
    case GgufType::kI64:
    case GgufType::kF64: return 8;
    case GgufType::kString:
    case GgufType::kArray: return 0;
  }
  return 0;
}

// A name is text without control characters, so that it reads the same as a C string and in logs.
bool is_plain_text(std::string_view name) {
  for (const char c : name) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) return false;
  }
  return !name.empty();
}

template <typename T, typename Wide>
bool read_as(ByteCursor& cursor, GgufValue& value) {
  T number{};
  if (!cursor.read(number)) return false;
  value = static_cast<Wide>(number);
  return true;
}

bool read_array(ByteCursor& cursor, GgufValue& value) {
  std::uint32_t type = 0;
  GgufArray array;
  if (!cursor.read(type) || !cursor.read(array.n_elements)) return false;
  array.element_type = static_cast<GgufType>(type);
  value = array;
  if (array.element_type == GgufType::kString) {
    if (array.n_elements > cursor.n_left() / 8) return false;
    for (std::uint64_t i = 0; i < array.n_elements; ++i) {
      std::uint64_t n_bytes = 0;
      if (!cursor.read(n_bytes) || !cursor.skip(n_bytes)) return false;
    }
    return true;
  }
  const std::uint64_t n_bytes = scalar_bytes(type);
  if (n_bytes == 0 || array.n_elements > cursor.n_left() / n_bytes) return false;
  return cursor.skip(array.n_elements * n_bytes);
}

bool read_value(ByteCursor& cursor, GgufType type, GgufValue& value) {
  switch (type) {
    case GgufType::kU8: return read_as<std::uint8_t, std::uint64_t>(cursor, value);
    case GgufType::kI8: return read_as<std::int8_t, std::int64_t>(cursor, value);
    case GgufType::kU16: return read_as<std::uint16_t, std::uint64_t>(cursor, value);
    case GgufType::kI16: return read_as<std::int16_t, std::int64_t>(cursor, value);
    case GgufType::kU32: return read_as<std::uint32_t, std::uint64_t>(cursor, value);
    case GgufType::kI32: return read_as<std::int32_t, std::int64_t>(cursor, value);
    case GgufType::kF32: return read_as<float, double>(cursor, value);
    case GgufType::kBool: return read_as<std::uint8_t, bool>(cursor, value);
    case GgufType::kU64: return read_as<std::uint64_t, std::uint64_t>(cursor, value);
    case GgufType::kI64: return read_as<std::int64_t, std::int64_t>(cursor, value);
    case GgufType::kF64: return read_as<double, double>(cursor, value);
    case GgufType::kArray: return read_array(cursor, value);
    case GgufType::kString: {
      std::string text;
      if (!cursor.read_string(text, cursor.n_left())) return false;
      value = std::move(text);
      return true;
    }
  }
  return false;
}

struct Header {
  std::uint64_t n_tensors = 0;
  std::uint64_t n_keys = 0;
};

Result<Header> read_header(ByteCursor& cursor, GgufFile& file, const std::string& what) {
  std::array<char, 4> magic{};
  Header header;
  if (!cursor.read(magic) || std::string_view(magic.data(), magic.size()) != "GGUF") {
    return data_corrupt(what + ": not a GGUF file");
  }
  if (!cursor.read(file.version)) return data_corrupt(what + ": cut off inside its header");
  if (file.version != 0 && (file.version & 0xFFFF) == 0) {
    return not_supported(what + ": a big-endian GGUF file; only little endian is supported");
  }
  if (file.version != 2 && file.version != 3) {
    return not_supported(what + ": GGUF version " + std::to_string(file.version) +
                         "; versions 2 and 3 are supported");
  }
  if (!cursor.read(header.n_tensors) || !cursor.read(header.n_keys)) {
    return data_corrupt(what + ": cut off inside its header");
  }
  if (header.n_tensors > kMaxGgufTensors || header.n_keys > kMaxGgufKeys) {
    return data_corrupt(what + ": announces " + std::to_string(header.n_tensors) + " tensors and " +
                        std::to_string(header.n_keys) + " keys; the limits for an adapter are " +
                        std::to_string(kMaxGgufTensors) + " and " + std::to_string(kMaxGgufKeys));
  }
  return header;
}

Status read_keys(ByteCursor& cursor, std::uint64_t n_keys, GgufFile& file,
                 const std::string& what) {
  std::unordered_set<std::string> seen;
  for (std::uint64_t i = 0; i < n_keys; ++i) {
    GgufKey key;
    std::uint32_t type = 0;
    if (!cursor.read_string(key.name, kMaxKeyBytes) || !is_plain_text(key.name)) {
      return data_corrupt(what + ": key " + std::to_string(i) + " has no valid name");
    }
    if (!seen.insert(key.name).second) {
      return data_corrupt(what + ": the key '" + key.name + "' stands twice");
    }
    if (!cursor.read(type)) return data_corrupt(what + ": cut off at the key '" + key.name + "'");
    key.type = static_cast<GgufType>(type);
    if (!read_value(cursor, key.type, key.value)) {
      return data_corrupt(what + ": the key '" + key.name + "' has no valid value");
    }
    file.keys.push_back(std::move(key));
  }
  return {};
}

Status read_alignment(GgufFile& file, const std::string& what) {
  const GgufKey* key = file.find("general.alignment");
  if (key == nullptr) return {};
  const auto* value = std::get_if<std::uint64_t>(&key->value);
  if (key->type != GgufType::kU32 || value == nullptr || !std::has_single_bit(*value) ||
      *value > kMaxAlignment) {
    return data_corrupt(what + ": general.alignment must be a power of two up to " +
                        std::to_string(kMaxAlignment));
  }
  file.alignment = *value;
  return {};
}

// ggml's names of the types that are not read here, for the message.
std::string type_name(std::uint32_t type) {
  static constexpr std::pair<std::uint32_t, const char*> kNames[] = {
      {2, "Q4_0"},    {3, "Q4_1"},     {6, "Q5_0"},    {7, "Q5_1"},     {9, "Q8_1"},
      {10, "Q2_K"},   {11, "Q3_K"},    {12, "Q4_K"},   {13, "Q5_K"},    {14, "Q6_K"},
      {15, "Q8_K"},   {16, "IQ2_XXS"}, {17, "IQ2_XS"}, {18, "IQ3_XXS"}, {19, "IQ1_S"},
      {20, "IQ4_NL"}, {21, "IQ3_S"},   {22, "IQ2_S"},  {23, "IQ4_XS"},  {24, "I8"},
      {25, "I16"},    {26, "I32"},     {27, "I64"},    {28, "F64"},     {29, "IQ1_M"},
      {34, "TQ1_0"},  {35, "TQ2_0"},   {39, "MXFP4"}};
  for (const auto& [number, name] : kNames) {
    if (number == type) return name;
  }
  return "number " + std::to_string(type);
}

struct BlockLayout {
  std::uint64_t n_values = 1;
  std::uint64_t n_bytes = 4;
};

std::optional<BlockLayout> block_layout(std::uint32_t type) {
  switch (static_cast<GgufTensorType>(type)) {
    case GgufTensorType::kF32: return BlockLayout{1, 4};
    case GgufTensorType::kF16:
    case GgufTensorType::kBF16: return BlockLayout{1, 2};
    case GgufTensorType::kQ8_0: return BlockLayout{32, 34};
  }
  return std::nullopt;
}

Status read_shape(ByteCursor& cursor, GgufTensor& tensor, const std::string& name) {
  if (!cursor.read(tensor.n_dims) || tensor.n_dims < 1 || tensor.n_dims > tensor.ne.size()) {
    return data_corrupt(name + " must have 1 to 4 dimensions");
  }
  std::uint64_t n_values = 1;
  for (std::uint32_t i = 0; i < tensor.n_dims; ++i) {
    std::uint64_t n = 0;
    if (!cursor.read(n)) return data_corrupt(name + " is cut off");
    if (n == 0) return data_corrupt(name + " has no elements");
    if (n > kMaxTensorBytes / n_values) return data_corrupt(name + " is too large");
    n_values *= n;
    tensor.ne[i] = static_cast<std::int64_t>(n);
  }
  return {};
}

// The size of the tensor in bytes; its type is set.
Result<std::uint64_t> read_type(ByteCursor& cursor, GgufTensor& tensor, const std::string& name) {
  std::uint32_t type = 0;
  if (!cursor.read(type)) return data_corrupt(name + " is cut off");
  const std::optional<BlockLayout> block = block_layout(type);
  if (!block.has_value()) {
    return not_supported(name + " has the type " + type_name(type) +
                         "; adapters are read as F32, F16, BF16 or Q8_0");
  }
  tensor.type = static_cast<GgufTensorType>(type);
  const auto row_values = static_cast<std::uint64_t>(tensor.ne[0]);
  if (row_values % block->n_values != 0) {
    return data_corrupt(name + " has rows of " + std::to_string(row_values) +
                        " values, not a multiple of " + std::to_string(block->n_values));
  }
  std::uint64_t n_values = row_values;
  for (std::size_t i = 1; i < tensor.ne.size(); ++i) {
    n_values *= static_cast<std::uint64_t>(tensor.ne[i]);  // bounded by read_shape
  }
  return n_values / block->n_values * block->n_bytes;
}

struct PendingTensor {
  GgufTensor tensor;
  std::uint64_t n_bytes = 0;
};

Result<PendingTensor> read_tensor(ByteCursor& cursor, std::uint64_t index,
                                  const std::string& what) {
  PendingTensor pending;
  GgufTensor& tensor = pending.tensor;
  if (!cursor.read_string(tensor.name, kMaxTensorNameBytes) || !is_plain_text(tensor.name)) {
    return data_corrupt(what + ": tensor " + std::to_string(index) + " has no valid name");
  }
  const std::string name = what + ": tensor '" + tensor.name + "'";
  GRAFT_RETURN_IF_ERROR(read_shape(cursor, tensor, name));
  GRAFT_ASSIGN_OR_RETURN(pending.n_bytes, read_type(cursor, tensor, name));
  if (!cursor.read(tensor.offset)) return data_corrupt(name + " is cut off");
  return pending;
}

std::uint64_t round_up(std::uint64_t value, std::uint64_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

// Gives every tensor its bytes. They follow each other, each padded to the alignment.
Status place_tensors(std::vector<PendingTensor> pending, std::span<const std::byte> file_bytes,
                     std::uint64_t data_start, GgufFile& file, const std::string& what) {
  std::uint64_t expected = 0;
  for (PendingTensor& entry : pending) {
    GgufTensor& tensor = entry.tensor;
    const std::string name = what + ": tensor '" + tensor.name + "'";
    if (tensor.offset != expected) {
      return data_corrupt(name + " starts at byte " + std::to_string(tensor.offset) +
                          "; expected " + std::to_string(expected));
    }
    const std::uint64_t n_left = file_bytes.size() - data_start;
    if (tensor.offset > n_left || entry.n_bytes > n_left - tensor.offset) {
      return data_corrupt(name + " lies outside the file: it needs " +
                          std::to_string(entry.n_bytes) + " bytes");
    }
    tensor.bytes = file_bytes.subspan(data_start + tensor.offset, entry.n_bytes);
    expected = round_up(tensor.offset + entry.n_bytes, file.alignment);
    file.tensors.push_back(std::move(tensor));
  }
  return {};
}

}  // namespace

const char* to_string(GgufTensorType type) {
  switch (type) {
    case GgufTensorType::kF32: return "F32";
    case GgufTensorType::kF16: return "F16";
    case GgufTensorType::kQ8_0: return "Q8_0";
    case GgufTensorType::kBF16: return "BF16";
  }
  return "unknown";
}

const GgufKey* GgufFile::find(std::string_view key) const {
  for (const GgufKey& entry : keys) {
    if (entry.name == key) return &entry;
  }
  return nullptr;
}

std::string GgufFile::string_or_empty(std::string_view key) const {
  const GgufKey* entry = find(key);
  if (entry == nullptr) return {};
  const auto* text = std::get_if<std::string>(&entry->value);
  return text == nullptr ? std::string() : *text;
}

Result<GgufFile> read_gguf(std::span<const std::byte> bytes, const std::string& what) {
  GgufFile file;
  ByteCursor cursor(bytes);
  GRAFT_ASSIGN_OR_RETURN(const Header header, read_header(cursor, file, what));
  GRAFT_RETURN_IF_ERROR(read_keys(cursor, header.n_keys, file, what));
  GRAFT_RETURN_IF_ERROR(read_alignment(file, what));
  if (file.string_or_empty("general.type") == "model") {
    return not_supported(what + ": a model, not an adapter (general.type is 'model')");
  }

  std::vector<PendingTensor> pending;
  std::unordered_set<std::string> seen;
  for (std::uint64_t i = 0; i < header.n_tensors; ++i) {
    GRAFT_ASSIGN_OR_RETURN(PendingTensor entry, read_tensor(cursor, i, what));
    if (!seen.insert(entry.tensor.name).second) {
      return data_corrupt(what + ": the tensor '" + entry.tensor.name + "' stands twice");
    }
    pending.push_back(std::move(entry));
  }
  const std::uint64_t data_start = round_up(cursor.position(), file.alignment);
  if (!pending.empty() && data_start > bytes.size()) {
    return data_corrupt(what + ": cut off before its tensors");
  }
  GRAFT_RETURN_IF_ERROR(place_tensors(std::move(pending), bytes, data_start, file, what));
  return file;
}

}  // namespace graft
