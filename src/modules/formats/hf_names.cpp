#include "modules/formats/hf_names.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>
#include <vector>

namespace graft {
namespace {

std::vector<std::string_view> split(std::string_view path) {
  std::vector<std::string_view> segments;
  std::size_t begin = 0;
  while (true) {
    const std::size_t dot = path.find('.', begin);
    segments.push_back(path.substr(begin, dot - begin));
    if (dot == std::string_view::npos) return segments;
    begin = dot + 1;
  }
}

std::string join(std::span<const std::string_view> segments) {
  std::string path;
  for (const std::string_view segment : segments) {
    if (!path.empty()) path += '.';
    path += segment;
  }
  return path;
}

// Removes the first prefix of the list that fits, again and again until none does.
template <typename Prefixes>
std::string_view strip(std::string_view path, const Prefixes& prefixes) {
  bool changed = true;
  while (changed) {
    changed = false;
    for (const std::string_view prefix : prefixes) {
      if (!path.starts_with(prefix)) continue;
      path.remove_prefix(prefix.size());
      changed = true;
    }
  }
  return path;
}

constexpr std::array<std::string_view, 3> kPeftPrefixes = {"base_model.model.", "base_model.",
                                                           "module."};
// torch.compile, FSDP and activation checkpoints put a segment anywhere in the path.
constexpr std::array<std::string_view, 3> kWrapperSegments = {"_orig_mod", "_fsdp_wrapped_module",
                                                              "_checkpoint_wrapped_module"};
constexpr std::array<std::string_view, 3> kTextPrefixes = {"language_model.", "text_model.",
                                                           "model."};
constexpr std::array<std::string_view, 8> kOtherTowers = {
    "vision_tower", "visual",       "vision_model", "audio_tower",
    "audio_model",  "vision_embed", "embed_vision", "multi_modal_projector"};

template <typename Words>
bool contains(const Words& words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// The path in the text model: "language_model.model.layers", "model.language_model.layers" and
// "layers" of a bare model are all "model.layers"; the head has no prefix.
std::string text_path(std::string_view path) {
  const std::string_view rest = strip(path, kTextPrefixes);
  const bool is_inner = rest.starts_with("layers.") || rest == "embed_tokens" || rest == "norm";
  return is_inner ? "model." + std::string(rest) : std::string(rest);
}

// Which method a segment of a tensor's name belongs to, when it is not plain LoRA.
std::string_view foreign_method(std::string_view segment) {
  static constexpr std::pair<std::string_view, std::string_view> kMarks[] = {
      {"lora_magnitude_vector", "DoRA"},
      {"lora_E", "AdaLoRA"},
      {"lora_a", "MLX LoRA"},
      {"lora_b", "MLX LoRA"},
      {"ia3_l", "IA3"},
      {"vera_", "VeRA"},
      {"hada_", "LoHa"},
      {"lokr_", "LoKr"},
      {"oft_", "OFT"},
      {"boft_", "BOFT"},
      {"miss_block", "MiSS"},
      {"bone_block", "Bone"},
      {"disha", "MiSS"},
      {"hra_u", "HRA"},
      {"road_", "RoAd"},
      {"randlora_", "RandLoRA"},
      {"shira_", "SHiRA"},
      {"vblora_", "VB-LoRA"},
      {"delora_", "DeLoRA"},
      {"gralora_", "GraLoRA"},
      {"hira_", "HiRA"},
      {"ln_tuning", "LayerNorm tuning"},
      {"beft_", "BEFT"},
      {"token_adapter", "trainable tokens"},
      {"trainable_tokens_delta", "trainable tokens"},
      {"prompt_embeddings", "a prompt method"},
      {"lora_ga", "a LoRA variant"}};
  for (const auto& [mark, method] : kMarks) {
    if (segment.starts_with(mark)) return method;
  }
  return {};
}

struct Suffix {
  HfPart part = HfPart::kOther;
  std::size_t n_module_segments = 0;
};

// An adapter's name may stand between the part and "weight": one segment is let through.
bool ends_with_leaf(std::span<const std::string_view> rest, std::string_view leaf) {
  return !rest.empty() && rest.size() <= 2 && rest.back() == leaf;
}

Suffix find_lora_suffix(std::span<const std::string_view> segments) {
  for (std::size_t i = 0; i < segments.size(); ++i) {
    const std::span rest = segments.subspan(i + 1);
    if (segments[i] == "lora_A" && ends_with_leaf(rest, "weight")) return {HfPart::kLoraA, i};
    if (segments[i] == "lora_B" && ends_with_leaf(rest, "weight")) return {HfPart::kLoraB, i};
    if (segments[i] == "lora_B" && ends_with_leaf(rest, "bias")) return {HfPart::kLoraBBias, i};
    if (segments[i] == "lora_embedding_A" && rest.size() <= 1) return {HfPart::kEmbeddingA, i};
    if (segments[i] == "lora_embedding_B" && rest.size() <= 1) return {HfPart::kEmbeddingB, i};
  }
  return {};
}

Suffix find_suffix(std::span<const std::string_view> segments) {
  const Suffix lora = find_lora_suffix(segments);
  if (lora.part != HfPart::kOther) return lora;
  const std::size_t n = segments.size();
  const bool is_leaf = segments.back() == "weight" || segments.back() == "bias";
  if (!is_leaf || n < 2) return {HfPart::kOther, n};
  if (n >= 3 && segments[n - 2] == "base_layer") return {HfPart::kBaseCopy, n - 2};
  return {HfPart::kPlain, n - 1};
}

}  // namespace

HfTensorName parse_hf_tensor_name(std::string_view name) {
  std::vector<std::string_view> segments = split(name);
  std::erase_if(segments, [](std::string_view s) { return contains(kWrapperSegments, s); });
  HfTensorName parsed;
  if (segments.empty()) return parsed;

  for (const std::string_view segment : segments) {
    if (contains(kOtherTowers, segment)) parsed.is_vision = true;
    if (parsed.note.empty()) parsed.note = foreign_method(segment);
  }
  const Suffix suffix =
      parsed.note.empty() ? find_suffix(segments) : Suffix{HfPart::kOther, segments.size()};
  parsed.part = suffix.part;
  const std::string path = join(std::span(segments).first(suffix.n_module_segments));
  parsed.peft_module = strip(std::string_view(path), kPeftPrefixes);
  parsed.module = text_path(parsed.peft_module);
  return parsed;
}

}  // namespace graft
