#include "scheduler/live_request.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "base/check.h"

namespace graft {

namespace {

double milliseconds(LiveRequest::Clock::duration duration) {
  return std::chrono::duration<double, std::milli>(duration).count();
}

}  // namespace

Result<std::unique_ptr<LiveRequest>> LiveRequest::create(Submission submission,
                                                         const Vocabulary& vocabulary,
                                                         std::int32_t max_tokens) {
  GRAFT_ASSIGN_OR_RETURN(
      StreamDecoder decoder,
      StreamDecoder::create(submission.request.stop.strings, submission.request.stop.keeps_string));
  std::unique_ptr<LiveRequest> request(
      new LiveRequest(std::move(submission), vocabulary, max_tokens, std::move(decoder)));
  GRAFT_RETURN_IF_ERROR(request->check());
  request->plan_attachments();
  GRAFT_ASSIGN_OR_RETURN(request->sampler_,
                         Sampler::create(request->submission_.request.sampling, vocabulary.size()));
  request->plan_report();
  GRAFT_RETURN_IF_ERROR(request->start_constraint());
  // Penalties look back over the prompt too, as llama.cpp's programs do.
  for (const TokenId token : request->tokens_) request->sampler_->accept(token);
  return request;
}

LiveRequest::LiveRequest(Submission submission, const Vocabulary& vocabulary,
                         std::int32_t max_tokens, StreamDecoder decoder)
    : submission_(std::move(submission)),
      vocabulary_(vocabulary),
      max_tokens_(max_tokens),
      decoder_(std::move(decoder)),
      tokens_(submission_.request.prompt),
      submitted_at_(Clock::now()) {
  const auto model = vocabulary_.end_of_generation_ids();
  const auto& own = submission_.request.stop.token_ids;
  ending_tokens_.assign(model.begin(), model.end());
  ending_tokens_.insert(ending_tokens_.end(), own.begin(), own.end());
}

Status LiveRequest::check() const {
  if (tokens_.empty()) return invalid_argument("the prompt is empty", "prompt");
  if (n_tokens() + (generates() ? 1 : 0) > max_tokens_) {
    return invalid_argument("the prompt has " + std::to_string(n_tokens()) +
                                " tokens; the context holds " + std::to_string(max_tokens_) +
                                " tokens, prompt and answer together",
                            "prompt");
  }
  const StopRules& stop = submission_.request.stop;
  if (stop.max_tokens < -1) {
    return invalid_argument("max_tokens is " + std::to_string(stop.max_tokens) +
                                "; it must be at least 0, or -1 for no limit",
                            "max_tokens");
  }
  if (const Status report = check_report(); !report) return report;
  const auto unknown = [&](TokenId token) { return !vocabulary_.contains(token); };
  if (std::any_of(tokens_.begin(), tokens_.end(), unknown)) {
    return invalid_argument("the prompt has a token that is not in the vocabulary", "prompt");
  }
  if (std::any_of(ending_tokens_.begin(), ending_tokens_.end(), unknown)) {
    return invalid_argument("a stop token is not in the vocabulary", "stop_token_ids");
  }
  const auto& banned = submission_.request.sampling.banned_sequences;
  if (std::any_of(banned.begin(), banned.end(), [](const auto& one) { return one.empty(); })) {
    return invalid_argument("a bad word has no tokens", "bad_words");
  }
  for (const Attachment& attachment : submission_.attachments.attachments) {
    if (attachment.module == nullptr || attachment.module->resident == nullptr ||
        !std::isfinite(attachment.scale) || attachment.start_position < 0) {
      return invalid_argument("a module's scale or start position is out of range", "modules");
    }
  }
  if (submission_.sink == nullptr) return invalid_argument("nobody receives the answer");
  return {};
}

Status LiveRequest::check_report() const {
  constexpr std::int32_t kMaxTop = 20;
  const GenerationRequest& request = submission_.request;
  const std::int32_t n_top = request.n_prompt_logprobs.value_or(0);
  if (n_top < 0 || n_top > kMaxTop) {
    return invalid_argument("prompt_logprobs is " + std::to_string(n_top) +
                                "; it must be from 0 to " + std::to_string(kMaxTop),
                            "prompt_logprobs");
  }
  if (request.embedding && (generates() || request.n_prompt_logprobs)) {
    return invalid_argument("an embedding is the whole answer: nothing else can be asked for");
  }
  return {};
}

void LiveRequest::plan_report() {
  const GenerationRequest& request = submission_.request;
  if (request.n_prompt_logprobs) {
    scores_.emplace(request.prompt, *request.n_prompt_logprobs, vocabulary_);
  }
  if (request.embedding) embedding_.emplace(*request.embedding, n_tokens());
}

Status LiveRequest::start_constraint() {
  if (submission_.constraint == nullptr) return {};
  if (!submission_.constraint_triggers.empty()) {
    GRAFT_ASSIGN_OR_RETURN(trigger_, TriggerFinder::create(submission_.constraint_triggers));
    return {};
  }
  constraint_ = std::make_unique<ConstraintState>(submission_.constraint);
  return constraint_->accept_text(submission_.constraint_prefix);
}

// A token may hold more than the trigger's end. If that does not fit, the answer stays free.
void LiveRequest::look_for_trigger(std::string_view piece) {
  const std::optional<std::string> begun = trigger_->push(piece);
  if (!begun) return;
  auto state = std::make_unique<ConstraintState>(submission_.constraint);
  if (!state->accept_text(*begun)) return;
  constraint_ = std::move(state);
  trigger_.reset();
}

void LiveRequest::plan_attachments() {
  for (const Attachment& attachment : submission_.attachments.attachments) {
    const PlannedAttachment planned = {.adapter = attachment.module->resident.get(),
                                       .scale = attachment.scale,
                                       .start_position = attachment.start_position};
    attachment_key_ += std::to_string(reinterpret_cast<std::uintptr_t>(planned.adapter)) + ' ' +
                       std::to_string(std::bit_cast<std::uint32_t>(planned.scale)) + ' ' +
                       std::to_string(planned.start_position) + '\n';
    attachment_set_.push_back(planned);
  }
}

PrefixPath LiveRequest::prefix_path(std::int32_t n_tokens) const {
  return {prefix_key_.root, tenant(), tokens().first(static_cast<std::size_t>(n_tokens)),
          prefix_key_.roles};
}

void LiveRequest::start(std::int32_t sequence, std::int32_t n_shared, std::int32_t n_found) {
  GRAFT_CHECK(n_cached_ == 0 && sequence_ < 0);
  sequence_ = sequence;
  n_cached_ = n_shared;
  presence_.run();
  if (std::exchange(was_started_, true)) return;
  started_at_ = Clock::now();
  n_found_tokens_ = n_found;
  events_.push_back(Started{.n_prompt_tokens = n_prompt(), .n_cached_tokens = n_found});
}

void LiveRequest::preempt() {
  sequence_ = -1;
  leader_ = nullptr;
  n_cached_ = 0;
  ++n_preemptions_;
  presence_.wait();
}

bool LiveRequest::decides_at(std::int32_t position) const {
  return generates() && position + 1 == n_tokens();
}

RowUse LiveRequest::use_of(std::int32_t position) const {
  const auto wants = [position](const auto& report) {
    return report && position >= report->n_known() && position < report->n_rows();
  };
  return {.logits = decides_at(position) || wants(scores_), .state = wants(embedding_)};
}

ReportedRows LiveRequest::reported_rows() const {
  if (!scores_ && !embedding_) return {};
  const std::int32_t n_known = scores_ ? scores_->n_known() : embedding_->n_known();
  const std::int32_t first = std::max(n_known, n_cached_);
  const auto last = static_cast<std::int32_t>(submission_.request.prompt.size()) - 1;
  return {.first = first - n_cached_, .n = std::max(0, last - first)};
}

Result<RowScore> LiveRequest::score(std::int32_t position, std::span<const float> logits,
                                    SampleScratch& scratch) const {
  return scores_->score(position, logits, scratch);
}

void LiveRequest::add_score(const Result<RowScore>& score) {
  if (is_over()) return;
  if (!score) return fail(score.error());
  scores_->add(*score);
}

void LiveRequest::add_state(std::span<const float> state) { embedding_->add(state); }

void LiveRequest::finish_prompt() {
  if (generates() || is_over() || n_pending() > 0) return;
  if (embedding_) {
    Result<std::vector<float>> values = embedding_->take();
    if (!values) return fail(std::move(values).error());
    events_.push_back(Embedded{std::move(values).value()});
  }
  finish(FinishReason::kLength);
}

// What is known of the prompt goes out before what comes behind it.
void LiveRequest::report_scores() {
  if (was_started_ && scores_ && scores_->has_news()) events_.push_back(scores_->take());
}

std::span<const TokenId> LiveRequest::suppressed_tokens() {
  const StopRules& stop = submission_.request.stop;
  std::span<const TokenId> suppressed;
  if (n_generated_ < stop.min_tokens) {
    suppressed = ending_tokens_;
  } else if (stop.ignore_eos) {
    suppressed = vocabulary_.end_of_generation_ids();
  }
  if (submission_.request.sampling.banned_sequences.empty()) return suppressed;
  suppressed_.assign(suppressed.begin(), suppressed.end());
  append_banned(suppressed_);
  return suppressed_;
}

// The last tokens of the banned sequences whose other tokens the answer ends with.
void LiveRequest::append_banned(std::vector<TokenId>& tokens) const {
  const auto answer = std::span(tokens_).subspan(submission_.request.prompt.size());
  for (const std::vector<TokenId>& banned : submission_.request.sampling.banned_sequences) {
    const auto begin = std::span(banned).first(banned.size() - 1);
    if (begin.size() > answer.size()) continue;
    if (std::equal(begin.begin(), begin.end(), answer.last(begin.size()).begin())) {
      tokens.push_back(banned.back());
    }
  }
}

void LiveRequest::choose(std::span<const float> logits, SampleScratch& scratch) {
  choice_ = sampler_->sample(logits, suppressed_tokens(), scratch, constraint_.get());
}

bool LiveRequest::ends_generation(TokenId token) const {
  return std::find(ending_tokens_.begin(), ending_tokens_.end(), token) != ending_tokens_.end();
}

void LiveRequest::commit_choice() {
  GRAFT_CHECK(choice_.has_value());
  const Result<SampledToken> choice = *std::exchange(choice_, std::nullopt);
  made_token_ = choice.has_value() && !is_over();
  if (is_over()) return;  // its prompt could not be scored
  if (!choice) return fail(choice.error());
  report_scores();

  const TokenId token = choice->token;
  token_before_at_ = std::exchange(last_token_at_, Clock::now());
  if (n_generated_++ == 0) first_token_at_ = last_token_at_;
  if (ends_generation(token)) {
    if (submission_.request.reports_end) {
      events_.push_back(describe(*choice));
      std::get<TokenOutput>(events_.back()).ends = true;
    }
    return finish(FinishReason::kStop);
  }
  if (constraint_ != nullptr) {
    if (Status accepted = constraint_->accept(token); !accepted) {
      return fail(std::move(accepted).error());
    }
  }

  sampler_->accept(token);
  tokens_.push_back(token);
  TokenOutput output = describe(*choice);
  const auto& shown = submission_.request.shown_tokens;
  const bool is_shown = submission_.request.shows_special ||
                        std::find(shown.begin(), shown.end(), token) != shown.end();
  const std::string_view piece = vocabulary_.visible_piece(token, is_shown);
  if (trigger_) look_for_trigger(piece);
  output.text = decoder_.push(piece);
  events_.push_back(std::move(output));

  const std::int32_t max_generated = submission_.request.stop.max_tokens;
  const bool is_complete = constraint_ != nullptr && constraint_->must_end();
  if (decoder_.stopped() || is_complete) return finish(FinishReason::kStop);
  if (n_generated_ == max_generated || n_tokens() >= max_tokens_) {
    finish(FinishReason::kLength);
  }
}

TokenOutput LiveRequest::describe(const SampledToken& sampled) const {
  TokenOutput output;
  output.token = sampled.token;
  if (!submission_.request.sampling.n_logprobs) return output;
  const auto named = [&](TokenId token, float logprob) {
    return TokenLogprob{token, std::string(vocabulary_.piece(token)), logprob};
  };
  output.logprob = named(sampled.token, sampled.logprob);
  for (const RankedToken& other : sampled.top) {
    output.top_logprobs.push_back(named(other.token, other.logprob));
  }
  return output;
}

Timings LiveRequest::timings() const {
  const Clock::time_point now = Clock::now();
  Timings timings;
  timings.prepare_ms = milliseconds(prepare_time().value_or(Clock::duration::zero()));
  timings.queue_ms = milliseconds((was_started_ ? started_at_ : now) - submitted_at_);
  if (n_generated_ == 0) return timings;
  timings.prefill_ms = milliseconds(first_token_at_ - started_at_);
  timings.decode_ms = milliseconds(last_token_at_ - first_token_at_);
  return timings;
}

void LiveRequest::finish(FinishReason reason) {
  GRAFT_CHECK(!is_over());
  report_scores();
  outcome_ = reason == FinishReason::kCancelled ? Outcome::kCancelled : Outcome::kFinished;
  finish_reason_ = reason;
  Finished finished;
  finished.reason = reason;
  finished.text = decoder_.stopped() ? "" : decoder_.finish();
  finished.n_prompt_tokens = n_prompt();
  finished.stop_string = decoder_.stop_string();
  finished.n_generated_tokens = n_generated_;
  finished.n_preemptions = n_preemptions_;
  finished.timings = timings();
  finished.n_cached_tokens = n_found_tokens_;
  events_.push_back(std::move(finished));
}

void LiveRequest::fail(Error error) {
  GRAFT_CHECK(!is_over());
  outcome_ = Outcome::kFailed;
  events_.push_back(Failed{std::move(error)});
}

void LiveRequest::publish() {
  if (!is_over()) report_scores();
  for (Event& event : events_) {
    if (submission_.sink->publish(std::move(event))) continue;
    if (!is_over()) outcome_ = Outcome::kCancelled;
    break;
  }
  events_.clear();
}

}  // namespace graft
