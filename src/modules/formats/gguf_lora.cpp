#include "modules/formats/gguf_lora.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "modules/formats/factors.h"
#include "modules/formats/tensor_names.h"

namespace graft {
namespace {

struct Pair {
  const GgufTensor* a = nullptr;
  const GgufTensor* b = nullptr;
};

using Pairs = std::map<std::string, Pair>;  // by name of the base's tensor

std::string shape_text(const GgufTensor& tensor) {
  std::string text = "{";
  for (std::uint32_t i = 0; i < tensor.n_dims; ++i) {
    text += (i > 0 ? ", " : "") + std::to_string(tensor.ne[i]);
  }
  return text + "}";
}

Result<Pairs> collect_pairs(const GgufFile& file, LoadReport& report) {
  Pairs pairs;
  for (const GgufTensor& tensor : file.tensors) {
    const std::string& name = tensor.name;
    if (name.ends_with(".lora_a")) {
      pairs[name.substr(0, name.size() - 7)].a = &tensor;
    } else if (name.ends_with(".lora_b")) {
      pairs[name.substr(0, name.size() - 7)].b = &tensor;
    } else if (name.ends_with("_norm.weight")) {
      report.ignored.push_back(name + ": LoRA does not train norms; llama.cpp ignores it too");
    } else {
      return not_supported("tensor '" + name + "' is not part of a LoRA adapter");
    }
  }
  for (const auto& [name, pair] : pairs) {
    if (pair.a != nullptr && pair.b != nullptr) continue;
    const GgufTensor* half = pair.a != nullptr ? pair.a : pair.b;
    return data_corrupt("tensor '" + half->name + "' has no counterpart " +
                        (pair.a == nullptr ? ".lora_a" : ".lora_b"));
  }
  if (pairs.empty()) {
    return invalid_argument("the file holds no LoRA factors, so the adapter would do nothing");
  }
  return pairs;
}

Error wrong_shape(const GgufTensor& tensor, const std::string& expected, const SiteKey& site) {
  return invalid_argument("tensor '" + tensor.name + "' has shape " + shape_text(tensor) + "; " +
                          site.tensor + " of this base needs " + expected +
                          ". Was the adapter trained on another model?");
}

// Sizes of the term; every dimension of both factors is held against the base.
Result<LoraTerm> fit_to_base(const Pair& pair, const SiteKey& site, const BaseTensor& weight) {
  const bool is_table = site.op == SiteOp::kGetRows;
  LoraTerm term;
  term.site = site;
  term.rank = pair.b->ne[0];
  term.n_in = is_table ? weight.ne[1] : weight.ne[0];
  term.n_out = is_table ? weight.ne[0] : weight.ne[1];
  term.n_experts = site.op == SiteOp::kMatMulId ? weight.ne[2] : 1;
  const std::array<std::int64_t, 4> a = {is_table ? term.rank : term.n_in,
                                         is_table ? term.n_in : term.rank, term.n_experts, 1};
  const std::array<std::int64_t, 4> b = {term.rank, term.n_out, term.n_experts, 1};
  const std::string experts =
      site.op == SiteOp::kMatMulId ? ", " + std::to_string(term.n_experts) : "";
  if (pair.a->ne != a) {
    const std::string in = std::to_string(term.n_in);
    const std::string r = std::to_string(term.rank);
    return wrong_shape(
        *pair.a, is_table ? "{" + r + ", " + in + "}" : "{" + in + ", " + r + experts + "}", site);
  }
  if (pair.b->ne != b) {
    return wrong_shape(*pair.b, "{r, " + std::to_string(term.n_out) + experts + "}", site);
  }
  return term;
}

Result<FactorMatrix> read_matrix(const GgufTensor& tensor) {
  const std::int64_t n_cols = tensor.ne[0];
  const std::int64_t n_rows = tensor.ne[1] * tensor.ne[2] * tensor.ne[3];
  switch (tensor.type) {
    case GgufTensorType::kF32:
      return make_factor(FactorType::kF32, n_rows, n_cols, tensor.bytes, tensor.name);
    case GgufTensorType::kF16:
      return make_factor(FactorType::kF16, n_rows, n_cols, tensor.bytes, tensor.name);
    case GgufTensorType::kBF16:
      return make_factor(FactorType::kBF16, n_rows, n_cols, tensor.bytes, tensor.name);
    case GgufTensorType::kQ8_0:
      return make_factor_from_q8_0(n_rows, n_cols, tensor.bytes, tensor.name);
  }
  return internal_error("unknown tensor type");
}

// A tied base has no output.weight; a factor for it acts where token_embd.weight is the head.
Result<SiteKey> find_site(const std::string& tensor, const BaseModel& base) {
  if (tensor == "output.weight" && base.tied_head && base.find("token_embd.weight") != nullptr) {
    return SiteKey{SiteOp::kMatMul, "token_embd.weight"};
  }
  const std::optional<SiteOp> op = adaptable_op(tensor, base);
  if (op.has_value()) return SiteKey{*op, tensor};
  return invalid_argument(
      "the adapter acts on '" + tensor + "', which " +
      (base.find(tensor) == nullptr ? "the base does not have" : "takes no low-rank factors"));
}

Result<LoraTerm> bind_pair(const std::string& name, const Pair& pair, double alpha,
                           const BaseModel& base) {
  GRAFT_ASSIGN_OR_RETURN(const SiteKey site, find_site(name, base));
  GRAFT_ASSIGN_OR_RETURN(LoraTerm term, fit_to_base(pair, site, *base.find(site.tensor)));
  term.scale = alpha == 0 ? 1.0F : static_cast<float>(alpha / static_cast<double>(term.rank));
  GRAFT_ASSIGN_OR_RETURN(term.a, read_matrix(*pair.a));
  GRAFT_ASSIGN_OR_RETURN(term.b, read_matrix(*pair.b));
  return term;
}

Status check_kind(const GgufFile& file, const std::string& architecture) {
  if (architecture == "controlvector") {
    return not_supported("control vectors are not supported yet");
  }
  const std::string type = file.string_or_empty("general.type");
  if (type != "adapter") {
    return invalid_argument("general.type is '" + type + "', not 'adapter'");
  }
  const std::string kind = file.string_or_empty("adapter.type");
  if (kind != "lora") return not_supported("adapters of type '" + kind + "' are not supported yet");
  if (file.find("adapter.alora.invocation_tokens") != nullptr) {
    return not_supported("aLoRA (activated LoRA) is not supported yet");
  }
  return {};
}

void note_keys(const GgufFile& file, LoadReport& report) {
  for (const char* key : {"adapter.lora.task_name", "adapter.lora.prompt_prefix"}) {
    const std::string text = file.string_or_empty(key);
    if (!text.empty()) report.notes.push_back(std::string(key) + ": " + text);
  }
}

}  // namespace

Result<GgufLoraHeader> read_gguf_lora_header(const GgufFile& file) {
  GgufLoraHeader header;
  header.architecture = file.string_or_empty("general.architecture");
  GRAFT_RETURN_IF_ERROR(check_kind(file, header.architecture));
  header.base_name = file.string_or_empty("general.base_model.0.name");
  if (const GgufKey* alpha = file.find("adapter.lora.alpha")) {
    const auto* value = std::get_if<double>(&alpha->value);
    if (value == nullptr || !std::isfinite(*value) || std::abs(*value) > 1e9) {
      return data_corrupt("adapter.lora.alpha is not a finite number");
    }
    header.alpha = *value;
  }
  return header;
}

Result<Adapter> bind_gguf_lora(const GgufFile& file, const BaseModel& base) {
  GRAFT_ASSIGN_OR_RETURN(const GgufLoraHeader header, read_gguf_lora_header(file));
  GRAFT_RETURN_IF_ERROR(check_architecture(base));
  if (header.architecture != base.architecture) {
    return invalid_argument("the adapter was made for the architecture '" + header.architecture +
                            "', the base is '" + base.architecture + "'");
  }
  Adapter adapter;
  adapter.architecture = base.architecture;
  LoadReport& report = adapter.report;
  report.format = "GGUF LoRA";
  report.base_name = header.base_name;
  report.n_tensors = static_cast<std::int64_t>(file.tensors.size());
  GRAFT_ASSIGN_OR_RETURN(const Pairs pairs, collect_pairs(file, report));
  for (const auto& [name, pair] : pairs) {
    GRAFT_ASSIGN_OR_RETURN(LoraTerm term, bind_pair(name, pair, header.alpha, base));
    const std::string target =
        std::string(" -> ") + to_string(term.site.op) + " " + term.site.tensor;
    report.bound.push_back(pair.a->name + target);
    report.bound.push_back(pair.b->name + target);
    report.max_rank = std::max(report.max_rank, term.rank);
    adapter.terms.push_back(std::move(term));
  }
  if (header.alpha == 0) report.notes.emplace_back("no alpha in the file: every scale is 1");
  note_keys(file, report);
  return adapter;
}

}  // namespace graft
