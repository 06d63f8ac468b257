// ScriptedGeneration: a GenerationService for tests. It answers each submission from a script, on a
// thread of its own, like the engine thread: Started, one TokenOutput per piece, Finished. Records
// what was submitted and cancelled. FakePromptBuilder: one token per byte.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "api/prompt_builder.h"
#include "base/mutex.h"
#include "modules/store/registry_snapshot.h"
#include "scheduler/generation_service.h"

namespace graft::api {

struct Script {
  std::vector<std::string> pieces = {"Hel", "lo", " world"};
  std::chrono::microseconds step{0};  // before each token
  bool endless = false;               // repeats the pieces until cancelled
  bool silent = false;                // no event at all until cancelled
  FinishReason reason = FinishReason::kStop;
  int fail_after = -1;                          // tokens, then Failed{kInternal}; -1 = never
  std::string stop_string = {};                 // what Finished names
  Error refuse{ErrorCode::kCancelled, "", {}};  // submit() returns this, unless kCancelled
  bool healthy = true;
  std::size_t max_running = 1'000'000;  // more are refused with kResourceExhausted
};

class ScriptedGeneration : public GenerationService {
 public:
  ScriptedGeneration() : thread_([this](const std::stop_token& stop) { run(stop); }) {}
  ~ScriptedGeneration() override { thread_.request_stop(); }

  void set_script(Script script) {
    MutexLock lock(mutex_);
    script_ = std::move(script);
  }

  Status submit(Submission submission) override {
    MutexLock lock(mutex_);
    if (script_.refuse.code != ErrorCode::kCancelled) return script_.refuse;
    if (running_.size() >= script_.max_running) {
      return Error{ErrorCode::kResourceExhausted, "the queue is full", {}};
    }
    submitted_.push_back(submission.request);
    attachments_.push_back(submission.attachments);
    tenants_.push_back(submission.tenant);
    running_.push_back({std::move(submission), script_, 0, false, {}});
    return {};
  }

  void cancel(RequestId id) override {
    MutexLock lock(mutex_);
    cancelled_.insert(id);
  }

  bool healthy() const override {
    MutexLock lock(mutex_);
    return script_.healthy;
  }

  ServingSnapshot counters() const override {
    ServingSnapshot snapshot;
    snapshot.n_running = static_cast<std::int64_t>(n_running());
    return snapshot;
  }

  std::vector<GenerationRequest> submitted() const {
    MutexLock lock(mutex_);
    return submitted_;
  }
  std::vector<AttachmentSet> attachments() const {
    MutexLock lock(mutex_);
    return attachments_;
  }
  std::vector<std::string> tenants() const {
    MutexLock lock(mutex_);
    return tenants_;
  }
  std::size_t n_running() const {
    MutexLock lock(mutex_);
    return running_.size();
  }
  // Waits, at most ten seconds, until nothing runs.
  bool wait_until_idle() const {
    for (int i = 0; i < 10'000; ++i) {
      if (n_running() == 0) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }

 private:
  struct Running {
    Submission submission;
    Script script;
    int n_tokens = 0;
    bool started = false;
    std::chrono::steady_clock::time_point due;
  };

  void run(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      step();
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  }

  // Publishes outside the lock, as a sink may call back.
  void step() {
    std::vector<Running> batch;
    {
      MutexLock lock(mutex_);
      batch = running_;
    }
    std::set<RequestId> ended;
    std::map<RequestId, Running> moved;
    for (Running& one : batch) {
      const RequestId id = one.submission.request.id;
      if (advance(one)) {
        moved.emplace(id, std::move(one));
      } else {
        ended.insert(id);
      }
    }
    batch.clear();
    MutexLock lock(mutex_);
    std::vector<Running> left;
    for (Running& one : running_) {
      const RequestId id = one.submission.request.id;
      if (ended.count(id) != 0) continue;
      const auto found = moved.find(id);
      left.push_back(found == moved.end() ? std::move(one) : std::move(found->second));
    }
    running_ = std::move(left);
  }

  bool is_cancelled(RequestId id) const {
    MutexLock lock(mutex_);
    return cancelled_.count(id) != 0;
  }

  // False when the request has ended.
  bool advance(Running& one) {
    EventSink& sink = *one.submission.sink;
    const auto n_prompt = static_cast<std::int32_t>(one.submission.request.prompt.size());
    if (is_cancelled(one.submission.request.id)) {
      sink.publish(Finished{FinishReason::kCancelled, "", n_prompt, one.n_tokens, 0, {}});
      return false;
    }
    if (one.script.silent) return true;
    if (!one.started) {
      one.started = true;
      return sink.publish(Started{n_prompt}) && report_prompt(one.submission.request, sink);
    }
    const auto now = std::chrono::steady_clock::now();
    if (now < one.due) return true;
    one.due = now + one.script.step;
    if (one.script.fail_after >= 0 && one.n_tokens >= one.script.fail_after) {
      sink.publish(Failed{internal_error("the engine failed")});
      return false;
    }
    const auto n_pieces = static_cast<int>(one.script.pieces.size());
    const auto max_tokens = one.submission.request.stop.max_tokens;
    const bool cut = max_tokens >= 0 && one.n_tokens >= max_tokens;
    if (cut || (!one.script.endless && one.n_tokens >= n_pieces)) {
      sink.publish(Finished{cut ? FinishReason::kLength : one.script.reason,
                            "",
                            n_prompt,
                            one.n_tokens,
                            0,
                            {},
                            0,
                            one.script.stop_string});
      return false;
    }
    return sink.publish(next_token(one, n_pieces));
  }

  // Every token of the prompt gets the log-probability -1, alternatives less, in two parts. An
  // embedding is (0.6, 0, 0.8 at the prompt's length, counted from 0 and going round).
  static bool report_prompt(const GenerationRequest& request, EventSink& sink) {
    if (request.embedding) {
      Embedded embedded{{0.6F, 0, 0, 0}};
      embedded.values[1 + request.prompt.size() % 3] = 0.8F;
      return sink.publish(std::move(embedded));
    }
    if (!request.n_prompt_logprobs) return true;
    PromptScored part;
    for (std::size_t i = 0; i < request.prompt.size(); ++i) {
      PromptToken told;
      told.text = std::string(1, static_cast<char>(request.prompt[i]));
      told.token = {request.prompt[i], told.text, i == 0 ? 0.0F : -1.0F};
      told.rank = i == 0 ? 0 : 2;
      for (std::int32_t k = 0; i > 0 && k < *request.n_prompt_logprobs; ++k) {
        told.top_logprobs.push_back(
            {900 + k, "alt" + std::to_string(k), -0.5F - static_cast<float>(k)});
      }
      part.tokens.push_back(std::move(told));
      if (i == 0 && !sink.publish(std::exchange(part, {}))) return false;
    }
    return part.tokens.empty() || sink.publish(std::move(part));
  }

  static TokenOutput next_token(Running& one, int n_pieces) {
    TokenOutput token;
    token.token = one.n_tokens;
    token.text = one.script.pieces[static_cast<std::size_t>(one.n_tokens % n_pieces)];
    ++one.n_tokens;
    const auto& n_logprobs = one.submission.request.sampling.n_logprobs;
    if (!n_logprobs) return token;
    token.logprob = TokenLogprob{token.token, token.text, -0.5F};
    for (std::int32_t i = 0; i < *n_logprobs; ++i) {
      token.top_logprobs.push_back({token.token + i,
                                    i == 0 ? token.text : "alt" + std::to_string(i),
                                    -0.5F - static_cast<float>(i)});
    }
    return token;
  }

  mutable Mutex mutex_;
  Script script_ GRAFT_GUARDED_BY(mutex_);
  std::vector<Running> running_ GRAFT_GUARDED_BY(mutex_);
  std::vector<GenerationRequest> submitted_ GRAFT_GUARDED_BY(mutex_);
  std::vector<AttachmentSet> attachments_ GRAFT_GUARDED_BY(mutex_);
  std::vector<std::string> tenants_ GRAFT_GUARDED_BY(mutex_);
  std::set<RequestId> cancelled_ GRAFT_GUARDED_BY(mutex_);
  std::jthread thread_;
};

class FakePromptBuilder : public PromptBuilder {
 public:
  // How chats with tools are answered.
  void set_tool_format(std::shared_ptr<const AnswerFormat> format) { format_ = std::move(format); }

  Result<BuiltChat> from_chat(const ChatPrompt& prompt,
                              std::optional<std::string_view> owner) const override {
    {
      const MutexLock lock(mutex_);
      owners_.emplace_back(owner);
    }
    if (prompt.messages_json.find("throw at me") != std::string::npos) throw std::bad_alloc();
    if (prompt.messages_json.find("refuse me") != std::string::npos) {
      return invalid_argument("The chat template refused the messages.", "messages");
    }
    BuiltChat built;
    GRAFT_ASSIGN_OR_RETURN(built.tokens, from_text(prompt.messages_json));
    if (!prompt.tools_json.empty()) built.format = format_;
    return built;
  }
  Result<std::string> render(const ChatPrompt& prompt) const override {
    return prompt.messages_json;
  }
  // "<s>" stands for the control token 256.
  Result<std::vector<TokenId>> tokenize(const std::string& text,
                                        const TextOptions& options) const override {
    std::vector<TokenId> tokens;
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (options.parse_special && text.compare(i, 3, "<s>") == 0) {
        tokens.push_back(256);
        i += 2;
      } else {
        tokens.push_back(static_cast<unsigned char>(text[i]));
      }
    }
    return tokens;
  }
  std::string detokenize(std::span<const TokenId> tokens) const override {
    std::string text;
    for (const TokenId token : tokens) {
      text += token == 256 ? "<s>" : std::string(1, static_cast<char>(token));
    }
    return text;
  }

  // Of every chat, in order.
  std::vector<std::optional<std::string>> owners() const {
    const MutexLock lock(mutex_);
    return owners_;
  }

 private:
  std::shared_ptr<const AnswerFormat> format_;
  mutable Mutex mutex_;
  mutable std::vector<std::optional<std::string>> owners_ GRAFT_GUARDED_BY(mutex_);
};

// A registry with the base "tiny" (also "base") and the modules "pirate" and "formal".
inline std::shared_ptr<const RegistrySnapshot> test_registry() {
  auto registry = std::make_shared<RegistrySnapshot>();
  registry->base_names = {"tiny", "base"};
  for (const auto& [name, digit] : {std::pair{"pirate", 'a'}, std::pair{"formal", 'b'}}) {
    auto adapter = std::make_shared<Adapter>();
    adapter->digest = std::string(64, digit);
    auto version = std::make_shared<ModuleVersion>();
    version->name = name;
    version->path = std::string("modules/") + name;
    version->created_unix_s = 1700000000;
    version->id = static_cast<std::int64_t>(registry->modules.size());
    version->description = std::move(adapter);
    registry->modules.push_back(std::move(version));
  }
  return registry;
}

inline ModelFacts test_facts() {
  ModelFacts facts;
  facts.n_context_tokens = 2000;
  facts.n_vocab = 1000;
  facts.max_choices = 16;
  facts.n_sequences = 2;
  facts.n_embedding_values = 4;
  facts.model_file = "tiny.gguf";
  facts.chat_template = "{{ messages }}";
  facts.bos_token = "<s>";
  facts.base_digest = std::string(64, 'c');
  facts.created_unix_s = 1700000001;
  return facts;
}

}  // namespace graft::api
