#include "modules/formats/tensor_names.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>
#include <utility>

namespace graft {
namespace {

// What a linear layer of a block does, whatever its name and however it is fused.
enum class Role { kQ, kK, kV, kQkv, kAttentionOutput, kGate, kUp, kGateUp, kDown, kRouter };

struct BlockModule {
  std::int64_t layer = 0;
  Role role = Role::kQ;
  std::optional<std::int64_t> expert;
};

// Without leading zeros: every layer and expert has one name.
bool take_number(std::string_view& path, std::int64_t& number) {
  if (path.size() > 1 && path[0] == '0' && path[1] != '.') return false;
  const auto [end, error] = std::from_chars(path.data(), path.data() + path.size(), number);
  if (error != std::errc() || number < 0) return false;
  path.remove_prefix(static_cast<std::size_t>(end - path.data()));
  return true;
}

bool take_prefix(std::string_view& path, std::string_view prefix) {
  if (!path.starts_with(prefix)) return false;
  path.remove_prefix(prefix.size());
  return true;
}

std::optional<Role> find_role(std::string_view name) {
  static constexpr std::pair<std::string_view, Role> kRoles[] = {
      {"self_attn.q_proj", Role::kQ},
      {"self_attn.k_proj", Role::kK},
      {"self_attn.v_proj", Role::kV},
      {"self_attn.qkv_proj", Role::kQkv},
      {"self_attn.o_proj", Role::kAttentionOutput},
      {"mlp.gate_proj", Role::kGate},
      {"mlp.up_proj", Role::kUp},
      {"mlp.gate_up_proj", Role::kGateUp},
      {"mlp.down_proj", Role::kDown},
      {"mlp.gate", Role::kRouter},
      {"block_sparse_moe.gate", Role::kRouter}};
  for (const auto& [known, role] : kRoles) {
    if (known == name) return role;
  }
  return std::nullopt;
}

std::optional<Role> find_expert_role(std::string_view name) {
  static constexpr std::pair<std::string_view, Role> kRoles[] = {
      {"gate_proj", Role::kGate}, {"up_proj", Role::kUp}, {"down_proj", Role::kDown},
      {"w1", Role::kGate},        {"w3", Role::kUp},      {"w2", Role::kDown}};
  for (const auto& [known, role] : kRoles) {
    if (known == name) return role;
  }
  return std::nullopt;
}

std::optional<BlockModule> parse_block_module(std::string_view path) {
  BlockModule module;
  if (!take_prefix(path, "model.layers.") || !take_number(path, module.layer) ||
      !take_prefix(path, ".")) {
    return std::nullopt;
  }
  std::optional<Role> role;
  if (take_prefix(path, "mlp.experts.") || take_prefix(path, "block_sparse_moe.experts.")) {
    std::int64_t expert = 0;
    if (!take_number(path, expert) || !take_prefix(path, ".")) return std::nullopt;
    module.expert = expert;
    role = find_expert_role(path);
  } else {
    role = find_role(path);
  }
  if (!role.has_value()) return std::nullopt;
  module.role = *role;
  return module;
}

// The weights of one block, and how they are laid out in this base.
class Block {
 public:
  Block(const BaseModel& base, std::int64_t layer) : base_(base), layer_(layer) {}

  std::string tensor_name(std::string_view stem) const {
    return "blk." + std::to_string(layer_) + "." + std::string(stem) + ".weight";
  }
  const BaseTensor* find(std::string_view stem) const { return base_.find(tensor_name(stem)); }

  std::int64_t width(Role role) const {
    return role == Role::kQ   ? base_.n_heads * base_.head_dim_k
           : role == Role::kK ? base_.n_heads_kv * base_.head_dim_k
                              : base_.n_heads_kv * base_.head_dim_v;
  }

  // Only the llama graph rotates interleaved pairs; the converter reorders Q and K rows for it.
  std::int64_t rope_heads(Role role) const {
    if (base_.architecture != "llama") return 0;
    return role == Role::kQ ? base_.n_heads : role == Role::kK ? base_.n_heads_kv : 0;
  }

  SiteSlice slice(SiteOp op, std::string_view stem) const {
    SiteSlice slice;
    slice.site = {op, tensor_name(stem)};
    return slice;
  }

 private:
  const BaseModel& base_;
  std::int64_t layer_;
};

Result<ModuleSites> single_site(const Block& block, SiteOp op, std::string_view stem,
                                std::int64_t n_rope_heads) {
  const BaseTensor* tensor = block.find(stem);
  if (tensor == nullptr) {
    return invalid_argument("the base has no " + block.tensor_name(stem));
  }
  SiteSlice slice = block.slice(op, stem);
  slice.n_out = tensor->ne[1];
  slice.n_rope_heads = n_rope_heads;
  return ModuleSites{.n_in = tensor->ne[0],
                     .n_out = tensor->ne[1],
                     .slices = {std::move(slice)},
                     .expert = {},
                     .n_experts = 1};
}

// Q, K and V with their own names, in whichever way the base stores them.
Result<ModuleSites> attention_sites(const Block& block, const std::vector<Role>& roles) {
  static constexpr std::array<std::pair<Role, std::string_view>, 3> kParts = {
      {{Role::kQ, "attn_q"}, {Role::kK, "attn_k"}, {Role::kV, "attn_v"}}};
  const BaseTensor* fused = block.find("attn_qkv");
  ModuleSites sites;
  std::int64_t fused_offset = 0;
  for (const auto& [role, stem] : kParts) {
    const std::int64_t begin = fused_offset;
    fused_offset += block.width(role);
    if (std::find(roles.begin(), roles.end(), role) == roles.end()) continue;
    const BaseTensor* tensor = fused != nullptr ? fused : block.find(stem);
    if (tensor == nullptr) return invalid_argument("the base has no " + block.tensor_name(stem));
    SiteSlice slice = block.slice(SiteOp::kMatMul, fused != nullptr ? "attn_qkv" : stem);
    slice.out_offset = fused != nullptr ? begin : 0;
    slice.row_begin = sites.n_out;
    slice.n_out = fused != nullptr ? block.width(role) : tensor->ne[1];
    slice.n_rope_heads = block.rope_heads(role);
    sites.n_in = tensor->ne[0];
    sites.n_out += slice.n_out;
    sites.slices.push_back(std::move(slice));
  }
  if (fused != nullptr && fused->ne[1] != fused_offset) {
    return invalid_argument(block.tensor_name("attn_qkv") + " has " + std::to_string(fused->ne[1]) +
                            " outputs; its heads make " + std::to_string(fused_offset));
  }
  return sites;
}

struct GateUpNames {
  SiteOp op = SiteOp::kMatMul;
  std::string_view gate;
  std::string_view up;
  std::string_view fused;  // gate in the first half, up in the second
};

// Gate or up alone; `fused` is null when the base keeps them apart.
void add_gate_or_up(const Block& block, const GateUpNames& names, Role part,
                    const BaseTensor* fused, ModuleSites& sites) {
  const std::string_view own = part == Role::kGate ? names.gate : names.up;
  const BaseTensor* tensor = fused != nullptr ? fused : block.find(own);
  SiteSlice slice = block.slice(names.op, fused != nullptr ? names.fused : own);
  slice.n_out = tensor->ne[1];
  if (fused != nullptr) {
    slice.n_out = fused->ne[1] / 2;
    slice.out_offset = part == Role::kGate ? 0 : slice.n_out;
  }
  slice.row_begin = sites.n_out;
  sites.n_in = tensor->ne[0];
  sites.n_out += slice.n_out;
  sites.slices.push_back(std::move(slice));
}

Result<ModuleSites> gate_up_sites(const Block& block, const GateUpNames& names, Role role) {
  const BaseTensor* gate = block.find(names.gate);
  const BaseTensor* fused = gate == nullptr ? block.find(names.fused) : nullptr;
  if (fused == nullptr && (gate == nullptr || block.find(names.up) == nullptr)) {
    return invalid_argument("the base has no " +
                            block.tensor_name(gate == nullptr ? names.gate : names.up));
  }
  ModuleSites sites;
  for (const Role part : {Role::kGate, Role::kUp}) {
    if (role == Role::kGateUp || role == part) add_gate_or_up(block, names, part, fused, sites);
  }
  return sites;
}

// A module that covers a fused weight exactly is one term, not one per part.
void join_adjacent_slices(ModuleSites& sites) {
  std::vector<SiteSlice> joined;
  for (SiteSlice& slice : sites.slices) {
    const bool follows = !joined.empty() && joined.back().site == slice.site &&
                         joined.back().n_rope_heads == 0 && slice.n_rope_heads == 0 &&
                         joined.back().out_offset + joined.back().n_out == slice.out_offset;
    if (follows) {
      joined.back().n_out += slice.n_out;
    } else {
      joined.push_back(std::move(slice));
    }
  }
  sites.slices = std::move(joined);
}

Result<ModuleSites> dense_sites(const Block& block, Role role) {
  // Without a gate of its own, a base keeps gate and up in one weight under the name of up.
  const GateUpNames names{SiteOp::kMatMul, "ffn_gate", "ffn_up", "ffn_up"};
  switch (role) {
    case Role::kQ:
    case Role::kK:
    case Role::kV: return attention_sites(block, {role});
    case Role::kQkv: return attention_sites(block, {Role::kQ, Role::kK, Role::kV});
    case Role::kAttentionOutput: return single_site(block, SiteOp::kMatMul, "attn_output", 0);
    case Role::kGate:
    case Role::kUp:
    case Role::kGateUp: return gate_up_sites(block, names, role);
    case Role::kDown: return single_site(block, SiteOp::kMatMul, "ffn_down", 0);
    case Role::kRouter: return single_site(block, SiteOp::kMatMul, "ffn_gate_inp", 0);
  }
  return internal_error("unknown role");
}

Result<ModuleSites> expert_sites(const Block& block, const BlockModule& module,
                                 const BaseModel& base) {
  if (base.n_experts == 0) return invalid_argument("the base has no experts");
  if (*module.expert >= base.n_experts) {
    return invalid_argument("expert " + std::to_string(*module.expert) +
                            " does not exist: the base has " + std::to_string(base.n_experts) +
                            " experts");
  }
  const GateUpNames names{SiteOp::kMatMulId, "ffn_gate_exps", "ffn_up_exps", "ffn_gate_up_exps"};
  GRAFT_ASSIGN_OR_RETURN(ModuleSites sites,
                         module.role == Role::kDown
                             ? single_site(block, SiteOp::kMatMulId, "ffn_down_exps", 0)
                             : gate_up_sites(block, names, module.role));
  sites.expert = module.expert;
  sites.n_experts = base.n_experts;
  return sites;
}

Result<ModuleSites> head_sites(const BaseModel& base) {
  const std::string name = base.tied_head ? "token_embd.weight" : "output.weight";
  const BaseTensor* tensor = base.find(name);
  if (tensor == nullptr) return invalid_argument("the base has no " + name);
  SiteSlice slice;
  slice.site = {SiteOp::kMatMul, name};
  slice.n_out = tensor->ne[1];
  return ModuleSites{.n_in = tensor->ne[0],
                     .n_out = tensor->ne[1],
                     .slices = {std::move(slice)},
                     .expert = {},
                     .n_experts = 1};
}

Result<ModuleSites> embedding_sites(const BaseModel& base) {
  const BaseTensor* tensor = base.find("token_embd.weight");
  if (tensor == nullptr) return invalid_argument("the base has no token_embd.weight");
  SiteSlice slice;
  slice.site = {SiteOp::kGetRows, "token_embd.weight"};
  slice.n_out = tensor->ne[0];
  return ModuleSites{.n_in = tensor->ne[1],
                     .n_out = tensor->ne[0],
                     .slices = {std::move(slice)},
                     .expert = {},
                     .n_experts = 1};
}

Result<ModuleSites> find_sites(const std::string& module, const BaseModel& base) {
  if (module == "lm_head") return head_sites(base);
  if (module == "model.embed_tokens") return embedding_sites(base);
  const std::optional<BlockModule> parsed = parse_block_module(module);
  if (!parsed.has_value()) {
    return invalid_argument("no module of this name exists in " + base.architecture + " models");
  }
  if (parsed->layer >= base.n_layers) {
    return invalid_argument("layer " + std::to_string(parsed->layer) +
                            " does not exist: the base has " + std::to_string(base.n_layers) +
                            " layers");
  }
  const Block block(base, parsed->layer);
  if (parsed->expert.has_value()) return expert_sites(block, *parsed, base);
  return dense_sites(block, parsed->role);
}

// The base is a file too: what it says of one weight need not fit what it says elsewhere.
Status check_slices(const ModuleSites& sites, const BaseModel& base) {
  for (const SiteSlice& slice : sites.slices) {
    const BaseTensor* tensor = base.find(slice.site.tensor);
    const std::int64_t n_outputs =
        slice.site.op == SiteOp::kGetRows ? tensor->ne[0] : tensor->ne[1];
    const bool shape_fits = tensor->ne[2] == sites.n_experts && tensor->ne[3] == 1 &&
                            slice.n_out > 0 && slice.out_offset + slice.n_out <= n_outputs;
    const bool heads_fit = slice.n_rope_heads == 0 || slice.n_out % (2 * slice.n_rope_heads) == 0;
    if (!shape_fits || !heads_fit) {
      return invalid_argument("the base's " + slice.site.tensor +
                              " does not have the shape that its architecture gives it");
    }
  }
  return {};
}

}  // namespace

Result<ModuleSites> find_module_sites(const std::string& module, const BaseModel& base) {
  GRAFT_ASSIGN_OR_RETURN(ModuleSites sites, find_sites(module, base));
  join_adjacent_slices(sites);
  GRAFT_RETURN_IF_ERROR(check_slices(sites, base));
  return sites;
}

std::optional<SiteOp> adaptable_op(const std::string& tensor, const BaseModel& base) {
  if (base.find(tensor) == nullptr) return std::nullopt;
  if (tensor == "token_embd.weight") return SiteOp::kGetRows;
  if (tensor == "output.weight") return SiteOp::kMatMul;
  std::string_view rest = tensor;
  std::int64_t layer = 0;
  if (!take_prefix(rest, "blk.") || !take_number(rest, layer) || !take_prefix(rest, ".")) {
    return std::nullopt;
  }
  static constexpr std::pair<std::string_view, SiteOp> kStems[] = {
      {"attn_q.weight", SiteOp::kMatMul},
      {"attn_k.weight", SiteOp::kMatMul},
      {"attn_v.weight", SiteOp::kMatMul},
      {"attn_qkv.weight", SiteOp::kMatMul},
      {"attn_output.weight", SiteOp::kMatMul},
      {"ffn_gate.weight", SiteOp::kMatMul},
      {"ffn_up.weight", SiteOp::kMatMul},
      {"ffn_down.weight", SiteOp::kMatMul},
      {"ffn_gate_inp.weight", SiteOp::kMatMul},
      {"ffn_gate_exps.weight", SiteOp::kMatMulId},
      {"ffn_up_exps.weight", SiteOp::kMatMulId},
      {"ffn_down_exps.weight", SiteOp::kMatMulId},
      {"ffn_gate_up_exps.weight", SiteOp::kMatMulId}};
  for (const auto& [stem, op] : kStems) {
    if (rest == stem) return op;
  }
  return std::nullopt;
}

Status check_architecture(const BaseModel& base) {
  if (base.modules_supported) return {};
  return not_supported("modules are not supported on the architecture '" + base.architecture +
                       "' yet; supported are llama, qwen2, qwen3, gemma3, phi3 and qwen3moe");
}

}  // namespace graft
