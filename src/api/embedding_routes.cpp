// /v1/embeddings: from a body to submitted inputs.
#include <utility>

#include "api/answer_shape.h"
#include "api/embedding_call.h"
#include "api/embedding_exchange.h"
#include "api/generation_routes.h"
#include "api/module_choice.h"

namespace graft::api {
namespace {

std::optional<ApiError> check_lengths(const TokenLists& inputs, const ModelFacts& facts) {
  for (const auto& input : inputs) {
    if (input.empty()) {
      return to_api_error(invalid_argument("An input has no tokens.", "input"));
    }
    if (input.size() > static_cast<std::size_t>(facts.n_context_tokens)) {
      ApiError error =
          context_length_exceeded(static_cast<std::int64_t>(input.size()), facts.n_context_tokens);
      error.message = "An input has " + std::to_string(input.size()) +
                      " tokens; the context holds " + std::to_string(facts.n_context_tokens) + ".";
      error.param = "input";
      return error;
    }
  }
  return std::nullopt;
}

EmbeddingShape make_shape(const EmbeddingCall& call, const TokenLists& inputs,
                          const Resolution& resolution) {
  EmbeddingShape shape;
  shape.model = resolution.model;
  shape.graft_json = graft_object(resolution.attachments);
  for (const auto& input : inputs) {
    shape.n_prompt_tokens += static_cast<std::int64_t>(input.size());
  }
  shape.n_inputs = inputs.size();
  shape.n_dimensions = static_cast<std::size_t>(call.n_dimensions);
  shape.base64 = call.base64;
  return shape;
}

Answer embed(const RouteCall& route, const EmbeddingCall& call) {
  const ServiceParts& parts = route.service.parts();
  auto chosen = choose_modules(route, call.text.model, call.text.modules);
  if (auto* answer = std::get_if<Answer>(&chosen)) return std::move(*answer);
  Resolution& resolution = std::get<Resolution>(chosen);
  describe(*route.line, resolution, call.text, parts.observation.log_prompts);
  auto inputs = tokenize(parts.prompts, call.text);
  if (!inputs) return error_response(inputs.error());
  truncate(*inputs, call.text, parts.facts);
  if (const auto error = check_lengths(*inputs, parts.facts)) return error_response(*error);
  InboxLimits limits;
  limits.wake_on_tokens = false;
  EmbeddingShape shape = make_shape(call, *inputs, resolution);
  std::vector<Header> headers = module_headers(route, resolution.attachments);
  EmbeddingWork work{route.caller, std::move(*inputs), std::move(resolution.attachments),
                     call.text.prefix_cache, route.line};
  auto exchange = std::make_shared<EmbeddingExchange>(
      route.service, std::make_shared<EventInbox>(limits, route.waker), std::move(work),
      std::move(shape), std::move(headers));
  if (const Status started = exchange->start(); !started) return error_response(started.error());
  return exchange;
}

}  // namespace

Answer answer_embeddings(const RouteCall& route) {
  if (auto refused = refuse_media_type(route.request)) return std::move(*refused);
  const ModelFacts& facts = route.service.parts().facts;
  if (facts.n_embedding_values == 0) {
    return error_response(ApiError{400, "invalid_request_error",
                                   "This model cannot make embeddings.", "model",
                                   "model_not_supported"});
  }
  const auto call = parse_embeddings_call(route.request.body, facts);
  if (!call) return error_response(call.error());
  return embed(route, *call);
}

}  // namespace graft::api
