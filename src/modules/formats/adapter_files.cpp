#include "modules/formats/adapter_files.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <span>
#include <string_view>
#include <utility>

#include "base/sha256.h"
#include "modules/formats/peft_config.h"

namespace graft {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfigName = "adapter_config.json";
constexpr const char* kWeightsName = "adapter_model.safetensors";
constexpr std::size_t kMaxEntries = 10000;  // of a directory that is looked through

bool starts_with(std::span<const std::byte> bytes, std::string_view magic) {
  return bytes.size() >= magic.size() &&
         std::string_view(reinterpret_cast<const char*>(bytes.data()), magic.size()) == magic;
}

// A torch file is a zip archive around a pickle; older ones are the bare pickle, protocol 2 to 5.
bool is_pickle(std::span<const std::byte> bytes) {
  if (starts_with(bytes, "PK\x03\x04")) return true;
  return bytes.size() >= 2 && bytes[0] == std::byte{0x80} && bytes[1] >= std::byte{2} &&
         bytes[1] <= std::byte{5};
}

Error pickle_refused(const std::string& path) {
  return not_supported("'" + path +
                       "' is a pickle, which can run code when it is read, and is never opened. "
                       "Save the adapter again with save_pretrained(..., "
                       "safe_serialization=True)");
}

bool is_there(const FileSource& source, const fs::path& path) {
  return source.kind(path.string()) != FileSource::Kind::kAbsent;
}

void add_to_digest(Sha256& hash, std::string_view name, std::span<const std::byte> content) {
  for (const std::span<const std::byte> part : {std::as_bytes(std::span(name)), content}) {
    std::array<std::byte, 8> length{};
    for (std::size_t i = 0; i < length.size(); ++i) {
      length[i] = static_cast<std::byte>((part.size() >> (8 * i)) & 0xFF);
    }
    hash.update(length);
    hash.update(part);
  }
}

// The only sub-directory with an adapter_config.json: how PEFT saves an adapter with a name.
Result<fs::path> find_named_adapter(const FileSource& source, const fs::path& directory) {
  GRAFT_ASSIGN_OR_RETURN(const auto names, source.names_in(directory.string(), kMaxEntries));
  std::vector<fs::path> found;
  for (const std::string& name : names) {
    if (is_there(source, directory / name / kConfigName)) found.push_back(directory / name);
  }
  if (found.size() == 1) return found.front();
  if (found.empty()) {
    return invalid_argument("'" + directory.string() + "' has no " + kConfigName +
                            ": it is not a PEFT adapter");
  }
  std::sort(found.begin(), found.end());
  return invalid_argument("'" + directory.string() + "' holds " + std::to_string(found.size()) +
                          " adapters; name one of them, such as '" + found.front().string() + "'");
}

Status check_weights_present(const FileSource& source, const fs::path& directory) {
  if (is_there(source, directory / kWeightsName)) return {};
  if (is_there(source, directory / "adapters.safetensors")) {
    return not_supported("MLX LoRA is not supported yet ('" + directory.string() +
                         "' has adapters.safetensors)");
  }
  for (const char* name : {"adapter_model.bin", "adapter_model.pt", "adapter_model.pth"}) {
    if (is_there(source, directory / name)) return pickle_refused((directory / name).string());
  }
  return not_found("'" + directory.string() + "' has no " + kWeightsName);
}

Result<AdapterFiles> open_peft_directory(const FileSource& source, fs::path directory) {
  if (!is_there(source, directory / kConfigName)) {
    if (is_there(source, directory / "adapters.safetensors")) {
      return check_weights_present(source, directory).error();
    }
    GRAFT_ASSIGN_OR_RETURN(directory, find_named_adapter(source, directory));
  }
  GRAFT_RETURN_IF_ERROR(check_weights_present(source, directory));
  AdapterFiles files;
  files.format = AdapterFormat::kPeft;
  GRAFT_ASSIGN_OR_RETURN(files.config,
                         source.read((directory / kConfigName).string(), kMaxPeftConfigBytes));
  const std::string weights = (directory / kWeightsName).string();
  GRAFT_ASSIGN_OR_RETURN(files.weights, source.read(weights, kMaxAdapterFileBytes));
  if (is_pickle(files.weights)) return pickle_refused(weights);
  Sha256 hash;
  add_to_digest(hash, kConfigName, files.config);
  add_to_digest(hash, kWeightsName, files.weights);
  files.digest = hash.finish_hex();
  return files;
}

Result<AdapterFiles> open_single_file(const FileSource& source, const std::string& path) {
  AdapterFiles files;
  files.format = AdapterFormat::kGguf;
  GRAFT_ASSIGN_OR_RETURN(files.weights, source.read(path, kMaxAdapterFileBytes));
  if (is_pickle(files.weights)) return pickle_refused(path);
  if (!starts_with(files.weights, "GGUF")) {
    const std::string name = fs::path(path).filename().string();
    if (name == "adapters.safetensors") return not_supported("MLX LoRA is not supported yet");
    const bool is_peft_part = name.ends_with(".safetensors") || name == kConfigName;
    return invalid_argument(
        "'" + path + "' is not an adapter by itself" +
        (is_peft_part ? ": the scale is in adapter_config.json. Name the directory that holds both "
                        "files"
                      : " (neither a GGUF file nor a PEFT directory)"));
  }
  Sha256 hash;
  add_to_digest(hash, "adapter.gguf", files.weights);
  files.digest = hash.finish_hex();
  return files;
}

}  // namespace

Result<AdapterFiles> open_adapter_files(const FileSource& source, const std::string& path) {
  const FileSource::Kind kind = source.kind(path);
  if (kind == FileSource::Kind::kAbsent) return not_found("'" + path + "' does not exist");
  if (kind == FileSource::Kind::kDirectory) return open_peft_directory(source, path);
  return open_single_file(source, path);
}

}  // namespace graft
