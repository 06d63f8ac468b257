#include "modules/formats/peft_tensors.h"

#include <optional>
#include <utility>

#include "modules/formats/hf_names.h"

namespace graft {
namespace {

std::optional<FactorType> find_factor_type(const std::string& dtype) {
  if (dtype == "F32") return FactorType::kF32;
  if (dtype == "F16") return FactorType::kF16;
  if (dtype == "BF16") return FactorType::kBF16;
  return std::nullopt;
}

Error foreign_tensor(const SafetensorsTensor& tensor, const HfTensorName& name) {
  if (!name.note.empty()) {
    return not_supported(name.note + " is not supported yet (tensor '" + tensor.name + "')");
  }
  return invalid_argument("tensor '" + tensor.name + "' is not part of a LoRA adapter");
}

// target_parameters adapts all experts of a layer at once; a second target nests in a base_layer.
bool is_fused_experts(const std::string& module) {
  return module.ends_with(".experts") || module.ends_with(".experts.base_layer");
}

Status add_factor(const SafetensorsTensor& tensor, const HfTensorName& name, PeftModule& module) {
  const bool is_embedding = name.part == HfPart::kEmbeddingA || name.part == HfPart::kEmbeddingB;
  const bool is_first = module.a == nullptr && module.b == nullptr && module.bias == nullptr;
  if (is_first) {
    module.peft_path = name.peft_module;
    module.is_embedding = is_embedding;
  } else if (module.is_embedding != is_embedding) {
    return data_corrupt("module '" + name.module +
                        "' has factors of a linear layer and of an embedding");
  }
  const bool is_a = name.part == HfPart::kLoraA || name.part == HfPart::kEmbeddingA;
  const bool is_bias = name.part == HfPart::kLoraBBias;
  const SafetensorsTensor*& place = is_a ? module.a : is_bias ? module.bias : module.b;
  if (place != nullptr) {
    return data_corrupt("tensors '" + place->name + "' and '" + tensor.name +
                        "' are both for module '" + name.module + "'");
  }
  if (!find_factor_type(tensor.dtype).has_value()) {
    return not_supported("tensor '" + tensor.name + "' has the dtype " + tensor.dtype +
                         "; factors are read as F32, F16 or BF16");
  }
  if (tensor.shape.size() != (is_bias ? 1U : 2U)) {
    return data_corrupt("tensor '" + tensor.name + "' has shape " + shape_text(tensor.shape) +
                        "; expected " + (is_bias ? "1 dimension" : "2 dimensions"));
  }
  place = &tensor;
  return {};
}

Status check_pair(const std::string& path, const PeftModule& module) {
  if (module.a == nullptr || module.b == nullptr) {
    const SafetensorsTensor* half = module.a != nullptr   ? module.a
                                    : module.b != nullptr ? module.b
                                                          : module.bias;
    return data_corrupt("module '" + path + "' has only a part of its factors ('" + half->name +
                        "'); " + (module.a == nullptr ? "lora_A" : "lora_B") + " is missing");
  }
  if (module.a->shape[0] != module.b->shape[1]) {
    return data_corrupt("tensors '" + module.a->name + "' " + shape_text(module.a->shape) +
                        " and '" + module.b->name + "' " + shape_text(module.b->shape) +
                        " have different ranks");
  }
  if (module.bias != nullptr && module.bias->shape[0] != module.b->shape[0]) {
    return data_corrupt("tensor '" + module.bias->name + "' has " +
                        std::to_string(module.bias->shape[0]) + " values for " +
                        std::to_string(module.b->shape[0]) + " outputs");
  }
  return {};
}

Status check_not_empty(const PeftTensors& tensors) {
  if (!tensors.modules.empty()) return {};
  if (!tensors.vision.empty()) {
    return not_supported("the adapter acts on the vision or audio tower only (" +
                         std::to_string(tensors.vision.size()) +
                         " tensors), nothing on the text model");
  }
  return invalid_argument("the file holds no LoRA factors, so the adapter would do nothing");
}

}  // namespace

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text = "[";
  for (const std::int64_t n : shape) {
    if (text.size() > 1) text += ", ";
    text += std::to_string(n);
  }
  return text + "]";
}

FactorType factor_type(const SafetensorsTensor& tensor) {
  const std::optional<FactorType> type = find_factor_type(tensor.dtype);
  GRAFT_CHECK(type.has_value());
  return *type;
}

Result<PeftTensors> group_peft_tensors(const SafetensorsFile& file) {
  PeftTensors result;
  for (const SafetensorsTensor& tensor : file.tensors) {
    const HfTensorName name = parse_hf_tensor_name(tensor.name);
    if (name.is_vision) {
      result.vision.push_back(&tensor);
      continue;
    }
    if (name.part == HfPart::kOther) return foreign_tensor(tensor, name);
    if (name.part == HfPart::kBaseCopy || name.part == HfPart::kPlain) {
      result.plain.push_back({name.module, &tensor, name.part == HfPart::kBaseCopy});
      continue;
    }
    if (is_fused_experts(name.module)) {
      return not_supported(
          "LoRA on fused expert weights (target_parameters) is not supported yet (tensor '" +
          tensor.name + "')");
    }
    GRAFT_RETURN_IF_ERROR(add_factor(tensor, name, result.modules[name.module]));
  }
  for (const auto& [path, module] : result.modules) {
    GRAFT_RETURN_IF_ERROR(check_pair(path, module));
  }
  GRAFT_RETURN_IF_ERROR(check_not_empty(result));
  return result;
}

}  // namespace graft
