#include "support/serving_rig.h"

#include <gtest/gtest.h>

#include <bit>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <utility>

namespace graft {

namespace {

template <typename T>
T value_or_abort(Result<T> result, const std::string& what) {
  if (result) return std::move(result).value();
  std::cerr << "cannot test without " << what << ": " << result.error().message << "\n";
  std::abort();
}

Answer::End end_of(FinishReason reason) {
  switch (reason) {
    case FinishReason::kToolCalls:  // never of the engine
    case FinishReason::kStop: return Answer::End::kStop;
    case FinishReason::kLength: return Answer::End::kLength;
    case FinishReason::kCancelled: return Answer::End::kCancelled;
  }
  return Answer::End::kNone;
}

std::uint32_t bits_of(float value) { return std::bit_cast<std::uint32_t>(value); }

void add_prompt(const PromptScored& scored, Answer& answer) {
  EXPECT_TRUE(answer.tokens.empty()) << "the prompt comes before what is generated";
  EXPECT_FALSE(scored.tokens.empty());
  for (const PromptToken& token : scored.tokens) {
    answer.prompt_bits.push_back(static_cast<std::uint32_t>(token.token.token));
    answer.prompt_bits.push_back(bits_of(token.token.logprob));
    answer.prompt_bits.push_back(static_cast<std::uint32_t>(token.rank));
    for (const TokenLogprob& other : token.top_logprobs) {
      answer.prompt_bits.push_back(static_cast<std::uint32_t>(other.token));
      answer.prompt_bits.push_back(bits_of(other.logprob));
    }
    answer.prompt.push_back(token);
  }
}

}  // namespace

bool CollectingSink::publish(Event event) {
  bool wants_more = !on_event_ || on_event_(event);
  MutexLock lock(mutex_);
  EXPECT_FALSE(has_ended_) << "an event after the last one";
  add(event);
  if (!wants_more) {
    answer_.end = Answer::End::kCancelled;
    has_ended_ = true;
  }
  if (has_ended_) ended_.notify_all();
  return wants_more;
}

void CollectingSink::add(const Event& event) {
  if (const auto* started = std::get_if<Started>(&event)) {
    EXPECT_EQ(answer_.n_prompt_tokens, 0) << "Started comes once";
    answer_.n_prompt_tokens = started->n_prompt_tokens;
  } else if (const auto* scored = std::get_if<PromptScored>(&event)) {
    add_prompt(*scored, answer_);
  } else if (const auto* embedded = std::get_if<Embedded>(&event)) {
    EXPECT_TRUE(answer_.embedding_bits.empty()) << "Embedded comes once";
    for (const float value : embedded->values) answer_.embedding_bits.push_back(bits_of(value));
  } else if (const auto* token = std::get_if<TokenOutput>(&event)) {
    answer_.tokens.push_back(token->token);
    answer_.text += token->text;
    if (token->logprob) {
      answer_.logprob_bits.push_back(bits_of(token->logprob->logprob));
    }
    for (const TokenLogprob& other : token->top_logprobs) {
      answer_.logprob_bits.push_back(bits_of(other.logprob));
    }
  } else if (const auto* finished = std::get_if<Finished>(&event)) {
    answer_.end = end_of(finished->reason);
    answer_.text += finished->text;
    answer_.n_generated_tokens = finished->n_generated_tokens;
    answer_.n_preemptions = finished->n_preemptions;
    answer_.n_cached_tokens = finished->n_cached_tokens;
    has_ended_ = true;
  } else if (const auto* failed = std::get_if<Failed>(&event)) {
    answer_.end = Answer::End::kFailed;
    answer_.error = failed->error;
    has_ended_ = true;
  }
}

Answer CollectingSink::wait() {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(300);
  MutexLock lock(mutex_);
  while (!has_ended_ && std::chrono::steady_clock::now() < deadline) {
    ended_.wait_for(mutex_, std::chrono::seconds(1));
  }
  EXPECT_TRUE(has_ended_) << "no answer within 300 s";
  return answer_;
}

ServingRig::ServingRig(Model& model, const RigOptions& options)
    : engine_(value_or_abort(Engine::create(model, options.engine), "an engine")),
      loop_(std::make_unique<Loop>(*engine_, options.loop)) {}

std::shared_ptr<CollectingSink> ServingRig::submit(GenerationRequest request,
                                                   AttachmentSet attachments,
                                                   CollectingSink::OnEvent on_event,
                                                   std::shared_ptr<const Constraint> constraint) {
  auto sink = std::make_shared<CollectingSink>(std::move(on_event));
  Submission submission;
  submission.request = std::move(request);
  submission.attachments = std::move(attachments);
  submission.sink = sink;
  submission.constraint = std::move(constraint);
  const Status status = loop_->submit(std::move(submission));
  if (!status) {
    sink->publish(Failed{status.error()});
  }
  return sink;
}

std::vector<std::shared_ptr<CollectingSink>> ServingRig::submit_group(
    const std::vector<GenerationRequest>& choices, const AttachmentSet& attachments) {
  std::vector<std::shared_ptr<CollectingSink>> sinks;
  std::vector<Submission> group;
  for (const GenerationRequest& choice : choices) {
    sinks.push_back(std::make_shared<CollectingSink>());
    group.push_back({choice, attachments, sinks.back()});
  }
  if (const Status status = loop_->submit_group(std::move(group)); !status) {
    for (const auto& sink : sinks) sink->publish(Failed{status.error()});
  }
  return sinks;
}

Answer ServingRig::ask(GenerationRequest request, AttachmentSet attachments) {
  return submit(std::move(request), std::move(attachments))->wait();
}

std::unique_ptr<Model> load_model(const std::string& path) {
  return value_or_abort(Model::load({.path = path}),
                        "a model (run ./scripts/setup.sh to fetch and make the models)");
}

}  // namespace graft
