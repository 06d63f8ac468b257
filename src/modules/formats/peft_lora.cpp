#include "modules/formats/peft_lora.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "modules/formats/expert_stack.h"
#include "modules/formats/factors.h"
#include "modules/formats/peft_tensors.h"
#include "modules/formats/tensor_names.h"

namespace graft {
namespace {

constexpr std::size_t kMaxNamed = 5;  // unmatched tensors that a message lists

// One module's factors, converted, before they are dealt out to sites.
struct Factors {
  FactorMatrix a;           // linear: [r, in]; embedding: [vocab, r]
  FactorMatrix b;           // [out, r]
  std::vector<float> bias;  // [out] or empty
};

std::string site_text(const SiteKey& site) {
  return std::string(to_string(site.op)) + " " + site.tensor;
}

Error named_twice(const SiteKey& site) {
  return data_corrupt("two modules of the file write " + site_text(site));
}

Result<FactorMatrix> read_matrix(const SafetensorsTensor& tensor) {
  return make_factor(factor_type(tensor), tensor.shape[0], tensor.shape[1], tensor.bytes,
                     tensor.name);
}

class PeftBinder {
 public:
  PeftBinder(const PeftConfig& config, const BaseModel& base, PeftScaleRule scales)
      : config_(config), base_(base), scales_(std::move(scales)) {}

  Result<Adapter> bind(const SafetensorsFile& file);

 private:
  Status bind_module(const std::string& path, const PeftModule& module);
  Status check_shapes(const PeftModule& module, const ModuleSites& sites);
  bool is_cut_vocabulary(std::int64_t in_file, std::int64_t in_base, const SiteKey& site) const;
  Result<Factors> read_factors(const PeftModule& module, const ModuleSites& sites);
  LoraTerm make_term(const Factors& factors, const SiteSlice& slice, float scale) const;
  Status add_terms(const Factors& factors, const ModuleSites& sites, float scale);
  Status tie_head(const PeftTensors& tensors);
  Status account_for_plain(const PeftTensors& tensors);
  Status finish_experts();
  Status count_bytes(std::uint64_t n_bytes);
  void note_settings(const PeftTensors& tensors);
  Status check_unmatched() const;

  const PeftConfig& config_;
  const BaseModel& base_;
  PeftScaleRule scales_;
  Adapter adapter_;
  std::map<std::pair<std::string, std::int64_t>, ExpertStack> experts_;  // by tensor and offset
  std::set<std::pair<std::string, std::int64_t>> places_;  // sites and offsets written so far
  std::vector<std::string> unmatched_;
  std::uint64_t n_factor_bytes_ = 0;
  std::int64_t n_other_ranks_ = 0;  // modules whose rank is not what the config announces
};

// Gemma 3's converter cuts the table to the tokenizer's size; the rows beyond are never used.
bool PeftBinder::is_cut_vocabulary(std::int64_t in_file, std::int64_t in_base,
                                   const SiteKey& site) const {
  const bool is_vocabulary = site.tensor == "token_embd.weight" || site.tensor == "output.weight";
  return base_.architecture == "gemma3" && is_vocabulary && in_file > in_base;
}

Status PeftBinder::check_shapes(const PeftModule& module, const ModuleSites& sites) {
  const SiteKey& site = sites.slices.front().site;
  if (module.is_embedding != (site.op == SiteOp::kGetRows)) {
    return data_corrupt("tensor '" + module.a->name + "' is not of the kind that " +
                        site_text(site) + " takes");
  }
  const std::int64_t n_in = module.a->shape[1];
  const std::int64_t n_out = module.b->shape[0];
  const bool in_fits =
      n_in == sites.n_in || (module.is_embedding && is_cut_vocabulary(n_in, sites.n_in, site));
  const bool out_fits =
      n_out == sites.n_out || (!module.is_embedding && is_cut_vocabulary(n_out, sites.n_out, site));
  if (in_fits && out_fits) {
    if (n_in != sites.n_in || n_out != sites.n_out) {
      adapter_.report.notes.push_back(
          "'" + module.a->name + "' knows more tokens than the base; the converter cut the table " +
          "of the base to its tokenizer, and the rows beyond are left out");
    }
    return {};
  }
  const SafetensorsTensor& wrong = in_fits ? *module.b : *module.a;
  const std::string expected = in_fits ? "[" + std::to_string(sites.n_out) + ", r]"
                                       : "[r, " + std::to_string(sites.n_in) + "]";
  return invalid_argument("tensor '" + wrong.name + "' has shape " + shape_text(wrong.shape) +
                          "; " + site.tensor + " of this base needs " + expected +
                          ". Was the adapter trained on another model?");
}

Result<Factors> PeftBinder::read_factors(const PeftModule& module, const ModuleSites& sites) {
  Factors factors;
  GRAFT_ASSIGN_OR_RETURN(factors.a, read_matrix(*module.a));
  GRAFT_ASSIGN_OR_RETURN(factors.b, read_matrix(*module.b));
  if (module.is_embedding) {
    factors.a = transpose(factors.a);
    if (factors.a.n_rows > sites.n_in) factors.a = slice_rows(factors.a, 0, sites.n_in);
  } else if (factors.b.n_rows > sites.n_out) {
    factors.b = slice_rows(factors.b, 0, sites.n_out);
  }
  if (module.bias != nullptr) {
    const SafetensorsTensor& bias = *module.bias;
    GRAFT_ASSIGN_OR_RETURN(const FactorMatrix column,
                           make_factor(factor_type(bias), bias.shape[0], 1, bias.bytes, bias.name));
    factors.bias = to_floats(column);
    factors.bias.resize(static_cast<std::size_t>(factors.b.n_rows));
  }
  return factors;
}

LoraTerm PeftBinder::make_term(const Factors& factors, const SiteSlice& slice, float scale) const {
  LoraTerm term;
  term.site = slice.site;
  const bool is_table = slice.site.op == SiteOp::kGetRows;
  term.n_in = is_table ? factors.a.n_rows : factors.a.n_cols;
  term.n_out = slice.n_out;
  term.out_offset = slice.out_offset;
  term.rank = factors.b.n_cols;
  term.scale = scale;
  term.a = factors.a;
  term.b = slice_rows(factors.b, slice.row_begin, slice.n_out);
  if (!factors.bias.empty()) {
    const auto first = factors.bias.begin() + slice.row_begin;
    term.bias.assign(first, first + slice.n_out);
  }
  if (slice.n_rope_heads > 0) {
    const auto order = interleaved_rope_order(slice.n_out, slice.n_rope_heads);
    term.b = permute_rows(term.b, order);
    const std::vector<float> bias = std::exchange(term.bias, {});
    for (std::size_t i = 0; i < bias.size(); ++i) {
      term.bias.push_back(bias[static_cast<std::size_t>(order[i])]);
    }
  }
  return term;
}

Status PeftBinder::count_bytes(std::uint64_t n_bytes) {
  n_factor_bytes_ += n_bytes;
  if (n_factor_bytes_ <= kMaxFactorBytes) return {};
  return Error{
      ErrorCode::kResourceExhausted,
      "the adapter's factors need more than " + std::to_string(kMaxFactorBytes >> 30) + " GiB",
      {}};
}

Status PeftBinder::add_terms(const Factors& factors, const ModuleSites& sites, float scale) {
  for (const SiteSlice& slice : sites.slices) {
    LoraTerm term = make_term(factors, slice, scale);
    if (!sites.expert.has_value()) {
      const auto place = std::make_pair(site_text(slice.site), slice.out_offset);
      if (!places_.insert(place).second) return named_twice(slice.site);
      GRAFT_RETURN_IF_ERROR(count_bytes(term.a.bytes.size() + term.b.bytes.size()));
      adapter_.terms.push_back(std::move(term));
      continue;
    }
    if (!term.bias.empty()) return not_supported("lora_bias on experts is not supported yet");
    const auto key = std::make_pair(slice.site.tensor, slice.out_offset);
    auto& stack = experts_.try_emplace(key, slice.site, sites.n_experts).first->second;
    if (!stack.add(*sites.expert, std::move(term))) return named_twice(slice.site);
  }
  return {};
}

Status PeftBinder::bind_module(const std::string& path, const PeftModule& module) {
  const Result<ModuleSites> sites = find_module_sites(path, base_);
  if (!sites) {
    unmatched_.push_back("'" + module.a->name + "': " + sites.error().message);
    return {};
  }
  GRAFT_RETURN_IF_ERROR(check_shapes(module, *sites));
  GRAFT_ASSIGN_OR_RETURN(const Factors factors, read_factors(module, *sites));
  const auto scale = static_cast<float>(scales_.scale(module.peft_path, module.rank()));
  GRAFT_RETURN_IF_ERROR(add_terms(factors, *sites, scale));

  LoadReport& report = adapter_.report;
  report.max_rank = std::max(report.max_rank, module.rank());
  if (scales_.announced_rank(module.peft_path) != module.rank()) ++n_other_ranks_;
  std::string target;
  for (const SiteSlice& slice : sites->slices) {
    target += (target.empty() ? " -> " : ", ") + site_text(slice.site);
  }
  if (sites->expert.has_value()) target += ", expert " + std::to_string(*sites->expert);
  for (const SafetensorsTensor* tensor : {module.a, module.b, module.bias}) {
    if (tensor != nullptr) report.bound.push_back(tensor->name + target);
  }
  return {};
}

// With ensure_weight_tying PEFT adapts the head of a tied model by the transposed factors of the
// embedding: A of the head = B^T, B of the head = A^T.
Status PeftBinder::tie_head(const PeftTensors& tensors) {
  const auto embedding = tensors.modules.find("model.embed_tokens");
  if (!config_.ensure_weight_tying || embedding == tensors.modules.end()) return {};
  if (tensors.modules.contains("lm_head")) return {};
  if (!base_.tied_head) {
    adapter_.report.notes.push_back(
        "ensure_weight_tying has no effect: this base has an output head of its own");
    return {};
  }
  const auto table = std::find_if(adapter_.terms.begin(), adapter_.terms.end(),
                                  [](const auto& t) { return t.site.op == SiteOp::kGetRows; });
  if (table == adapter_.terms.end()) return {};
  LoraTerm head;
  head.site = {SiteOp::kMatMul, table->site.tensor};
  head.n_in = table->n_out;
  head.n_out = table->n_in;
  head.rank = table->rank;
  head.scale = table->scale;
  head.a = transpose(table->b);
  head.b = table->a;  // [vocab, r] already
  GRAFT_RETURN_IF_ERROR(count_bytes(head.a.bytes.size() + head.b.bytes.size()));
  adapter_.terms.push_back(std::move(head));
  adapter_.report.notes.push_back(
      "ensure_weight_tying: the output head follows the embedding's factors");
  return {};
}

// A copy of an unchanged weight is left out; anything that would replace a weight is refused.
Status PeftBinder::account_for_plain(const PeftTensors& tensors) {
  const bool saves_embeddings =
      tensors.modules.contains("model.embed_tokens") || tensors.modules.contains("lm_head");
  for (const PeftPlainTensor& entry : tensors.plain) {
    const std::string& name = entry.tensor->name;
    const bool is_vocabulary = entry.module == "model.embed_tokens" || entry.module == "lm_head";
    const bool may_be_copy = entry.is_base_copy ? tensors.modules.contains(entry.module)
                                                : is_vocabulary && saves_embeddings;
    const Result<ModuleSites> sites = find_module_sites(entry.module, base_);
    if (!may_be_copy || !sites) {
      return not_supported("tensor '" + name +
                           "' replaces a weight of the base (modules_to_save, trained biases, "
                           "norms or embeddings); this is not supported yet");
    }
    const bool is_table = sites->slices.front().site.op == SiteOp::kGetRows;
    const std::vector<std::int64_t> matrix = {is_table ? sites->n_in : sites->n_out,
                                              is_table ? sites->n_out : sites->n_in};
    const auto& shape = entry.tensor->shape;
    if (shape != matrix && shape != std::vector<std::int64_t>{sites->n_out}) {
      return not_supported("tensor '" + name + "' has shape " + shape_text(shape) + ", the base " +
                           shape_text(matrix) +
                           ": a resized vocabulary or replaced weight is not supported yet");
    }
    adapter_.report.ignored.push_back(name + ": a copy of the base's own weight");
  }
  return {};
}

Status PeftBinder::finish_experts() {
  for (auto& [key, stack] : experts_) {
    GRAFT_RETURN_IF_ERROR(count_bytes(stack.stacked_bytes()));
    if (stack.n_added() < base_.n_experts) {
      adapter_.report.notes.push_back(key.first + ": " + std::to_string(stack.n_added()) + " of " +
                                      std::to_string(base_.n_experts) + " experts are adapted");
    }
    adapter_.terms.push_back(stack.finish());
  }
  return {};
}

void PeftBinder::note_settings(const PeftTensors& tensors) {
  LoadReport& report = adapter_.report;
  for (const SafetensorsTensor* tensor : tensors.vision) {
    report.ignored.push_back(tensor->name + ": of a vision or audio tower, which is not served");
  }
  if (!tensors.vision.empty()) {
    report.notes.push_back(std::to_string(tensors.vision.size()) +
                           " tensors of a vision or audio tower are left out");
  }
  if (n_other_ranks_ > 0) {
    report.notes.push_back(std::to_string(n_other_ranks_) +
                           " modules have another rank than adapter_config.json says; the "
                           "tensors' rank is used");
  }
  if (config_.use_rslora) report.notes.emplace_back("rsLoRA: scale = alpha / sqrt(rank)");
  if (tensors.modules.contains("model.embed_tokens") && base_.architecture == "gemma3" &&
      config_.peft_version.empty()) {
    report.notes.emplace_back(
        "trained by PEFT before 0.18, which did not scale an embedding's LoRA on Gemma; the "
        "embedding's part acts more strongly here than while training");
  }
}

Status PeftBinder::check_unmatched() const {
  if (unmatched_.empty()) return {};
  std::string message = std::to_string(unmatched_.size()) + " modules match nothing in the base: ";
  for (std::size_t i = 0; i < std::min(unmatched_.size(), kMaxNamed); ++i) {
    message += (i > 0 ? "; " : "") + unmatched_[i];
  }
  if (unmatched_.size() > kMaxNamed) message += "; ...";
  return invalid_argument(message);
}

Result<Adapter> PeftBinder::bind(const SafetensorsFile& file) {
  GRAFT_ASSIGN_OR_RETURN(const PeftTensors tensors, group_peft_tensors(file));
  LoadReport& report = adapter_.report;
  report.format = "PEFT LoRA (safetensors)";
  report.base_name = config_.base_model_name;
  report.n_tensors = static_cast<std::int64_t>(file.tensors.size());
  adapter_.architecture = base_.architecture;
  for (const auto& [path, module] : tensors.modules) {
    GRAFT_RETURN_IF_ERROR(bind_module(path, module));
  }
  GRAFT_RETURN_IF_ERROR(check_unmatched());
  GRAFT_RETURN_IF_ERROR(account_for_plain(tensors));
  GRAFT_RETURN_IF_ERROR(tie_head(tensors));
  GRAFT_RETURN_IF_ERROR(finish_experts());
  note_settings(tensors);
  return std::move(adapter_);
}

}  // namespace

Result<Adapter> bind_peft_lora(const PeftConfig& config, const SafetensorsFile& file,
                               const BaseModel& base) {
  GRAFT_RETURN_IF_ERROR(check_supported(config));
  GRAFT_RETURN_IF_ERROR(check_architecture(base));
  GRAFT_ASSIGN_OR_RETURN(PeftScaleRule scales, PeftScaleRule::create(config));
  return PeftBinder(config, base, std::move(scales)).bind(file);
}

}  // namespace graft
