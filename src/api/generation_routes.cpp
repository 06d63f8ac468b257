#include "api/generation_routes.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <iterator>
#include <utility>

#include "api/answer_shape.h"
#include "api/event_inbox.h"
#include "api/event_stream.h"
#include "api/generation_exchange.h"
#include "api/module_choice.h"
#include "api/whole_answer.h"
#include "base/sized_text.h"

namespace graft::api {
namespace {

std::int64_t unix_seconds() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::seconds>(now).count();
}

// `n_new`: room that the answer needs at least.
std::optional<ApiError> check_lengths(const TokenLists& prompts, std::size_t n_new,
                                      const ModelFacts& facts) {
  for (const auto& prompt : prompts) {
    if (prompt.empty()) {
      return to_api_error(invalid_argument("The prompt has no tokens.", "prompt"));
    }
    if (prompt.size() + n_new > static_cast<std::size_t>(facts.n_context_tokens)) {
      return context_length_exceeded(static_cast<std::int64_t>(prompt.size()),
                                     facts.n_context_tokens);
    }
  }
  return std::nullopt;
}

// A bad word is banned at the start of the answer and behind a space, as vLLM does.
Status ban_words(const PromptBuilder& builder, GenerationCall& call) {
  for (const std::string& word : call.bad_words) {
    for (const std::string& text : {word, " " + word}) {
      GRAFT_ASSIGN_OR_RETURN(
          auto tokens, builder.tokenize(text, {.add_special = false, .parse_special = false}));
      if (!tokens.empty()) call.sampling.banned_sequences.push_back(std::move(tokens));
    }
  }
  return {};
}

// The prompts' texts: as they were sent, or what the token ids stand for. The token that begins
// every text is none of it.
std::vector<std::string> echo_texts(const ServiceParts& parts, const GenerationCall& call,
                                    const TokenLists& prompts) {
  std::vector<std::string> texts;
  if (!call.echo) return texts;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    const auto* text = std::get_if<std::string>(&call.prompts[i]);
    const bool whole = text != nullptr && call.truncate_prompt_tokens == 0;
    texts.push_back(whole ? *text : parts.prompts.detokenize(prompts[i]));
    const std::string& bos = parts.facts.bos_token;
    if (!whole && !bos.empty() && texts.back().starts_with(bos)) texts.back().erase(0, bos.size());
  }
  return texts;
}

AnswerShape make_shape(Service& service, const GenerationCall& call, const TokenLists& prompts,
                       const Resolution& resolution) {
  AnswerShape shape;
  shape.chat = call.chat.has_value();
  shape.id = service.ids().next_text(shape.chat ? "chatcmpl-" : "cmpl-");
  shape.created_unix_s = unix_seconds();
  shape.model = resolution.model;
  shape.fingerprint = service.fingerprint();
  shape.graft_json = graft_object(resolution.attachments);
  shape.n_choices = call.n_choices * static_cast<std::int32_t>(prompts.size());
  shape.n_per_prompt = call.n_choices;
  shape.report = call.report;
  if (call.report.token_ids) shape.prompt_token_ids = prompts;
  for (const auto& prompt : prompts) {
    shape.n_prompt_tokens += static_cast<std::int64_t>(prompt.size());
  }
  shape.logprobs = call.sampling.n_logprobs.has_value();
  shape.n_logprobs = call.sampling.n_logprobs.value_or(0);
  shape.echoed = echo_texts(service.parts(), call, prompts);
  shape.n_prompt_logprobs = call.n_prompt_logprobs;
  shape.include_usage = call.include_usage;
  shape.continuous_usage = call.continuous_usage;
  return shape;
}

// Whole answers are parsed in larger pieces: all of their events come at once.
constexpr std::size_t kWholePieceBytes = 512;

// Mistral's templates take no other ids of calls than nine letters and digits.
MakeCallId call_ids(IdSource& ids, const AnswerFormat* format) {
  constexpr std::size_t kShortIdBytes = 9;
  const bool is_short = format != nullptr && format->short_call_ids;
  return [&ids, is_short] {
    return is_short ? ids.next_text("").substr(0, kShortIdBytes) : ids.next_text("call_");
  };
}

std::vector<ChoiceOutput> make_choices(Service& service, const GenerationCall& call,
                                       const BuiltPrompts& prompts) {
  const ChoiceOutput choice(prompts.format, call_ids(service.ids(), prompts.format.get()),
                            call.stream ? 1 : kWholePieceBytes);
  return std::vector<ChoiceOutput>(prompts.tokens.size() * static_cast<std::size_t>(call.n_choices),
                                   choice);
}

// Compiles what the request asks for, or what its tools need. Null if the answer may be any text.
Result<std::shared_ptr<const Constraint>> compile_constraint(const ServiceParts& parts,
                                                             const GenerationCall& call,
                                                             const BuiltPrompts& prompts) {
  using Compiled = Result<std::shared_ptr<const Constraint>>;
  std::optional<ConstraintSource> source = call.constraint;
  std::string param = call.constraint_param;
  if (prompts.format != nullptr && !prompts.format->grammar.empty()) {
    source = ConstraintSource{.kind = ConstraintSource::Kind::kGrammar,
                              .text = prompts.format->grammar,
                              .control_tokens = prompts.shown_tokens};
    param = "tools";
  }
  if (!source) return std::shared_ptr<const Constraint>();
  Compiled compiled = parts.constraints == nullptr
                          ? Compiled(not_supported("constrained answers are not supported"))
                          : parts.constraints->compile(*source);
  if (compiled) return compiled;
  Error error = std::move(compiled).error();
  error.param = param;
  error.message = "'" + param + "': " + error.message + ".";
  return error;
}

// How many alternatives of each prompt token the engine must tell; nothing = it need not be scored.
std::optional<std::int32_t> n_prompt_logprobs(const GenerationCall& call) {
  if (!call.echo || !call.sampling.n_logprobs) return call.n_prompt_logprobs;
  return std::max(*call.sampling.n_logprobs, call.n_prompt_logprobs.value_or(0));
}

Submission make_submission(const GenerationCall& call, const BuiltPrompts& prompts,
                           std::int32_t choice) {
  Submission submission;
  submission.request.prompt = prompts.tokens[static_cast<std::size_t>(choice / call.n_choices)];
  submission.request.shown_tokens = prompts.shown_tokens;
  submission.request.sampling = call.sampling;
  submission.request.stop = call.stop;
  if (prompts.format != nullptr) {
    std::vector<std::string>& stops = submission.request.stop.strings;
    const auto& own = prompts.format->stop_strings;
    stops.insert(stops.end(), own.begin(), own.end());
  }
  submission.request.prefix_cache = call.prefix_cache;
  submission.request.shows_special = call.shows_special;
  submission.request.n_prompt_logprobs = n_prompt_logprobs(call);
  submission.request.reports_end = !call.chat && call.sampling.n_logprobs;
  if (call.sampling.seed) {
    submission.request.sampling.seed =
        *call.sampling.seed + static_cast<std::uint32_t>(choice % call.n_choices);
  }
  return submission;
}

// Submits every choice, or none: what was accepted before an error is cancelled. The choices of one
// prompt are a group, whose prompt is computed once. `common` has what all choices share,
// attachments and constraint.
Result<std::vector<RequestId>> submit_all(const RouteCall& route, const GenerationCall& call,
                                          const BuiltPrompts& prompts, const Submission& common,
                                          const std::shared_ptr<EventInbox>& inbox) {
  Service& service = route.service;
  std::vector<RequestId> ids;
  std::int32_t choice = 0;
  for (std::size_t prompt = 0; prompt < prompts.tokens.size(); ++prompt) {
    std::vector<Submission> group;
    for (std::int32_t i = 0; i < call.n_choices; ++i, ++choice) {
      Submission submission = make_submission(call, prompts, choice);
      submission.request.id = service.ids().next_number();
      submission.attachments = common.attachments;
      submission.constraint = common.constraint;
      submission.constraint_prefix = common.constraint_prefix;
      submission.constraint_triggers = common.constraint_triggers;
      submission.received_at = route.line->begin;
      submission.sink =
          std::make_shared<LineSink>(route.line, std::make_shared<ChoiceSink>(inbox, choice));
      ids.push_back(submission.request.id);
      group.push_back(std::move(submission));
    }
    if (Status status = service.submit_group(route.caller, std::move(group)); !status) {
      inbox->close();
      for (const RequestId id : ids) service.parts().generation.cancel(id);
      return std::move(status).error();
    }
  }
  return ids;
}

// What of a lenient schema is not enforced, as a header's value.
std::string ignored_header(const std::vector<std::string>& ignored) {
  constexpr std::size_t kMaxBytes = 1000;
  std::string text = "not enforced:";
  for (const std::string& keyword : ignored) {
    if (text.size() > kMaxBytes) return text + " ...";
    text += (text.back() == ':' ? " " : "; ") + keyword;
  }
  return text;
}

std::vector<Header> answer_headers(const RouteCall& route, const Submission& common) {
  std::vector<Header> headers = module_headers(route, common.attachments);
  if (common.constraint != nullptr && !common.constraint->ignored_keywords().empty()) {
    headers.emplace_back("x-graft-warning", ignored_header(common.constraint->ignored_keywords()));
  }
  return headers;
}

// Work that is remembered is shared as widely as cached prefixes are.
std::optional<std::string> memo_owner(const Caller& caller, const PrefixCacheRules& rules) {
  if (!rules.may_read || !rules.may_write) return std::nullopt;
  std::string owner;
  append_sized(owner, caller.tenant());
  append_sized(owner, rules.salt);
  return owner;
}

}  // namespace

std::optional<HttpResponse> refuse_media_type(const HttpRequest& request) {
  if (is_json_body(request)) return std::nullopt;
  return error_response(ApiError{415, "invalid_request_error", "The body must be application/json.",
                                 "", "unsupported_media_type"});
}

Result<BuiltPrompts> build_prompts(const PromptBuilder& builder, const GenerationCall& call,
                                   const Caller* caller) {
  BuiltPrompts prompts;
  if (call.chat) {
    std::optional<std::string> owner;
    if (caller != nullptr) owner = memo_owner(*caller, call.prefix_cache);
    GRAFT_ASSIGN_OR_RETURN(BuiltChat chat, builder.from_chat(*call.chat, owner));
    prompts.tokens.push_back(std::move(chat.tokens));
    prompts.format = std::move(chat.format);
    prompts.shown_tokens = std::move(chat.shown_tokens);
    return prompts;
  }
  for (const TextPrompt& prompt : call.prompts) {
    if (const auto* text = std::get_if<std::string>(&prompt)) {
      GRAFT_ASSIGN_OR_RETURN(auto tokens,
                             builder.tokenize(*text, {.add_special = call.add_special}));
      prompts.tokens.push_back(std::move(tokens));
    } else {
      prompts.tokens.push_back(std::get<std::vector<TokenId>>(prompt));
    }
  }
  return prompts;
}

Result<TokenLists> tokenize(const PromptBuilder& builder, const GenerationCall& call) {
  GRAFT_ASSIGN_OR_RETURN(BuiltPrompts prompts, build_prompts(builder, call, nullptr));
  return std::move(prompts.tokens);
}

void describe(RequestLine& line, const Resolution& resolution, const GenerationCall& call,
              bool with_prompt) {
  line.model = resolution.model;
  line.modules = modules_header(resolution.attachments);
  if (!with_prompt) return;
  if (call.chat) line.prompt = call.chat->messages_json;
  for (const TextPrompt& prompt : call.prompts) {
    const auto* text = std::get_if<std::string>(&prompt);
    line.prompt += text != nullptr ? *text : "[token ids]";
  }
}

std::vector<Header> module_headers(const RouteCall& route, const AttachmentSet& attachments) {
  std::vector<Header> headers = {{"x-request-id", route.request_id}};
  if (!attachments.empty()) headers.emplace_back("x-graft-modules", modules_header(attachments));
  return headers;
}

void truncate(TokenLists& prompts, const GenerationCall& call, const ModelFacts& facts) {
  if (call.truncate_prompt_tokens == 0) return;
  const std::int32_t room = std::max(1, facts.n_context_tokens - std::max(1, call.stop.max_tokens));
  const auto n_kept = static_cast<std::ptrdiff_t>(
      call.truncate_prompt_tokens < 0 ? room : call.truncate_prompt_tokens);
  for (auto& prompt : prompts) {
    if (std::ssize(prompt) > n_kept) prompt.erase(prompt.begin(), prompt.end() - n_kept);
  }
}

Answer generate(const RouteCall& route, GenerationCall call, const WriterFactory& make_writer) {
  Service& service = route.service;
  auto chosen = choose_modules(route, call.model, call.modules);
  if (auto* answer = std::get_if<Answer>(&chosen)) return std::move(*answer);
  const Resolution& resolution = std::get<Resolution>(chosen);
  describe(*route.line, resolution, call, service.parts().observation.log_prompts);
  auto prompts = build_prompts(service.parts().prompts, call, &route.caller);
  if (!prompts) return error_response(prompts.error());
  truncate(prompts->tokens, call, service.parts().facts);
  if (const Status banned = ban_words(service.parts().prompts, call); !banned) {
    return error_response(banned.error());
  }
  if (const auto error = check_lengths(prompts->tokens, call.stop.max_tokens == 0 ? 0 : 1,
                                       service.parts().facts)) {
    return error_response(*error);
  }
  auto constraint = compile_constraint(service.parts(), call, *prompts);
  if (!constraint) return error_response(constraint.error());
  InboxLimits limits;
  limits.wake_on_tokens = call.stream;
  const auto inbox = std::make_shared<EventInbox>(limits, route.waker);
  Submission common;
  common.attachments = resolution.attachments;
  common.constraint = std::move(*constraint);
  if (prompts->format != nullptr) {
    common.constraint_prefix = prompts->format->grammar_prefix;
    common.constraint_triggers = prompts->format->triggers;
  }
  auto ids = submit_all(route, call, *prompts, common, inbox);
  if (!ids) return error_response(ids.error());
  return std::make_shared<GenerationExchange>(
      service.parts().generation, inbox, std::move(ids).value(),
      make_choices(service, call, *prompts),
      make_writer(make_shape(service, call, prompts->tokens, resolution)),
      answer_headers(route, common));
}

namespace {

using ParseFunction = Result<GenerationCall> (*)(std::string_view, const ModelFacts&);

Answer parse_and_generate(const RouteCall& route, ParseFunction parse) {
  if (auto refused = refuse_media_type(route.request)) return std::move(*refused);
  auto call = parse(route.request.body, route.service.parts().facts);
  if (!call) return error_response(call.error());
  const bool stream = call->stream;
  return generate(route, std::move(*call),
                  [stream](AnswerShape shape) -> std::unique_ptr<AnswerWriter> {
                    if (stream) return std::make_unique<EventStream>(std::move(shape));
                    return std::make_unique<WholeAnswer>(std::move(shape));
                  });
}

}  // namespace

Answer answer_chat_completions(const RouteCall& call) {
  return parse_and_generate(call, parse_chat_call);
}

Answer answer_completions(const RouteCall& call) {
  return parse_and_generate(call, parse_completions_call);
}

}  // namespace graft::api
