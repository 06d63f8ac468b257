// /v1/messages and /v1/messages/count_tokens. What these routes refuse has Anthropic's error shape.
#include <utility>

#include "api/dialects.h"
#include "api/generation_routes.h"
#include "api/message_answer.h"
#include "api/routes.h"

namespace graft::api {
namespace {

Answer generate_message(const RouteCall& route) {
  if (auto refused = refuse_media_type(route.request)) return std::move(*refused);
  auto call = parse_messages_call(route.request.body, route.service.parts().facts);
  if (!call) return error_response(call.error());
  const bool stream = call->stream;
  return generate(route, std::move(*call), [&](AnswerShape shape) -> std::unique_ptr<AnswerWriter> {
    shape.id = route.service.ids().next_text("msg_");
    if (stream) return std::make_unique<MessageStream>(std::move(shape), route.request_id);
    return std::make_unique<WholeMessage>(std::move(shape), route.request_id);
  });
}

Answer count_tokens(const RouteCall& route) {
  if (auto refused = refuse_media_type(route.request)) return std::move(*refused);
  const auto call = parse_count_tokens_call(route.request.body, route.service.parts().facts);
  if (!call) return error_response(call.error());
  const auto prompts = tokenize(route.service.parts().prompts, *call);
  if (!prompts) return error_response(prompts.error());
  HttpResponse response;
  response.headers = {{"content-type", "application/json"}};
  response.body = R"({"input_tokens":)" + std::to_string(prompts->front().size()) + "}";
  return response;
}

Answer in_message_shape(Answer answer, const RouteCall& route) {
  auto* response = std::get_if<HttpResponse>(&answer);
  if (response != nullptr && response->status >= 400) {
    response->body = message_error_body(response->body, response->status, route.request_id);
  }
  return answer;
}

}  // namespace

Answer answer_messages(const RouteCall& route) {
  return in_message_shape(generate_message(route), route);
}

Answer answer_count_tokens(const RouteCall& route) {
  return in_message_shape(count_tokens(route), route);
}

}  // namespace graft::api
