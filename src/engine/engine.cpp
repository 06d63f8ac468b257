#include "engine/engine.h"

#include <llama.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "engine/llama_log.h"

namespace graft {

namespace {

// libllama tags a cell with any of these, whatever the number of sequences that may compute.
constexpr std::int32_t kAllSequences = 256;

ggml_type to_ggml_type(KvType type) {
  switch (type) {
    case KvType::kF16: return GGML_TYPE_F16;
    case KvType::kF32: return GGML_TYPE_F32;
    case KvType::kQ8_0: return GGML_TYPE_Q8_0;
  }
  return GGML_TYPE_F16;
}

// Promises that hold on the CPU alone, and a cache that only attention kernels can read which a
// GPU build lacks.
Status check_device_options(const EngineOptions& options) {
  if (options.deterministic) return invalid_argument("a GPU cannot compute deterministically");
  if (options.kv_type == KvType::kQ8_0) {
    return invalid_argument("q8_0 keys and values are not supported on a GPU");
  }
  return {};
}

// Each sequence has one for its next token, the scratch sequence among them as libllama demands;
// the rest is shared.
std::int32_t count_outputs(const EngineOptions& options) {
  return std::min(options.n_batch, options.max_seqs + 1 + options.max_reported_rows);
}

llama_context_params context_params(const EngineOptions& options, bool is_on_cpu) {
  llama_context_params params = llama_context_default_params();
  params.n_ctx = static_cast<std::uint32_t>(options.n_ctx);
  // One micro-batch per decode: with it row i of every graph is row i of the plan.
  params.n_batch = static_cast<std::uint32_t>(options.n_batch);
  params.n_ubatch = params.n_batch;
  // One more than compute: the scratch sequence through which cells are saved and restored.
  params.n_seq_max = static_cast<std::uint32_t>(options.max_seqs + 1);
  params.n_outputs_max = static_cast<std::uint32_t>(count_outputs(options));
  // More than one row is "batch" for libllama: both counts must be ours.
  params.n_threads = options.n_threads;
  params.n_threads_batch = options.n_threads;
  // AUTO would turn it off behind the grafting device of the CPU; a GPU may lack its kernels.
  params.flash_attn_type = is_on_cpu ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_AUTO;
  params.type_k = to_ggml_type(options.kv_type);
  params.type_v = to_ggml_type(options.kv_type);
  params.kv_unified = true;
  params.swa_full = true;
  params.no_perf = true;
  return params;
}

// Calls `visit(first_row, n_rows)` for each run of rows of one sequence.
template <typename Visit>
void for_each_run(const std::vector<PlannedRow>& rows, Visit visit) {
  for (std::size_t first = 0; first < rows.size();) {
    std::size_t end = first + 1;
    while (end < rows.size() && rows[end].sequence == rows[first].sequence) ++end;
    visit(first, static_cast<std::int32_t>(end - first));
    first = end;
  }
}

}  // namespace

// One sequence per token, so every token's list of sequences is one element of `sequence`.
struct Engine::Batch {
  std::vector<llama_token> token;
  std::vector<llama_pos> position;
  std::vector<llama_seq_id> sequence;
  std::vector<std::int32_t> n_sequences;
  std::vector<llama_seq_id*> sequences;
  std::vector<std::int8_t> is_output;

  explicit Batch(std::size_t n_rows)
      : token(n_rows),
        position(n_rows),
        sequence(n_rows),
        n_sequences(n_rows, 1),
        sequences(n_rows),
        is_output(n_rows) {
    for (std::size_t i = 0; i < n_rows; ++i) sequences[i] = &sequence[i];
  }

  llama_batch fill(const std::vector<PlannedRow>& rows) {
    for (std::size_t i = 0; i < rows.size(); ++i) {
      token[i] = rows[i].token;
      position[i] = rows[i].position;
      sequence[i] = rows[i].sequence;
      is_output[i] = rows[i].is_output ? 1 : 0;
    }
    return {static_cast<std::int32_t>(rows.size()),
            token.data(),
            nullptr,
            position.data(),
            n_sequences.data(),
            sequences.data(),
            is_output.data()};
  }
};

void Engine::FreeContext::operator()(llama_context* context) const { llama_free(context); }

Engine::Engine(Model& model, const EngineOptions& options)
    : model_(model),
      options_(options),
      batch_(std::make_unique<Batch>(static_cast<std::size_t>(options.n_batch))),
      cells_(options.n_ctx, kAllSequences, options.max_seqs + 1),
      ids_(options.max_seqs),
      holders_(kAllSequences - options.max_seqs - 1, options.max_seqs + 1) {}

Engine::~Engine() = default;

Result<std::unique_ptr<Engine>> Engine::create(Model& model, const EngineOptions& options) {
  GRAFT_ASSIGN_OR_RETURN(const EngineOptions checked, check_options(options, model.base()));
  if (model.device() != nullptr) GRAFT_RETURN_IF_ERROR(check_device_options(checked));
  std::unique_ptr<Engine> engine(new Engine(model, checked));
  GRAFT_RETURN_IF_ERROR(engine->create_context());
  GRAFT_RETURN_IF_ERROR(engine->warm_up());
  return engine;
}

Status Engine::create_context() {
  grafter_ = std::make_unique<Grafter>(GrafterOptions{.n_threads = options_.n_threads,
                                                      .poll = options_.poll,
                                                      .attention = options_.attention,
                                                      .deterministic = options_.deterministic,
                                                      .device = model_.device()});
  take_llama_error();
  try {
    const Grafter::Binding binding(*grafter_);
    context_.reset(llama_init_from_model(
        model_.handle(), context_params(options_, /*is_on_cpu=*/model_.device() == nullptr)));
  } catch (const std::exception& error) {
    return Error{ErrorCode::kInternal, std::string("no context: ") + error.what(), {}};
  }
  if (context_ == nullptr) {
    return Error{ErrorCode::kResourceExhausted,
                 "llama.cpp cannot make a context of " + std::to_string(options_.n_ctx) +
                     " cells: " + take_llama_error(),
                 {}};
  }
  // Our account must be of the memory that exists.
  if (llama_n_ctx(context_.get()) != static_cast<std::uint32_t>(options_.n_ctx) ||
      llama_n_ubatch(context_.get()) != static_cast<std::uint32_t>(options_.n_batch)) {
    return Error{ErrorCode::kInternal, "llama.cpp made a context of another size", {}};
  }
  return {};
}

// The graphs that reserved the context's buffers have every matmul and attention node of a step.
Status Engine::check_deterministic() const {
  if (!options_.deterministic) return {};
  const std::string notes = grafter_->attention_notes();
  const std::string reason = !grafter_->uncovered_matmul().empty() ? grafter_->uncovered_matmul()
                             : !notes.empty()                      ? "attention: " + notes
                                                                   : "";
  if (reason.empty()) return {};
  return Error{
      ErrorCode::kNotSupported, "this model cannot be computed deterministically: " + reason, {}};
}

Status Engine::warm_up() {
  GRAFT_RETURN_IF_ERROR(check_deterministic());
  GRAFT_RETURN_IF_ERROR(warm_up_step(1));
  GRAFT_RETURN_IF_ERROR(warm_up_step(std::min(64, options_.n_batch)));
  const std::string notes = grafter_->attention_notes();
  if (options_.attention && !notes.empty()) log_warning("attention left to ggml: " + notes);
  return {};
}

// The whole design rests on one graph per decode; small and large steps take different paths
// through libllama's scheduler, so both are tried before anyone is served.
Status Engine::warm_up_step(std::int32_t n_rows) {
  const std::optional<std::int32_t> sequence = acquire_sequence();
  GRAFT_CHECK(sequence.has_value());
  StepPlan plan;
  for (std::int32_t i = 0; i < n_rows; ++i) {
    plan.rows.push_back({.token = 0,
                         .position = i,
                         .sequence = *sequence,
                         .is_output = i + 1 == n_rows,
                         .set = -1});
  }
  const std::int64_t n_before = grafter_->stats().n_computes;
  const StepOutcome outcome = step(plan);
  const std::int64_t n_computes = grafter_->stats().n_computes - n_before;
  release_sequence(*sequence);
  if (outcome.kind != StepOutcome::kDone) {
    return Error{ErrorCode::kInternal, "the warm-up step failed: " + outcome.message, {}};
  }
  if (n_computes != 1) {
    return Error{ErrorCode::kInternal,
                 "a step of " + std::to_string(n_rows) + " rows took " +
                     std::to_string(n_computes) + " graph computations instead of one",
                 {}};
  }
  return {};
}

StepOutcome Engine::step(const StepPlan& plan) {
  logits_.assign(plan.rows.size(), nullptr);
  if (std::string fault = find_fault(plan); !fault.empty()) {
    return {StepOutcome::kRefused, std::move(fault)};
  }
  StepOutcome outcome = decode(plan);
  if (outcome.kind == StepOutcome::kDone) {
    commit(plan);
  } else {
    roll_back(plan);
  }
  return outcome;
}

// What libllama would answer with an abort, or by dropping the whole batch. Empty if all is well.
std::string Engine::find_fault(const StepPlan& plan) const {
  const auto n_rows = static_cast<std::int64_t>(plan.rows.size());
  if (n_rows == 0) return "the step has no rows";
  if (n_rows > options_.n_batch) return "the step has too many rows";
  if (n_rows > cells_.n_free()) return "the KV memory has too few free cells";
  std::vector<bool> seen(static_cast<std::size_t>(options_.max_seqs), false);
  std::int32_t n_outputs = 0;
  for (std::size_t i = 0; i < plan.rows.size(); ++i) {
    const PlannedRow& row = plan.rows[i];
    std::string fault = find_row_fault(plan, i);
    const bool starts_run = i == 0 || plan.rows[i - 1].sequence != row.sequence;
    if (fault.empty() && starts_run) {
      if (seen[static_cast<std::size_t>(row.sequence)]) fault = "its sequence is not contiguous";
      seen[static_cast<std::size_t>(row.sequence)] = true;
    }
    if (!fault.empty()) return "row " + std::to_string(i) + ": " + fault;
    n_outputs += row.is_output ? 1 : 0;
  }
  return n_outputs > count_outputs(options_) ? "the step has too many outputs" : "";
}

std::string Engine::find_row_fault(const StepPlan& plan, std::size_t i) const {
  const PlannedRow& row = plan.rows[i];
  if (!model_.vocabulary().contains(row.token)) return "the token is not in the vocabulary";
  if (row.sequence < 0 || row.sequence >= options_.max_seqs || !ids_.in_use(row.sequence)) {
    return "no such sequence";
  }
  if (row.set < -1 || row.set >= static_cast<std::int32_t>(plan.sets.size())) {
    return "no such set of modules";
  }
  if (row.is_tapped && (!row.is_output || n_state_values() == 0)) {
    return "its final state cannot be had";
  }
  const bool goes_on = i > 0 && plan.rows[i - 1].sequence == row.sequence;
  const std::int32_t expected =
      goes_on ? plan.rows[i - 1].position + 1 : cells_.length(row.sequence);
  return row.position == expected ? "" : "the position does not continue its sequence";
}

StepOutcome Engine::decode(const StepPlan& plan) {
  grafter_->begin_step(plan);
  std::int32_t code = 0;
  try {
    code = llama_decode(context_.get(), batch_->fill(plan.rows));
    grafter_->end_step();
  } catch (const std::exception& error) {
    grafter_->end_step();
    return {StepOutcome::kFailed, std::string("llama.cpp failed: ") + error.what()};
  }
  switch (code) {
    case 0: return {};
    case 1: return {StepOutcome::kRefused, "llama.cpp found no room in the KV memory"};
    case -1: return {StepOutcome::kRefused, "llama.cpp refused the batch: " + take_llama_error()};
    case -2: return {StepOutcome::kFailed, "llama.cpp could not allocate memory for the step"};
    default: break;
  }
  const std::string& reason = grafter_->last_error();
  if (!reason.empty()) return {StepOutcome::kRefused, reason};
  return {StepOutcome::kFailed, "the computation failed (code " + std::to_string(code) + ")"};
}

void Engine::commit(const StepPlan& plan) {
  for_each_run(plan.rows, [&](std::size_t first, std::int32_t n_rows) {
    cells_.extend(plan.rows[first].sequence, n_rows);
  });
  for (std::size_t i = 0; i < plan.rows.size(); ++i) {
    if (!plan.rows[i].is_output) continue;
    logits_[i] = llama_get_logits_ith(context_.get(), static_cast<std::int32_t>(i));
    GRAFT_CHECK(logits_[i] != nullptr);
  }
}

// libllama removes the cells of a failed step itself; whatever the failure was, each sequence ends
// where the account says.
void Engine::roll_back(const StepPlan& plan) {
  for_each_run(plan.rows, [&](std::size_t first, std::int32_t /*n_rows*/) {
    const std::int32_t sequence = plan.rows[first].sequence;
    llama_memory_seq_rm(llama_get_memory(context_.get()), sequence, cells_.length(sequence), -1);
  });
}

std::span<const float> Engine::logits(std::int32_t row) const {
  const float* logits = logits_.at(static_cast<std::size_t>(row));
  GRAFT_CHECK(logits != nullptr);
  return {logits, static_cast<std::size_t>(model_.vocabulary().size())};
}

void Engine::release_sequence(std::int32_t sequence) {
  truncate_sequence(sequence, 0);
  (holders_.contains(sequence) ? holders_ : ids_).release(sequence);
}

void Engine::truncate_sequence(std::int32_t sequence, std::int32_t n_tokens) {
  cells_.truncate(sequence, n_tokens);
  grafter_->supply_positions(sequence, {});
  llama_memory_seq_rm(llama_get_memory(context_.get()), sequence, n_tokens, -1);
}

void Engine::share_cells(std::int32_t from, std::int32_t to, std::int32_t begin, std::int32_t end) {
  cells_.share(from, to, begin, end);
  if (begin == end) return;  // libllama takes an end of 0 for no limit
  llama_memory_seq_cp(llama_get_memory(context_.get()), from, to, begin, end);
}

bool Engine::has_window(std::int32_t sequence, std::int32_t n_tokens) const {
  if (!has_sliding_window()) return true;
  const std::int32_t window = llama_model_n_swa(model_.handle());
  const std::int32_t first = llama_memory_seq_pos_min(llama_get_memory(context_.get()), sequence);
  return first >= 0 && first <= std::max(0, n_tokens - window);
}

std::int32_t Engine::max_sequence_tokens() const {
  std::int32_t most = options_.n_ctx;
  for (const std::int32_t limit : {options_.n_seq_tokens, model_.facts().n_ctx_train}) {
    if (limit > 0) most = std::min(most, limit);
  }
  return most;
}

void Engine::check_invariants() const {
  cells_.check_invariants();
  llama_memory_t memory = llama_get_memory(context_.get());
  const std::int32_t n_compared = has_sliding_window() ? options_.max_seqs : kAllSequences;
  for (std::int32_t sequence = 0; sequence < n_compared; ++sequence) {
    GRAFT_CHECK(llama_memory_seq_pos_max(memory, sequence) == cells_.length(sequence) - 1);
  }
}

}  // namespace graft
