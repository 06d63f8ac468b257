// Times single steps of one context: what grafting costs beside plain libllama, what modules cost
// beside the base, and attention over unified memory beside ggml's. Every comparison alternates its
// two sides in this process; the table gives medians and the median of the paired ratios.
//
// The pools of the two sides do not spin while idle: the other side needs the cores.
//
// usage: step_bench tax|modules|attention|prefill|deterministic MODEL.gguf [ADAPTER...]
//        step_bench decode MODEL.gguf plain|ours STREAMS PROMPT TOKENS
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/model.h"
#include "modules/formats/read_adapter.h"
#include "support/raw_context.h"

namespace graft::testing {
namespace {

using Adapters = std::vector<std::shared_ptr<const ResidentAdapter>>;

double now_ms() {
  using Clock = std::chrono::steady_clock;
  return std::chrono::duration<double, std::milli>(Clock::now().time_since_epoch()).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

constexpr int kStepsPerTurn = 8;  // steady decoding reuses graphs and node lists, as in serving

// Runs a and b in turn and prints one row: both medians and the median of a / b. Each of them makes
// `n_steps` steps; the table shows milliseconds per step.
void compare(const std::string& name, int n_pairs, const std::function<void()>& a,
             const std::function<void()>& b, int n_steps = 1) {
  std::vector<double> times_a;
  std::vector<double> times_b;
  std::vector<double> ratios;
  a();
  b();
  for (int i = 0; i < n_pairs; ++i) {
    const double start = now_ms();
    a();
    const double middle = now_ms();
    b();
    const double end = now_ms();
    times_a.push_back((middle - start) / n_steps);
    times_b.push_back((end - middle) / n_steps);
    ratios.push_back(times_a.back() / times_b.back());
  }
  std::printf("| %-58s | %9.3f | %9.3f | %6.3f |\n", name.c_str(), median(times_a), median(times_b),
              median(ratios));
  std::fflush(stdout);
}

void print_header(const char* a, const char* b) {
  std::printf("| %-58s | %9s | %9s | %6s |\n|---|---|---|---|\n", "", a, b, "ratio");
}

TokenId token_at(int position, int sequence, int n_vocab) {
  return (position * 37 + 11 * sequence + 5) % n_vocab;
}

// `n_seqs` sequences of equal length, advanced together.
class Streams {
 public:
  Streams(RawContext& context, int n_seqs, int prompt) : context_(context), n_seqs_(n_seqs) {
    for (int s = 0; s < n_seqs; ++s) prefill(s, prompt, 256);
    position_ = prompt;
  }

  void prefill(int sequence, int prompt, int chunk) {
    for (int at = 0; at < prompt; at += chunk) {
      StepPlan plan;
      for (int i = at; i < std::min(prompt, at + chunk); ++i) {
        plan.rows.push_back(
            {token_at(i, sequence, context_.n_vocab()), i, sequence, i + 1 == prompt, -1});
      }
      check(context_.decode(plan));
    }
  }

  void steps(const std::vector<std::vector<PlannedAttachment>>& sets) {
    for (int i = 0; i < kStepsPerTurn; ++i) step(sets);
  }

  // One decode step of every sequence with the sets given; then takes it back.
  void step(const std::vector<std::vector<PlannedAttachment>>& sets) {
    compute(sets);
    for (int s = 0; s < n_seqs_; ++s) context_.remove(s, position_);
  }

  // One decode step of every sequence that stays.
  void advance() {
    compute({});
    ++position_;
  }

  static void check(int status) {
    if (status != 0) {
      std::fprintf(stderr, "llama_decode failed: %d\n", status);
      std::exit(1);
    }
  }

 private:
  void compute(const std::vector<std::vector<PlannedAttachment>>& sets) {
    StepPlan plan;
    plan.sets = sets;
    const int n_sets = static_cast<int>(sets.size());
    for (int s = 0; s < n_seqs_; ++s) {
      plan.rows.push_back({token_at(position_, s, context_.n_vocab()), position_, s, true,
                           n_sets == 0 ? -1 : s % n_sets});
    }
    check(context_.decode(plan));
  }

  RawContext& context_;
  int n_seqs_;
  int position_ = 0;
};

// A prompt of n tokens in one batch on a sequence of its own, taken back.
void run_prompt(RawContext& context, int n, const std::vector<PlannedAttachment>& set) {
  StepPlan plan;
  if (!set.empty()) plan.sets.push_back(set);
  for (int i = 0; i < n; ++i) {
    plan.rows.push_back(
        {token_at(i, 0, context.n_vocab()), i, 0, i + 1 == n, set.empty() ? -1 : 0});
  }
  Streams::check(context.decode(plan));
  context.remove(0);
}

Adapters load_adapters(const Model& model, const std::vector<std::string>& paths,
                       Precision precision) {
  Adapters adapters;
  for (const std::string& path : paths) {
    auto adapter = read_adapter(path, model.base());
    if (!adapter) throw std::runtime_error(path + ": " + adapter.error().message);
    auto resident = ResidentAdapter::pack(std::move(adapter).value(), precision);
    if (!resident) throw std::runtime_error(path + ": " + resident.error().message);
    adapters.push_back(std::move(resident).value());
  }
  return adapters;
}

std::vector<std::vector<PlannedAttachment>> one_set_each(const Adapters& adapters, std::size_t n) {
  std::vector<std::vector<PlannedAttachment>> sets;
  for (std::size_t i = 0; i < n; ++i) sets.push_back({{adapters[i].get(), 1.0F, 0}});
  return sets;
}

// A model that llama.cpp loads and runs without the grafting device. Must come before any other.
ModelPointer load_plain(const std::string& path) {
  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  ModelPointer model(llama_model_load_from_file(path.c_str(), llama_model_default_params()));
  if (model == nullptr) throw std::runtime_error("cannot load " + path);
  return model;
}

void bench_tax(const std::string& path) {
  const ModelPointer plain_model = load_plain(path);
  RawContext plain(plain_model.get(), {.poll = 0, .grafter = false});
  const ModelPointer model = load_model(path);
  RawContext grafted(model.get(), {.poll = 0, .attention = false});
  print_header("grafted", "plain");
  for (const int n : {1, 8}) {
    plain.clear();
    grafted.clear();
    Streams a(grafted, n, 128);
    Streams b(plain, n, 128);
    compare(
        "decode, " + std::to_string(n) + " rows, no module, ggml's attention, ms", 31,
        [&] { a.steps({}); }, [&] { b.steps({}); }, kStepsPerTurn);
  }
  plain.clear();
  grafted.clear();
  compare(
      "prefill of 512 tokens, no module, ggml's attention, ms", 15,
      [&] { run_prompt(grafted, 512, {}); }, [&] { run_prompt(plain, 512, {}); });
}

void bench_modules(const std::string& path, const std::vector<std::string>& adapter_paths) {
  register_grafting_device();
  auto model = Model::load({.path = path});
  if (!model) throw std::runtime_error(model.error().message);
  RawContext context((*model)->handle(), {});
  print_header("modules", "base");
  for (const auto& [precision, name] :
       {std::pair{Precision::kF16, "f16"}, std::pair{Precision::kQ8_0, "q8_0"}}) {
    const Adapters adapters = load_adapters(**model, adapter_paths, precision);
    context.clear();
    Streams streams(context, 8, 128);
    const std::string suffix = std::string(", ") + name + " factors, ms";
    compare(
        "decode, 8 rows, 8 different adapters" + suffix, 31,
        [&] { streams.steps(one_set_each(adapters, 8)); }, [&] { streams.steps({}); },
        kStepsPerTurn);
    compare(
        "decode, 8 rows, one adapter" + suffix, 31,
        [&] { streams.steps(one_set_each(adapters, 1)); }, [&] { streams.steps({}); },
        kStepsPerTurn);
    streams.steps(one_set_each(adapters, 8));
    std::printf("preparing the step with 8 adapters took %.3f ms\n",
                static_cast<double>(context.grafter().stats().prepare_ns) / 1e6);
    context.clear();
    compare(
        "prefill of 512 tokens, one adapter" + suffix, 15,
        [&] {
          run_prompt(context, 512, {{adapters[0].get(), 1.0F, 0}});
        },
        [&] { run_prompt(context, 512, {}); });
    std::uint64_t bytes = 0;
    for (const auto& adapter : adapters) {
      bytes += adapter->arena_bytes();
      context.grafter().forget(adapter.get());
    }
    std::printf("%zu adapters of %s factors hold %.1f MB\n", adapters.size(), name,
                static_cast<double>(bytes) / 1e6);
  }
}

void bench_attention(const std::string& path) {
  const ModelPointer plain_model = load_plain(path);
  struct Size {
    int n_seqs;
    int length;
    int pairs;
  };
  std::vector<std::unique_ptr<RawContext>> unified;
  std::vector<std::unique_ptr<RawContext>> separate;
  const std::vector<Size> sizes = {{8, 512, 41}, {32, 512, 21}, {64, 512, 11}, {128, 256, 7}};
  for (const Size& size : sizes) {
    const auto n = static_cast<std::uint32_t>(size.n_seqs);
    const auto cells = static_cast<std::uint32_t>(size.length + 16);
    unified.push_back(std::make_unique<RawContext>(
        plain_model.get(),
        RawOptions{.n_ctx = n * cells, .n_seqs = n, .poll = 0, .grafter = false}));
    separate.push_back(std::make_unique<RawContext>(
        plain_model.get(), RawOptions{.n_ctx = n * (static_cast<std::uint32_t>(size.length) + 256),
                                      .n_seqs = n,
                                      .poll = 0,
                                      .grafter = false,
                                      .unified = false}));
  }
  const ModelPointer model = load_model(path);
  print_header("ggml", "ours");
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const Size& size = sizes[i];
    const auto n = static_cast<std::uint32_t>(size.n_seqs);
    const auto cells = static_cast<std::uint32_t>(size.length + 16);
    RawContext ours(model.get(), {.n_ctx = n * cells, .n_seqs = n, .poll = 0});
    Streams a(*unified[i], size.n_seqs, size.length);
    Streams b(*separate[i], size.n_seqs, size.length);
    Streams c(ours, size.n_seqs, size.length);
    const std::string name = "decode, " + std::to_string(size.n_seqs) + " sequences of " +
                             std::to_string(size.length) + ", ";
    compare(
        name + "unified memory, ms", size.pairs, [&] { a.step({}); }, [&] { c.step({}); });
    compare(
        name + "memory per sequence, ms", size.pairs, [&] { b.step({}); }, [&] { c.step({}); });
    unified[i].reset();
    separate[i].reset();
  }
}

// Only our side of bench_attention, for a profiler.
void bench_ours(const std::string& path) {
  const ModelPointer model = load_model(path);
  RawContext ours(model.get(), {.n_ctx = 32 * 528, .n_seqs = 32});
  Streams streams(ours, 32, 512);
  print_header("ours", "ours");
  compare(
      "decode, 32 sequences of 512, ms", 60, [&] { streams.step({}); }, [&] { streams.step({}); });
  Streams short_streams(ours, 1, 1);
}

void bench_prefill(const std::string& path) {
  const ModelPointer plain_model = load_plain(path);
  const RawOptions options{.n_ctx = 32 * 528, .n_seqs = 32, .poll = 0, .grafter = false};
  RawContext plain(plain_model.get(), options);
  const ModelPointer model = load_model(path);
  RawContext ours(model.get(), {.n_ctx = 32 * 528, .n_seqs = 32, .poll = 0});
  print_header("ggml", "ours");
  const auto all = [](RawContext& context) {
    context.clear();
    Streams streams(context, 32, 512);
  };
  compare(
      "prefill of 32 prompts of 512, unified memory, ms", 3, [&] { all(plain); },
      [&] { all(ours); });
}

// The price of `deterministic`: beside the same engine as it serves otherwise, repacked weights
// included.
void bench_deterministic(const std::string& path) {
  const ModelPointer served_model = load_model(path);
  const ModelPointer plain_model = load_model(path, /*repack=*/false);
  RawContext served(served_model.get(), {.poll = 0});
  RawContext exact(plain_model.get(), {.poll = 0, .deterministic = true});
  print_header("exact", "served");
  for (const int n : {1, 8}) {
    served.clear();
    exact.clear();
    Streams a(exact, n, 128);
    Streams b(served, n, 128);
    compare(
        "decode, " + std::to_string(n) + " rows, deterministic, ms", 21, [&] { a.steps({}); },
        [&] { b.steps({}); }, kStepsPerTurn);
  }
  served.clear();
  exact.clear();
  compare(
      "prefill of 512 tokens, deterministic, ms", 9, [&] { run_prompt(exact, 512, {}); },
      [&] { run_prompt(served, 512, {}); });
}

// The bare library decoding like a server's streams, for a script that compares it with one.
// `kind`: "plain" is libllama alone, anything else has our attention. Prints tokens per second.
void bench_decode(const std::string& path, const std::string& kind, int n_seqs, int prompt,
                  int n_tokens) {
  const bool is_plain = kind == "plain";
  const ModelPointer model = is_plain ? load_plain(path) : load_model(path);
  RawContext context(
      model.get(),
      {.n_ctx = static_cast<std::uint32_t>(std::max(4096, n_seqs * (prompt + n_tokens + 32))),
       .n_seqs = static_cast<std::uint32_t>(n_seqs),
       .grafter = !is_plain});
  Streams streams(context, n_seqs, prompt);
  streams.advance();
  const double begin = now_ms();
  for (int i = 1; i < n_tokens; ++i) streams.advance();
  std::printf("%.2f\n", 1e3 * n_seqs * (n_tokens - 1) / (now_ms() - begin));
}

}  // namespace
}  // namespace graft::testing

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr,
                 "usage: step_bench tax|modules|attention|prefill|deterministic MODEL.gguf "
                 "[ADAPTER...]\n"
                 "       step_bench decode MODEL.gguf plain|ours STREAMS PROMPT TOKENS\n");
    return 2;
  }
  const std::string what = argv[1];
  const std::string model = argv[2];
  const std::vector<std::string> adapters(argv + 3, argv + argc);
  try {
    if (what == "tax") graft::testing::bench_tax(model);
    if (what == "modules") graft::testing::bench_modules(model, adapters);
    if (what == "attention") graft::testing::bench_attention(model);
    if (what == "ours") graft::testing::bench_ours(model);
    if (what == "prefill") graft::testing::bench_prefill(model);
    if (what == "deterministic") graft::testing::bench_deterministic(model);
    if (what == "decode" && adapters.size() == 4) {
      graft::testing::bench_decode(model, adapters[0], std::stoi(adapters[1]),
                                   std::stoi(adapters[2]), std::stoi(adapters[3]));
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "step_bench: %s\n", error.what());
    return 1;
  }
  return 0;
}
