// `graft bench`: throughput through the scheduler's loop, without HTTP. All streams are submitted
// at once; a step's time is read off the moments at which tokens come.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cli/answer_queue.h"
#include "cli/loading.h"
#include "cli/run.h"
#include "cli/statistics.h"
#include "cli/stop_signal.h"
#include "scheduler/loop.h"

namespace graft::cli {
namespace {

using Clock = AnswerQueue::Clock;
using Modules = std::vector<std::shared_ptr<const ModuleVersion>>;

struct RunResult {
  std::string title;
  double seconds = 0;
  double first_token_ms = 0;  // median
  std::int64_t n_prompt_tokens = 0;
  std::int64_t n_generated_tokens = 0;
  std::vector<double> step_ms;  // between tokens of one stream
};

double ms_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}

class Bench {
 public:
  Bench(const BenchCommand& command, LoadedModel& loaded)
      : command_(command), vocabulary_(loaded.model->vocabulary()), loop_(*loaded.engine, {}) {}

  // Stream i gets modules[i % n]; no modules: the base alone.
  Result<RunResult> run(std::string title, const Modules& modules);

 private:
  GenerationRequest make_request(int stream);
  Status collect(AnswerQueue& answer, Clock::time_point begin, RunResult& result,
                 std::vector<double>& first_ms);

  const BenchCommand& command_;
  const Vocabulary& vocabulary_;
  Loop loop_;
  std::mt19937 random_{1};  // the same prompts in every process
  RequestId next_id_ = 1;
};

// Random tokens: every prompt is different from its first token on.
GenerationRequest Bench::make_request(int stream) {
  GenerationRequest request;
  request.id = next_id_++;
  std::uniform_int_distribution<TokenId> token(0, vocabulary_.size() - 1);
  request.prompt.push_back(stream % vocabulary_.size());
  while (static_cast<std::int32_t>(request.prompt.size()) < command_.n_prompt_tokens) {
    request.prompt.push_back(token(random_));
  }
  request.sampling.temperature = 0;
  request.stop.max_tokens = command_.n_max_tokens;
  request.stop.ignore_eos = true;
  return request;
}

Result<RunResult> Bench::run(std::string title, const Modules& modules) {
  std::vector<std::shared_ptr<AnswerQueue>> answers;
  const Clock::time_point begin = Clock::now();
  for (int stream = 0; stream < command_.n_streams; ++stream) {
    AttachmentSet set;
    if (!modules.empty()) {
      set.attachments.push_back({modules[static_cast<std::size_t>(stream) % modules.size()]});
    }
    answers.push_back(
        std::make_shared<AnswerQueue>(static_cast<std::size_t>(command_.n_max_tokens) + 16));
    GRAFT_RETURN_IF_ERROR(loop_.submit({make_request(stream), std::move(set), answers.back()}));
  }
  RunResult result;
  result.title = std::move(title);
  std::vector<double> first_ms;
  for (const auto& answer : answers) {
    GRAFT_RETURN_IF_ERROR(collect(*answer, begin, result, first_ms));
  }
  result.seconds = ms_between(begin, Clock::now()) / 1000;
  result.first_token_ms = quantile(first_ms, 0.5);
  return result;
}

Status Bench::collect(AnswerQueue& answer, Clock::time_point begin, RunResult& result,
                      std::vector<double>& first_ms) {
  std::optional<Clock::time_point> last;
  while (auto entry = answer.next()) {
    if (stop_requested()) return Error{ErrorCode::kCancelled, "stopped", {}};
    if (auto* failed = std::get_if<Failed>(&entry->event)) return std::move(failed->error);
    if (const auto* finished = std::get_if<Finished>(&entry->event)) {
      result.n_prompt_tokens += finished->n_prompt_tokens;
      result.n_generated_tokens += finished->n_generated_tokens;
      break;
    }
    if (!std::holds_alternative<TokenOutput>(entry->event)) continue;
    if (last) {
      result.step_ms.push_back(ms_between(*last, entry->at));
    } else {
      first_ms.push_back(ms_between(begin, entry->at));
    }
    last = entry->at;
  }
  return {};
}

void print_table(const std::vector<RunResult>& results) {
  std::printf("%-24s %10s %10s %12s %11s %11s\n", "", "tokens/s", "total s", "first token",
              "step p50", "step p99");
  for (const RunResult& result : results) {
    std::printf("%-24s %10.1f %10.2f %9.0f ms %8.2f ms %8.2f ms\n", result.title.c_str(),
                static_cast<double>(result.n_generated_tokens) / result.seconds, result.seconds,
                result.first_token_ms, quantile(result.step_ms, 0.5),
                quantile(result.step_ms, 0.99));
  }
}

Result<std::vector<RunResult>> run_all(const BenchCommand& command, LoadedModel& loaded) {
  Bench bench(command, loaded);
  std::vector<RunResult> results;
  GRAFT_RETURN_IF_ERROR(bench.run("", {}));  // memory pages and the scheduler's pace
  GRAFT_ASSIGN_OR_RETURN(RunResult base, bench.run("base", {}));
  results.push_back(std::move(base));
  if (loaded.modules.empty()) return results;
  GRAFT_ASSIGN_OR_RETURN(RunResult one, bench.run("one module", {loaded.modules.front()}));
  results.push_back(std::move(one));
  if (loaded.modules.size() == 1) return results;
  const std::string title = std::to_string(loaded.modules.size()) + " modules, mixed";
  GRAFT_ASSIGN_OR_RETURN(RunResult mixed, bench.run(title, loaded.modules));
  results.push_back(std::move(mixed));
  return results;
}

}  // namespace

int run(const BenchCommand& command) {
  ModelFlags flags = command.model;
  // Preemption would be measured instead of throughput.
  const std::int64_t n_needed = std::int64_t{command.n_streams} *
                                (std::int64_t{command.n_prompt_tokens} + command.n_max_tokens + 32);
  flags.engine.n_ctx =
      static_cast<std::int32_t>(std::clamp<std::int64_t>(n_needed, flags.engine.n_ctx, 1 << 24));
  auto loaded = load(flags);
  if (!loaded) return report(loaded.error());
  const std::int64_t n_tokens = std::int64_t{command.n_prompt_tokens} + command.n_max_tokens;
  if (n_tokens > loaded->engine->max_sequence_tokens()) {
    return report(invalid_argument("--prompt-tokens and --max-tokens are " +
                                   std::to_string(n_tokens) + " together; the model takes " +
                                   std::to_string(loaded->engine->max_sequence_tokens())));
  }
  std::printf("%s, %d threads: %d streams, prompts of %d tokens, %d generated each, greedy\n",
              loaded->model->facts().description.c_str(), loaded->engine->n_threads(),
              command.n_streams, command.n_prompt_tokens, command.n_max_tokens);
  const auto results = run_all(command, *loaded);
  if (!results) return report(results.error());
  print_table(*results);
  return kExitOk;
}

}  // namespace graft::cli
