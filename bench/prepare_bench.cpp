// What preparing a chat costs before the engine hears of it, stage by stage: the body's JSON, the
// chat template, the tokenizer.
//
//   prepare_bench MODEL [--benchmark_...]
#include <benchmark/benchmark.h>

#include <cstdio>
#include <exception>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "api/generation_call.h"
#include "api/text_prompt_builder.h"
#include "text/chat_template.h"
#include "text/test_vocabulary.h"
#include "text/vocabulary.h"

namespace graft {
namespace {

// For vocabularies without a template of their own.
const char* const kChatMl =
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

struct Parts {
  std::unique_ptr<const Vocabulary> vocabulary;
  std::unique_ptr<const ChatTemplate> chat_template;
  api::ModelFacts facts;
};

// About 15 tokens each.
std::string sentences(std::size_t n, std::size_t first) {
  std::string text;
  for (std::size_t i = first; i < first + n; ++i) {
    text += "The keeper of lamp " + std::to_string(i) + " wrote down the wind and its hour. ";
  }
  return text;
}

// Every request ends with another question, as users' do.
std::string chat_body(std::size_t n_sentences, std::size_t n_turns) {
  static std::size_t n_made = 0;
  std::string body = R"({"model":"m","temperature":0,"max_tokens":8,"stream":true,"messages":[)";
  for (std::size_t turn = 0; turn < n_turns; ++turn) {
    body += R"({"role":"user","content":")" + sentences(n_sentences, turn) +
            R"("},{"role":"assistant","content":"It was so."},)";
  }
  n_made += 1000;
  return body + R"({"role":"user","content":")" + sentences(n_sentences, n_made) + R"("}]})";
}

// What a step of the engine does to the caches between two requests.
void evict_caches() {
  static std::vector<std::int64_t> weights((std::size_t{96} << 20) / sizeof(std::int64_t), 1);
  benchmark::DoNotOptimize(std::accumulate(weights.begin(), weights.end(), std::int64_t{0}));
}

void prepare(benchmark::State& state, const Parts& parts, int last_stage) {
  const api::TextPromptBuilder builder(*parts.vocabulary, parts.chat_template.get(), false);
  std::size_t n_tokens = 0;
  for (auto _ : state) {
    state.PauseTiming();
    const std::string body = chat_body(static_cast<std::size_t>(state.range(0)),
                                       static_cast<std::size_t>(state.range(1)));
    if (state.range(2) != 0) evict_caches();
    state.ResumeTiming();
    auto call = api::parse_chat_call(body, parts.facts);
    if (!call) {
      state.SkipWithError(call.error().message.c_str());
      break;
    }
    if (last_stage == 1) benchmark::DoNotOptimize(builder.render(*call->chat));
    if (last_stage == 2) {
      const auto chat = builder.from_chat(*call->chat, "bench");
      n_tokens = chat ? chat->tokens.size() : 0;
    }
  }
  if (n_tokens > 0) state.counters["tokens"] = static_cast<double>(n_tokens);
}

int run(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (argc != 2) {
    std::fprintf(stderr, "usage: prepare_bench MODEL [--benchmark_...]\n");
    return 2;
  }
  const ModelPtr model = load_vocabulary_only(argv[1]);
  if (model == nullptr) {
    std::fprintf(stderr, "prepare_bench: cannot read %s\n", argv[1]);
    return 1;
  }
  Parts parts;
  parts.vocabulary = Vocabulary::create(llama_model_get_vocab(model.get())).value();
  auto chat_template = ChatTemplate::create(model.get());
  if (!chat_template) chat_template = ChatTemplate::create_from_source(kChatMl, "", "");
  parts.chat_template = std::move(chat_template).value();
  parts.facts.n_context_tokens = 1 << 20;
  parts.facts.n_vocab = parts.vocabulary->size();
  const char* const names[] = {"json", "json+template", "json+template+tokens"};
  for (int stage = 0; stage < 3; ++stage) {
    benchmark::RegisterBenchmark(
        names[stage], [&parts, stage](benchmark::State& state) { prepare(state, parts, stage); })
        ->ArgNames({"sentences", "turns", "cold"})
        ->Args({5, 0, 0})
        ->Args({5, 0, 1})
        ->Args({1, 0, 0})
        ->Args({1, 0, 1})
        ->Args({5, 10, 0})
        ->Unit(benchmark::kMicrosecond);
  }
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

}  // namespace
}  // namespace graft

int main(int argc, char** argv) {
  try {
    return graft::run(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "prepare_bench: %s\n", e.what());
    return 1;
  }
}
