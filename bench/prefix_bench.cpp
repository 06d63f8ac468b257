// What the prefix cache saves and costs, through the loop: two engines on one model, one of them
// without the cache, in turn. Times are CPU times of the process with one computing thread, so that
// other work on the machine blurs them little.
//
//   first token    a prompt of N tokens that was seen before, with another last question
//   nothing shared whole requests whose prompts share nothing (ids differ from the first token on)
//
// usage: prefix_bench MODEL.gguf [PROMPT_TOKENS [PAIRS]]
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/model.h"
#include "scheduler/loop.h"

namespace graft {
namespace {

constexpr int kQuestionTokens = 20;
constexpr int kGenerated = 32;

double cpu_ms() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) / 1e6;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

class TimingSink final : public EventSink {
 public:
  bool publish(Event event) override {
    if (std::holds_alternative<TokenOutput>(event) && first_ms_ == 0) first_ms_ = cpu_ms();
    if (const auto* finished = std::get_if<Finished>(&event)) {
      n_cached_ = finished->n_cached_tokens;
      ended_.set_value();
    } else if (std::holds_alternative<Failed>(event)) {
      std::fprintf(stderr, "a request failed\n");
      std::exit(1);
    }
    return true;
  }
  void wait() { ended_.get_future().wait(); }
  double first_ms() const { return first_ms_; }
  int n_cached() const { return n_cached_; }

 private:
  std::promise<void> ended_;
  double first_ms_ = 0;
  int n_cached_ = 0;
};

struct Times {
  double first_ms = 0;
  double whole_ms = 0;
  int n_cached = 0;
};

class Side {
 public:
  Side(Model& model, const PrefixCacheOptions& options) {
    auto engine = Engine::create(model, {.max_seqs = 8, .n_threads = 1, .poll = 0});
    if (!engine) {
      std::fprintf(stderr, "%s\n", engine.error().message.c_str());
      std::exit(1);
    }
    engine_ = std::move(*engine);
    loop_ = std::make_unique<Loop>(*engine_, LoopOptions{.prefix_cache = options});
  }

  Times ask(std::vector<TokenId> prompt, int n_tokens) {
    GenerationRequest request;
    request.id = ++next_id_;
    request.prompt = std::move(prompt);
    request.sampling.temperature = 0;
    request.stop.max_tokens = n_tokens;
    request.stop.ignore_eos = true;
    const auto sink = std::make_shared<TimingSink>();
    const double begin = cpu_ms();
    if (!loop_->submit({std::move(request), {}, sink})) std::exit(1);
    sink->wait();
    return {sink->first_ms() - begin, cpu_ms() - begin, sink->n_cached()};
  }

 private:
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Loop> loop_;
  RequestId next_id_ = 0;
};

std::vector<TokenId> random_tokens(const Model& model, std::mt19937& random, int n) {
  std::vector<TokenId> tokens;
  const auto n_vocab = static_cast<std::uint32_t>(model.vocabulary().size());
  for (int i = 0; i < n; ++i) tokens.push_back(static_cast<TokenId>(random() % n_vocab));
  return tokens;
}

void print_row(const char* name, const std::vector<double>& without,
               const std::vector<double>& with) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < with.size(); ++i) ratios.push_back(without[i] / with[i]);
  std::printf("| %-34s | %10.1f | %10.1f | %8.3f |\n", name, median(without), median(with),
              median(ratios));
  std::fflush(stdout);
}

void run(Model& model, int n_prompt, int n_pairs) {
  PrefixCacheOptions off;
  off.enabled = false;
  PrefixCacheOptions warm;
  warm.max_hot_cells = n_prompt + kQuestionTokens + kGenerated;
  Side without(model, off);
  Side with(model, {});
  Side through_memory(model, warm);
  std::mt19937 random(1);
  const auto stem = random_tokens(model, random, n_prompt);
  const auto other = random_tokens(model, random, n_prompt);
  with.ask(stem, 1);
  through_memory.ask(stem, 1);

  std::printf("| %-34s | %10s | %10s | %8s |\n|---|---|---|---|\n", "CPU ms", "without", "with",
              "ratio");
  std::vector<double> cold;
  std::vector<double> hot;
  std::vector<double> restored;
  for (int i = 0; i < n_pairs; ++i) {
    auto prompt = stem;
    for (const TokenId token : random_tokens(model, random, kQuestionTokens)) {
      prompt.push_back(token);
    }
    cold.push_back(without.ask(prompt, 1).first_ms);
    hot.push_back(with.ask(prompt, 1).first_ms);
    through_memory.ask(other, 1);  // takes the cells
    const Times back = through_memory.ask(prompt, 1);
    if (back.n_cached > 0) restored.push_back(back.first_ms);
  }
  print_row("first token, from cells", cold, hot);
  if (restored.size() == cold.size()) print_row("first token, from host memory", cold, restored);

  std::vector<double> plain;
  std::vector<double> cached;
  for (int i = 0; i < 4 * n_pairs; ++i) {
    const auto prompt = random_tokens(model, random, 200);
    const bool turn = i % 2 == 0;  // each side goes first as often as the other
    if (turn) plain.push_back(without.ask(prompt, kGenerated).whole_ms);
    cached.push_back(with.ask(prompt, kGenerated).whole_ms);
    if (!turn) plain.push_back(without.ask(prompt, kGenerated).whole_ms);
  }
  print_row("200 + 32 tokens, nothing shared", plain, cached);
}

}  // namespace
}  // namespace graft

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: prefix_bench MODEL.gguf [PROMPT_TOKENS [PAIRS]]\n");
    return 2;
  }
  auto model = graft::Model::load({.path = argv[1]});
  if (!model) {
    std::fprintf(stderr, "%s\n", model.error().message.c_str());
    return 1;
  }
  graft::run(**model, argc > 2 ? std::atoi(argv[2]) : 1000, argc > 3 ? std::atoi(argv[3]) : 5);
  return 0;
}
