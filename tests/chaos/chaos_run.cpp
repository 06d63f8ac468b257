#include "chaos/chaos_run.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <thread>
#include <utility>

#include "router/resolve.h"

namespace graft {
namespace {

using Leaves = RandomRequest::Leaves;

constexpr int kClients = 2;

std::unique_ptr<ModuleStore> make_store(const Model& model, ModuleTrial& trial,
                                        const ModuleContents& contents) {
  ModuleStoreOptions options;
  options.base_names = {"base"};
  options.root = contents.root();
  options.low_priority = false;                           // on a busy machine nothing would change
  options.failure_memory = std::chrono::milliseconds(0);  // broken files are read every time
  return ModuleStore::create(model.base(), trial, options, {}).value();
}

std::int64_t resident_memory_bytes() {
  std::int64_t n_pages = 0;
  std::int64_t n_resident = 0;
  std::ifstream("/proc/self/statm") >> n_pages >> n_resident;
  return n_resident * sysconf(_SC_PAGESIZE);
}

template <typename T>
bool begins_with(const std::vector<T>& whole, const std::vector<T>& beginning) {
  return beginning.size() <= whole.size() &&
         std::equal(beginning.begin(), beginning.end(), whole.begin());
}

// Where a request's answer leaves the one it gets alone, and what the request was.
std::string describe(const RandomRequest& what, const std::vector<HeldModule>& held,
                     const Answer& answer, const Answer& alone) {
  std::size_t n = 0;
  while (n < answer.logprob_bits.size() && n < alone.logprob_bits.size() &&
         answer.logprob_bits[n] == alone.logprob_bits[n]) {
    ++n;
  }
  std::ostringstream text;
  text << "request " << what.request.id << " got another answer than alone from token " << n / 3
       << " of " << answer.tokens.size() << "; " << what.request.prompt.size()
       << " tokens of prompt, " << answer.n_cached_tokens << " cached, " << answer.n_preemptions
       << " preemptions;";
  for (const HeldModule& module : held) {
    text << " " << module.digest.substr(0, 8) << " at " << module.scale;
  }
  return text.str();
}

}  // namespace

ChaosRun::ChaosRun(Model& model, Model& alone, const ModuleContents& contents,
                   const ChaosOptions& options)
    : options_(options),
      rig_(model, options.rig),
      // Patient: a broken module that could not be tried in time would be announced.
      trial_(rig_.loop(), {.max_rows = 8, .max_wait = std::chrono::seconds(60)}),
      store_(make_store(model, trial_, contents)),
      alone_(alone, contents),
      churn_(*store_, contents,
             {.names = options.names, .seed = options.seed, .max_pause = options.max_pause}) {
  RandomRequestOptions requests = options.requests;
  requests.names = options.names;
  requests.n_vocab = static_cast<std::uint32_t>(model.vocabulary().size());
  for (int i = 0; i < kClients; ++i) {
    requests.seed = options.seed * 100 + static_cast<std::uint32_t>(i);
    clients_.push_back({RandomRequests(requests), {}});
  }
}

ChaosCounts ChaosRun::run() {
  churn_.start();
  std::int64_t n_warm_bytes = 0;
  std::jthread checker;
  for (int i = 0; i < options_.n_rounds; ++i) {
    std::vector<Asked> asked = run_round();
    if (checker.joinable()) checker.join();
    if (i == options_.n_rounds / 3) n_warm_bytes = resident_memory_bytes();
    checker = std::jthread([this, some = std::move(asked)]() mutable { check(std::move(some)); });
  }
  counts_.churn = churn_.stop();
  checker.join();
  counts_.memory_growth_bytes = resident_memory_bytes() - n_warm_bytes;
  check_emptiness();
  counts_.serving = rig_.loop().counters();
  counts_.n_alone = static_cast<std::int64_t>(alone_.n_computed());
  return counts_;
}

std::vector<ChaosRun::Asked> ChaosRun::run_round() {
  const auto begin = std::chrono::steady_clock::now();
  {
    std::vector<std::jthread> threads;
    for (Client& client : clients_) {
      threads.emplace_back([&] { ask_some(client, options_.n_requests_a_round / kClients); });
    }
  }
  std::vector<Asked> asked;
  for (Client& client : clients_) {
    counts_.n_refused += std::exchange(client.n_refused, 0);
    std::move(client.asked.begin(), client.asked.end(), std::back_inserter(asked));
    client.asked.clear();
  }
  counts_.n_requests += options_.n_requests_a_round;
  counts_.asking_s +=
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return asked;
}

void ChaosRun::ask_some(Client& client, int n) {
  std::size_t n_settled = 0;
  for (int i = 0; i < n; ++i) {
    ask(client);
    while (client.asked.size() - n_settled >= options_.max_under_way) {
      client.asked[n_settled].answer = client.asked[n_settled].sink->wait();
      ++n_settled;
    }
  }
  for (; n_settled < client.asked.size(); ++n_settled) {
    client.asked[n_settled].answer = client.asked[n_settled].sink->wait();
  }
}

// Names become versions as in the server: once, from the registry of that moment.
void ChaosRun::ask(Client& client) {
  const auto registry = store_->registry().get();
  Asked asked{client.requests.next(*registry), {}, nullptr, {}};
  auto resolution = resolve(*registry, asked.what.model, asked.what.choices);
  if (!resolution) {
    EXPECT_EQ(resolution.error().code, ErrorCode::kNotFound) << resolution.error().message;
    ++client.n_refused;
    return;
  }
  for (const Attachment& attachment : resolution->attachments.attachments) {
    asked.held.push_back({digest_of(*attachment.module), attachment.scale});
  }
  const RequestId id = next_id_++;
  asked.what.request.id = id;
  asked.sink =
      rig_.submit(asked.what.request, std::move(resolution->attachments), leave(asked.what, id));
  if (asked.what.leaves == Leaves::kCancels && asked.what.after_tokens == 0) {
    rig_.loop().cancel(id);
  }
  client.asked.push_back(std::move(asked));
}

CollectingSink::OnEvent ChaosRun::leave(const RandomRequest& what, RequestId id) {
  if (what.leaves == Leaves::kNever) return {};
  return [this, id, leaves = what.leaves, n_left = what.after_tokens](const Event& event) mutable {
    const bool is_last =
        std::holds_alternative<Finished>(event) || std::holds_alternative<Failed>(event);
    if (std::holds_alternative<TokenOutput>(event)) --n_left;
    if (n_left > 0 || is_last) return true;
    if (leaves == Leaves::kRefuses) return false;
    if (std::exchange(n_left, 1000) == 0) rig_.loop().cancel(id);
    return true;
  };
}

// The longest first, so that no answer is computed alone twice.
void ChaosRun::check(std::vector<Asked> asked) {
  std::stable_sort(asked.begin(), asked.end(), [](const Asked& a, const Asked& b) {
    return a.what.request.stop.max_tokens > b.what.request.stop.max_tokens;
  });
  for (const Asked& one : asked) check(one);
}

void ChaosRun::count(const Answer& answer) {
  counts_.n_tokens += static_cast<std::int64_t>(answer.tokens.size());
  counts_.n_cached_tokens += answer.n_cached_tokens;
  counts_.n_preempted += answer.n_preemptions > 0 ? 1 : 0;
  ++(answer.end == Answer::End::kCancelled ? counts_.n_cancelled : counts_.n_finished);
}

// What a client that left has got is a beginning; all others have everything.
void ChaosRun::check(const Asked& asked) {
  const Answer& answer = asked.answer;
  count(answer);
  const bool is_whole = answer.end != Answer::End::kCancelled;
  const std::int32_t max_tokens = asked.what.request.stop.max_tokens;
  const auto n_tokens = static_cast<std::int32_t>(answer.tokens.size());
  EXPECT_TRUE(is_whole || asked.what.leaves != Leaves::kNever) << "nobody cancelled it";
  if (!is_whole && n_tokens == 0) return;
  const Answer& alone =
      alone_.answer(asked.what.request, asked.held, is_whole ? max_tokens : n_tokens);
  ASSERT_NE(alone.end, Answer::End::kFailed) << alone.error.message;
  EXPECT_TRUE(begins_with(alone.tokens, answer.tokens) &&
              begins_with(alone.logprob_bits, answer.logprob_bits))
      << describe(asked.what, asked.held, answer, alone);
  EXPECT_EQ(answer.logprob_bits.size(), 3 * answer.tokens.size());
  if (!is_whole) return;
  const auto n_alone = static_cast<std::int32_t>(alone.tokens.size());
  EXPECT_EQ(n_tokens, std::min(n_alone, max_tokens)) << answer.error.message;
  EXPECT_EQ(answer.end, n_alone < max_tokens ? Answer::End::kStop : Answer::End::kLength);
  EXPECT_TRUE(n_alone >= max_tokens || answer.same_as(alone)) << answer.text;
}

// Requires: every answer has ended and every module is unloaded.
void ChaosRun::check_emptiness() {
  for (int i = 0; i < 2000 && store_->resident_bytes() > 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_EQ(store_->resident_bytes(), 0U) << "somebody holds an unloaded module";
  rig_.stop();
  Engine& engine = rig_.engine();
  engine.check_invariants();
  EXPECT_EQ(engine.cells().n_free(), engine.cells().n_cells());
  EXPECT_EQ(engine.n_free_sequences(), engine.max_sequences());
  const ServingSnapshot serving = rig_.loop().counters();
  EXPECT_TRUE(serving.healthy);
  EXPECT_EQ(serving.n_rejected, 0);
  EXPECT_EQ(serving.n_failed, 0);
  EXPECT_EQ(serving.n_running, 0);
  EXPECT_EQ(serving.n_waiting, 0);
  EXPECT_EQ(serving.n_submitted, counts_.n_requests - counts_.n_refused);
  EXPECT_EQ(serving.n_submitted, counts_.n_finished + counts_.n_cancelled);
  EXPECT_EQ(serving.n_submitted, serving.n_finished + serving.n_cancelled);
  EXPECT_GE(serving.n_finished, counts_.n_finished);
  EXPECT_GE(serving.n_generated_tokens, counts_.n_tokens);
}

std::string summary(const ChaosCounts& counts) {
  const ServingSnapshot& serving = counts.serving;
  const ChurnCounts& churn = counts.churn;
  std::ostringstream line;
  line << counts.n_requests << " requests: " << counts.n_refused << " refused, "
       << counts.n_cancelled << " cancelled, " << counts.n_finished << " finished, "
       << counts.n_tokens << " tokens, " << counts.n_alone
       << " computed alone; modules: " << churn.n_loaded << " loaded, " << churn.n_replaced
       << " replaced, " << churn.n_unloaded << " unloaded, " << churn.n_broken << " broken ("
       << churn.n_tried << " in a trial), " << churn.n_refused << " refused; "
       << serving.n_preemptions << " preemptions of " << counts.n_preempted
       << " answers; cached: " << counts.n_cached_tokens << " tokens, " << serving.n_prefix_hot_hits
       << " hot and " << serving.n_prefix_warm_hits << " warm hits; memory "
       << counts.memory_growth_bytes / 1024 << " KiB more; " << static_cast<int>(counts.asking_s)
       << " s of asking";
  return line.str();
}

void expect_all_kinds(const ChaosCounts& counts) {
  EXPECT_GT(counts.n_finished, 0);
  EXPECT_GT(counts.n_cancelled, 0);
  EXPECT_GT(counts.n_refused, 0);
  EXPECT_GT(counts.n_cached_tokens, 0);
  EXPECT_GT(counts.serving.n_prefix_hot_hits, 0);
  EXPECT_GT(counts.churn.n_loaded, 0);
  EXPECT_GT(counts.churn.n_replaced, 0);
  EXPECT_GT(counts.churn.n_unloaded, 0);
  EXPECT_GT(counts.churn.n_broken, 0);
  EXPECT_GT(counts.churn.n_refused, 0);
}

}  // namespace graft
