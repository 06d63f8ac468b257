// ChaosRun: two clients that ask at random, in rounds, while modules come and go; after each round,
// beside the next, every answer is held against the one that the same content gives alone. A
// round's end is a moment at which nothing runs. Everything is chosen from one seed; only the
// threads' timing is not.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "chaos/answers_alone.h"
#include "chaos/module_churn.h"
#include "chaos/module_contents.h"
#include "chaos/random_requests.h"
#include "modules/store/module_store.h"
#include "scheduler/loop_trial.h"
#include "support/serving_rig.h"

namespace graft {

struct ChaosOptions {
  RigOptions rig = {};
  std::vector<std::string> names = {"a", "b", "c", "d", "e", "team/f"};
  std::uint32_t seed = 1;
  int n_rounds = 6;  // the first third is warm-up for the measure of memory
  int n_requests_a_round = 100;
  std::size_t max_under_way = 12;  // of each client
  RandomRequestOptions requests = {};
  std::chrono::microseconds max_pause{2000};  // between changes of the modules
};

struct ChaosCounts {
  std::int64_t n_requests = 0;
  std::int64_t n_refused = 0;  // named what was not there (any more)
  std::int64_t n_finished = 0;
  std::int64_t n_cancelled = 0;
  std::int64_t n_tokens = 0;
  std::int64_t n_cached_tokens = 0;
  std::int64_t n_preempted = 0;  // answers that were, once or more
  ChurnCounts churn;
  ServingSnapshot serving;               // at the end
  std::int64_t n_alone = 0;              // answers computed alone
  std::int64_t memory_growth_bytes = 0;  // since the warm-up
  double asking_s = 0;
};

class ChaosRun {
 public:
  // All outlive it. `alone` is a model of its own, so that nothing is shared with what is tested.
  ChaosRun(Model& model, Model& alone, const ModuleContents& contents, const ChaosOptions& options);

  // Fails the test wherever something is not as it must be.
  ChaosCounts run();

 private:
  struct Asked {
    RandomRequest what;
    std::vector<HeldModule> held;
    std::shared_ptr<CollectingSink> sink;
    Answer answer;
  };
  // One client's part of a round.
  struct Client {
    RandomRequests requests;
    std::vector<Asked> asked;
    std::int64_t n_refused = 0;
  };

  std::vector<Asked> run_round();
  void ask_some(Client& client, int n);
  void ask(Client& client);
  CollectingSink::OnEvent leave(const RandomRequest& what, RequestId id);
  void count(const Answer& answer);
  void check(std::vector<Asked> asked);
  void check(const Asked& asked);
  void check_emptiness();

  ChaosOptions options_;
  ServingRig rig_;
  LoopTrial trial_;
  std::unique_ptr<ModuleStore> store_;
  AnswersAlone alone_;
  ModuleChurn churn_;
  std::vector<Client> clients_;
  std::atomic<RequestId> next_id_{1};
  ChaosCounts counts_;
};

// One line for who reads the log.
std::string summary(const ChaosCounts& counts);

// Whether everything that a run is about has happened in it.
void expect_all_kinds(const ChaosCounts& counts);

}  // namespace graft
