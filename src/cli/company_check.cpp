#include "cli/company_check.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/check.h"
#include "cli/statistics.h"

namespace graft::cli {
namespace {

constexpr std::int32_t kPromptTokens = 48;
constexpr std::int32_t kDecodeTokens = 4;

}  // namespace

CompanyCheck::CompanyCheck(Engine& engine, const ResidentAdapter* module)
    : engine_(engine), module_(module), random_(1) {
  const std::int32_t n = std::min(kPromptTokens, engine.max_rows()) + kDecodeTokens;
  for (std::int32_t i = 0; i < n; ++i) text_.push_back(random_token());
}

std::int32_t CompanyCheck::n_prompt_tokens() const {
  return static_cast<std::int32_t>(text_.size()) - kDecodeTokens;
}

TokenId CompanyCheck::random_token() {
  return std::uniform_int_distribution<TokenId>(0,
                                                engine_.model().vocabulary().size() - 1)(random_);
}

std::vector<CompanyCase> CompanyCheck::cases() const {
  const std::int32_t many = std::min(15, engine_.max_sequences() - 2);
  std::vector<CompanyCase> all = {{.title = "alone, prompt token by token", .chunk = 1},
                                  {.title = "alone, prompt in chunks of 7", .chunk = 7}};
  if (many < 1) return all;
  const std::string others = std::to_string(many) + " others";
  all.push_back({.title = "beside one other", .n_decoding = 1});
  all.push_back({.title = "beside " + others + ", chunks of 7", .chunk = 7, .n_decoding = many});
  all.push_back({.title = "beside a prompt of 31 rows per step", .chunk = 7, .n_prefill = 31});
  if (module_ == nullptr) return all;
  all.push_back({.title = "beside " + others + " with the module",
                 .n_decoding = many,
                 .others_have_module = true});
  all.push_back(
      {.title = "with the module, in chunks of 7", .chunk = 7, .subject_has_module = true});
  all.push_back({.title = "with the module, beside " + others,
                 .chunk = 7,
                 .n_decoding = many,
                 .n_prefill = 31,
                 .subject_has_module = true});
  return all;
}

Result<std::vector<CompanyResult>> CompanyCheck::run() {
  GRAFT_ASSIGN_OR_RETURN(const auto alone, compute({.title = "alone"}));
  std::vector<LogitRow> alone_with_module;
  if (module_ != nullptr) {
    GRAFT_ASSIGN_OR_RETURN(alone_with_module,
                           compute({.title = "alone", .subject_has_module = true}));
  }
  std::vector<CompanyResult> results;
  for (const CompanyCase& one : cases()) {
    GRAFT_ASSIGN_OR_RETURN(const auto rows, compute(one));
    const auto& expected = one.subject_has_module ? alone_with_module : alone;
    CompanyResult result{one.title};
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const LogitDistance distance = logit_distance(expected[i], rows[i]);
      result.bit_equal = result.bit_equal && distance.bit_equal;
      result.max_abs = std::max(result.max_abs, distance.max_abs);
    }
    results.push_back(std::move(result));
  }
  return results;
}

void CompanyCheck::add_companions(const CompanyCase& one, StepPlan& plan,
                                  std::vector<Companion>& companions) {
  for (Companion& companion : companions) {
    const auto n_used = static_cast<std::int32_t>(plan.rows.size());
    // A full memory or step needs no more company.
    const std::int32_t n = std::min({companion.n_per_step, engine_.max_rows() - n_used - 1,
                                     engine_.cells().n_free() - n_used - kPromptTokens,
                                     engine_.max_sequence_tokens() - companion.position});
    for (std::int32_t i = 0; i < n; ++i) {
      plan.rows.push_back({.token = random_token(),
                           .position = companion.position++,
                           .sequence = companion.sequence,
                           .is_output = companion.n_per_step == 1,
                           .set = one.others_have_module ? 0 : -1});
    }
  }
}

std::int32_t CompanyCheck::acquire() {
  const std::optional<std::int32_t> sequence = engine_.acquire_sequence();
  GRAFT_CHECK(sequence.has_value());
  return *sequence;
}

// The next rows of the text, from `at` on, behind those of the companions. Returns how many.
std::int32_t CompanyCheck::add_subject(const CompanyCase& one, std::int32_t sequence,
                                       std::int32_t at, StepPlan& plan) const {
  const std::int32_t n_prompt = n_prompt_tokens();
  const std::int32_t room = engine_.max_rows() - static_cast<std::int32_t>(plan.rows.size());
  const std::int32_t chunk = one.chunk > 0 ? one.chunk : n_prompt;
  const std::int32_t n = at < n_prompt ? std::min({chunk, n_prompt - at, room}) : 1;
  for (std::int32_t i = at; i < at + n; ++i) {
    plan.rows.push_back({.token = text_[static_cast<std::size_t>(i)],
                         .position = i,
                         .sequence = sequence,
                         .is_output = i >= n_prompt - 1,
                         .set = one.subject_has_module ? 0 : -1});
  }
  return n;
}

Result<std::vector<LogitRow>> CompanyCheck::compute(const CompanyCase& one) {
  std::vector<Companion> companions;
  for (std::int32_t i = 0; i < one.n_decoding; ++i) companions.push_back({acquire()});
  if (one.n_prefill > 0) companions.push_back({acquire(), 0, one.n_prefill});
  const std::int32_t subject = acquire();
  std::vector<LogitRow> rows;
  StepOutcome outcome;
  const auto n_tokens = static_cast<std::int32_t>(text_.size());
  for (std::int32_t at = 0; at < n_tokens;) {
    StepPlan plan;
    if (one.subject_has_module || one.others_have_module) plan.sets = {{{module_, 1.0F, 0}}};
    add_companions(one, plan, companions);
    at += add_subject(one, subject, at, plan);
    outcome = engine_.step(plan);
    if (outcome.kind != StepOutcome::kDone) break;
    if (at < n_prompt_tokens()) continue;
    const auto logits = engine_.logits(static_cast<std::int32_t>(plan.rows.size()) - 1);
    rows.emplace_back(logits.begin(), logits.end());
  }
  engine_.release_sequence(subject);
  for (const Companion& companion : companions) engine_.release_sequence(companion.sequence);
  if (outcome.kind != StepOutcome::kDone) return internal_error(one.title + ": " + outcome.message);
  return rows;
}

}  // namespace graft::cli
