#include "scheduler/loop_trial.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "base/log.h"
#include "base/queue.h"

namespace graft {
namespace {

constexpr RequestId kFirstTrialId = RequestId{1} << 63;  // clients' numbers count up from 1
constexpr std::size_t kMaxEvents = 8;                    // Started, two tokens, the end
constexpr std::chrono::seconds kMaxStepsTime{60};

class TrialSink final : public EventSink {
 public:
  bool publish(Event event) override { return static_cast<bool>(events_.push(std::move(event))); }
  std::optional<Event> next(std::chrono::nanoseconds timeout) { return events_.pop_for(timeout); }

 private:
  Queue<Event> events_{kMaxEvents};
};

Submission make_trial(const std::shared_ptr<const ModuleVersion>& version, std::int32_t n_rows) {
  Submission trial;
  trial.is_trial = true;
  trial.request.prompt.assign(static_cast<std::size_t>(n_rows), 0);
  trial.request.sampling.temperature = 0;
  trial.request.stop.max_tokens = 2;  // the second one is a step of one row
  trial.request.stop.ignore_eos = true;
  trial.request.prefix_cache = {.salt = {}, .may_read = false, .may_write = false};
  trial.attachments.attachments.push_back({version, 1.0F, 0});
  return trial;
}

}  // namespace

Status LoopTrial::try_out(const std::shared_ptr<const ModuleVersion>& version) {
  const bool is_quiet = loop_.counters().n_running == 0;
  const std::int32_t most = loop_.max_trial_rows();
  const std::int32_t n_rows =
      std::max(1, std::min(most, is_quiet ? options_.max_rows : options_.rows_beside_streams));
  Submission trial = make_trial(version, n_rows);
  const RequestId id = kFirstTrialId + n_trials_++;
  trial.request.id = id;
  const auto sink = std::make_shared<TrialSink>();
  trial.sink = sink;
  GRAFT_RETURN_IF_ERROR(loop_.submit(std::move(trial)));
  std::chrono::nanoseconds patience = options_.max_wait;
  while (const auto event = sink->next(patience)) {
    patience = kMaxStepsTime;
    if (const auto* failed = std::get_if<Failed>(&*event)) {
      return internal_error("a first step with it failed: " + failed->error.message);
    }
    if (std::holds_alternative<Finished>(*event)) return {};
  }
  loop_.cancel(id);
  if (patience == kMaxStepsTime) return internal_error("a first step with it did not end in time");
  log_warning("module '" + version->name + "' is announced untried: no sequence became free");
  return {};
}

}  // namespace graft
