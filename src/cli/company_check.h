// CompanyCheck: does what else is in a batch change a sequence's logits? Computes one fixed text
// alone, then in other chunks and beside other sequences, and compares every bit. Uses an engine
// that no loop uses; one thread.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/compute_logits.h"
#include "engine/engine.h"

namespace graft::cli {

struct CompanyCase {
  std::string title;
  std::int32_t chunk = 0;       // prompt tokens per step; 0 = all at once
  std::int32_t n_decoding = 0;  // others with one token per step
  std::int32_t n_prefill = 0;   // tokens per step of one more that prefills
  bool subject_has_module = false;
  bool others_have_module = false;
};

struct CompanyResult {
  std::string title;
  bool bit_equal = true;
  double max_abs = 0;  // largest difference of a logit
};

class CompanyCheck {
 public:
  // `module` may be null; then cases with modules are left out.
  CompanyCheck(Engine& engine, const ResidentAdapter* module);

  Result<std::vector<CompanyResult>> run();

 private:
  struct Companion {
    std::int32_t sequence = -1;
    std::int32_t position = 0;
    std::int32_t n_per_step = 1;
  };

  std::vector<CompanyCase> cases() const;
  Result<std::vector<LogitRow>> compute(const CompanyCase& one);
  void add_companions(const CompanyCase& one, StepPlan& plan, std::vector<Companion>& companions);
  std::int32_t add_subject(const CompanyCase& one, std::int32_t sequence, std::int32_t at,
                           StepPlan& plan) const;
  std::int32_t n_prompt_tokens() const;
  std::int32_t acquire();
  TokenId random_token();

  Engine& engine_;
  const ResidentAdapter* module_;
  std::vector<TokenId> text_;
  std::mt19937 random_;
};

}  // namespace graft::cli
