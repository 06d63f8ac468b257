// The route table: every path the server answers, who may use it, and the function that does. A
// new route is a new line in routes.cpp. Immutable; any thread.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "api/errors.h"
#include "api/exchange.h"
#include "api/keys/admission.h"
#include "api/service.h"

namespace graft::api {

struct RouteCall {
  Service& service;
  const HttpRequest& request;
  const std::string& path_tail;    // decoded rest of the path, for routes that end in "/*"
  const std::string& path_module;  // NAME of /m/NAME/v1/..., decoded; "" without
  const std::string& request_id;   // echoed as x-request-id
  const std::shared_ptr<Waker>& waker;
  const Caller& caller;
  const std::shared_ptr<RequestLine>& line;  // for the log

  // What the caller may know of. Use this, not the service's registry, for everything that a
  // request names and an answer shows.
  std::shared_ptr<const RegistrySnapshot> registry() const {
    return caller.visible(service.parts().registry.get());
  }
};

using RouteFunction = Answer (*)(const RouteCall&);

struct Route {
  std::string_view method;
  std::string_view path;  // exact, or a prefix when it ends in "/*"
  Role role;
  bool heavy;       // parses and tokenises: belongs on the prepare pool
  bool when_ready;  // 503 while loading or draining
  RouteFunction function;
};

std::span<const Route> routes();

struct RouteMatch {
  const Route* route = nullptr;
  std::string path_tail;
  std::string module;
};

// Inference routes below /v1 are also found below /m/NAME, where NAME names a module and may have a
// namespace (/m/team/task/v1/...). Errors: 404 for unknown paths, 405 with Allow for known ones
// with another method.
std::variant<RouteMatch, HttpResponse> find_route(std::string_view method, std::string_view target);

// %XX decoded. False for broken escapes, NUL and what is not UTF-8.
bool decode_path(std::string_view path, std::string& decoded);

// The route functions, by file.
Answer answer_chat_completions(const RouteCall& call);  // generation_routes.cpp
Answer answer_completions(const RouteCall& call);
Answer answer_messages(const RouteCall& call);  // messages_routes.cpp
Answer answer_count_tokens(const RouteCall& call);
Answer answer_responses(const RouteCall& call);   // responses_routes.cpp
Answer answer_embeddings(const RouteCall& call);  // embedding_routes.cpp
Answer answer_tokenize(const RouteCall& call);    // tokenizer_routes.cpp
Answer answer_detokenize(const RouteCall& call);
Answer answer_tokenizer_info(const RouteCall& call);
Answer answer_apply_template(const RouteCall& call);
Answer answer_props(const RouteCall& call);  // props_routes.cpp
Answer answer_slots(const RouteCall& call);
Answer answer_openapi(const RouteCall& call);  // openapi.cpp
Answer answer_models(const RouteCall& call);   // model_routes.cpp
Answer answer_model(const RouteCall& call);
Answer answer_load_adapter(const RouteCall& call);  // adapter_routes.cpp
Answer answer_unload_adapter(const RouteCall& call);
Answer answer_list_adapters(const RouteCall& call);
Answer answer_set_scales(const RouteCall& call);
Answer answer_health(const RouteCall& call);  // status_routes.cpp
Answer answer_version(const RouteCall& call);
Answer answer_metrics(const RouteCall& call);  // metrics_routes.cpp
Answer answer_load(const RouteCall& call);

}  // namespace graft::api
