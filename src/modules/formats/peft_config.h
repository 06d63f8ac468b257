// adapter_config.json of Hugging Face PEFT, typed. Missing keys have PEFT's defaults (r = 8,
// lora_alpha = 8). The config is the truth about scale and meaning; which modules are adapted, and
// with which rank, the tensors say. Pure functions; any thread.
//
// What this server cannot do yet is recorded by name in `unsupported`, never dropped: a caller that
// serves the adapter must refuse it (check_supported), one that describes it may go on. Keys that
// nobody knows are ignored when empty or false and count as unsupported otherwise.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace graft {

constexpr std::uint64_t kMaxPeftConfigBytes = 4U << 20;

// One entry of rank_pattern or alpha_pattern.
struct PeftPattern {
  std::string pattern;  // a regular expression for the end of a module's path
  double value = 0;
};

struct PeftConfig {
  std::string peft_type;
  std::int64_t r = 8;
  double lora_alpha = 8;
  bool use_rslora = false;
  bool lora_bias = false;
  bool ensure_weight_tying = false;
  std::vector<PeftPattern> rank_pattern;   // in the order of the file
  std::vector<PeftPattern> alpha_pattern;  // in the order of the file
  std::vector<std::string> target_modules;
  std::vector<std::string> modules_to_save;
  std::string base_model_name;
  std::string task_type;
  std::string peft_version;              // empty before 0.18
  std::vector<std::string> unsupported;  // sentences such as "DoRA is not supported yet"
};

// Errors: kDataCorrupt for malformed JSON, kInvalidArgument for wrong types and values,
// kNotSupported for files of other programs (MLX).
Result<PeftConfig> parse_peft_config(std::string_view json);

// kNotSupported, naming the first reason and counting the others.
Status check_supported(const PeftConfig& config);

// The scale of every module, and the rank that the config announces for it.
// A pattern k stands for the paths that match (.*\.)?(k)$ as a whole; the first match counts.
class PeftScaleRule {
 public:
  // Errors: kInvalidArgument for a pattern that is not a linear-time regular expression.
  static Result<PeftScaleRule> create(const PeftConfig& config);
  ~PeftScaleRule();
  PeftScaleRule(PeftScaleRule&&) noexcept;
  PeftScaleRule& operator=(PeftScaleRule&&) noexcept;

  // alpha / rank, or alpha / sqrt(rank) with rsLoRA. `rank` is that of the tensors, >= 1.
  double scale(const std::string& module_path, std::int64_t rank) const;
  std::int64_t announced_rank(const std::string& module_path) const;

 private:
  struct State;
  explicit PeftScaleRule(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace graft
