// What the routes that generate share: from a call to prompts in tokens, to submitted requests, and
// to the exchange that answers. Each route brings its own parser and its own writer. Any thread;
// belongs on the prepare pool.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "api/answer_shape.h"
#include "api/answer_writer.h"
#include "api/generation_call.h"
#include "api/routes.h"
#include "router/resolve.h"

namespace graft::api {

using TokenLists = std::vector<std::vector<TokenId>>;
// Called once, before the first event.
using WriterFactory = std::function<std::unique_ptr<AnswerWriter>(AnswerShape)>;

// 415 for a body that says it is something else than JSON: it is not guessed at, as a browser could
// send it without asking.
std::optional<HttpResponse> refuse_media_type(const HttpRequest& request);

// What the prompts of a call were made into.
struct BuiltPrompts {
  TokenLists tokens;                           // perhaps empty or too long
  std::shared_ptr<const AnswerFormat> format;  // chat only: how the answer is written
  std::vector<TokenId> shown_tokens;           // control tokens that are part of the format
};

// `caller`: whose prompts they are; null when they are only counted.
Result<BuiltPrompts> build_prompts(const PromptBuilder& builder, const GenerationCall& call,
                                   const Caller* caller);

// The tokens alone.
Result<TokenLists> tokenize(const PromptBuilder& builder, const GenerationCall& call);

// What the log says of an accepted name; what clients wrote wrong is not repeated.
void describe(RequestLine& line, const Resolution& resolution, const GenerationCall& call,
              bool with_prompt);

// x-request-id and, where modules act, x-graft-modules.
std::vector<Header> module_headers(const RouteCall& route, const AttachmentSet& attachments);

// What `truncate_prompt_tokens` leaves: the end of each prompt.
void truncate(TokenLists& prompts, const GenerationCall& call, const ModelFacts& facts);

// Resolves names, tokenises and submits every choice, or none. `make_writer` is used before this
// returns.
Answer generate(const RouteCall& route, GenerationCall call, const WriterFactory& make_writer);

}  // namespace graft::api
