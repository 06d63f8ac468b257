// /v1/responses.
#include <utility>

#include "api/dialects.h"
#include "api/generation_routes.h"
#include "api/response_answer.h"
#include "api/routes.h"

namespace graft::api {

Answer answer_responses(const RouteCall& route) {
  if (auto refused = refuse_media_type(route.request)) return std::move(*refused);
  auto made = parse_responses_call(route.request.body, route.service.parts().facts);
  if (!made) return error_response(made.error());
  const bool stream = made->call.stream;
  return generate(
      route, std::move(made->call), [&](AnswerShape shape) -> std::unique_ptr<AnswerWriter> {
        shape.id = route.service.ids().next_text("resp_");
        if (stream) {
          return std::make_unique<ResponseStream>(std::move(shape), std::move(made->echo));
        }
        return std::make_unique<WholeResponse>(std::move(shape), std::move(made->echo));
      });
}

}  // namespace graft::api
