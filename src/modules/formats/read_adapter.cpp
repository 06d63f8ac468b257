#include "modules/formats/read_adapter.h"

#include <new>
#include <set>
#include <string_view>
#include <utility>

#include "modules/formats/adapter_files.h"
#include "modules/formats/gguf_file.h"
#include "modules/formats/gguf_lora.h"
#include "modules/formats/peft_config.h"
#include "modules/formats/peft_lora.h"
#include "modules/formats/peft_tensors.h"
#include "modules/formats/safetensors.h"

namespace graft {
namespace {

constexpr const char* kWeightsName = "adapter_model.safetensors";

std::string_view as_text(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Result<Adapter> bind(const AdapterFiles& files, const std::string& path, const BaseModel& base) {
  if (files.format == AdapterFormat::kGguf) {
    GRAFT_ASSIGN_OR_RETURN(const GgufFile file, read_gguf(files.weights, path));
    return bind_gguf_lora(file, base);
  }
  GRAFT_ASSIGN_OR_RETURN(const PeftConfig config, parse_peft_config(as_text(files.config)));
  GRAFT_RETURN_IF_ERROR(check_supported(config));
  GRAFT_ASSIGN_OR_RETURN(const SafetensorsFile file, read_safetensors(files.weights, kWeightsName));
  return bind_peft_lora(config, file, base);
}

Result<std::shared_ptr<const Adapter>> read_checked(const FileSource& source,
                                                    const std::string& path,
                                                    const BaseModel& base) {
  GRAFT_ASSIGN_OR_RETURN(const AdapterFiles files, open_adapter_files(source, path));
  GRAFT_ASSIGN_OR_RETURN(Adapter adapter, bind(files, path, base));
  adapter.digest = files.digest;
  return std::shared_ptr<const Adapter>(std::make_shared<Adapter>(std::move(adapter)));
}

// "model.layers.0.self_attn.q_proj" -> "q_proj", "blk.0.attn_q.weight" -> "attn_q".
std::string target_of(std::string_view module) {
  if (module.ends_with(".weight")) module.remove_suffix(7);
  return std::string(module.substr(module.rfind('.') + 1));
}

void summarise_peft(const PeftConfig& config, const SafetensorsFile& file,
                    AdapterSummary& summary) {
  summary.format =
      "PEFT " + (config.peft_type == "LORA" ? "LoRA" : config.peft_type) + " (safetensors)";
  summary.base_name = config.base_model_name;
  summary.alpha = config.peft_type == "LORA" ? config.lora_alpha : 0;
  summary.use_rslora = config.use_rslora;
  if (const Status supported = check_supported(config); !supported) {
    summary.refusal = supported.error().message;
  }
  for (const SafetensorsTensor& tensor : file.tensors) {
    summary.tensors.push_back({tensor.name, tensor.dtype, tensor.shape});
  }
  const Result<PeftTensors> tensors = group_peft_tensors(file);
  if (!tensors) {
    if (summary.refusal.empty()) summary.refusal = tensors.error().message;
    return;
  }
  std::set<std::int64_t> ranks;
  std::set<std::string> targets;
  for (const auto& [path, module] : tensors->modules) {
    ranks.insert(module.rank());
    targets.insert(target_of(path));
  }
  summary.ranks.assign(ranks.begin(), ranks.end());
  summary.targets.assign(targets.begin(), targets.end());
}

void summarise_gguf(const GgufFile& file, AdapterSummary& summary) {
  summary.format = "GGUF LoRA";
  summary.architecture = file.string_or_empty("general.architecture");
  if (const Result<GgufLoraHeader> header = read_gguf_lora_header(file)) {
    summary.base_name = header->base_name;
    summary.alpha = header->alpha;
  } else {
    summary.format = "GGUF";
    summary.refusal = header.error().message;
  }
  std::set<std::int64_t> ranks;
  std::set<std::string> targets;
  for (const GgufTensor& tensor : file.tensors) {
    std::vector<std::int64_t> shape(tensor.ne.begin(), tensor.ne.begin() + tensor.n_dims);
    summary.tensors.push_back(
        {tensor.name, to_string(tensor.type), {shape.rbegin(), shape.rend()}});
    if (!tensor.name.ends_with(".lora_b")) continue;
    ranks.insert(tensor.ne[0]);
    targets.insert(target_of(std::string_view(tensor.name).substr(0, tensor.name.size() - 7)));
  }
  summary.ranks.assign(ranks.begin(), ranks.end());
  summary.targets.assign(targets.begin(), targets.end());
}

Result<AdapterSummary> inspect_checked(const std::string& path) {
  GRAFT_ASSIGN_OR_RETURN(const AdapterFiles files, open_adapter_files(PlainFiles(), path));
  AdapterSummary summary;
  summary.digest = files.digest;
  summary.n_bytes = files.config.size() + files.weights.size();
  if (files.format == AdapterFormat::kGguf) {
    GRAFT_ASSIGN_OR_RETURN(const GgufFile file, read_gguf(files.weights, path));
    summarise_gguf(file, summary);
    return summary;
  }
  GRAFT_ASSIGN_OR_RETURN(const PeftConfig config, parse_peft_config(as_text(files.config)));
  GRAFT_ASSIGN_OR_RETURN(const SafetensorsFile file, read_safetensors(files.weights, kWeightsName));
  summarise_peft(config, file, summary);
  return summary;
}

Error out_of_memory(const std::string& path) {
  return {ErrorCode::kResourceExhausted, "not enough memory to read '" + path + "'", {}};
}

}  // namespace

Result<std::shared_ptr<const Adapter>> read_adapter(const std::string& path,
                                                    const BaseModel& base) {
  return read_adapter(PlainFiles(), path, base);
}

Result<std::shared_ptr<const Adapter>> read_adapter(const FileSource& source,
                                                    const std::string& path,
                                                    const BaseModel& base) {
  try {
    return read_checked(source, path, base);
  } catch (const std::bad_alloc&) {
    return out_of_memory(path);
  }
}

Result<AdapterSummary> inspect_adapter(const std::string& path) {
  try {
    return inspect_checked(path);
  } catch (const std::bad_alloc&) {
    return out_of_memory(path);
  }
}

}  // namespace graft
