// Adapters while serving: vLLM's /v1/load_lora_adapter and /v1/unload_lora_adapter, and
// llama-server's /lora-adapters.
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "api/adapter_errors.h"
#include "api/fields.h"
#include "api/json_text.h"
#include "api/load_wait.h"
#include "api/request_json.h"
#include "api/routes.h"
#include "base/log.h"
#include "router/resolve.h"

namespace graft::api {
namespace {

constexpr std::size_t kMaxScales = 1024;

// Null when modules cannot be loaded: the routes are then as good as absent.
ModuleStore* loading_store(const RouteCall& call) {
  ModuleStore* store = call.service.parts().modules;
  return store != nullptr && store->can_load() ? store : nullptr;
}

HttpResponse loading_is_off() {
  return adapter_error(
      not_found("There is nothing at this path: the server was started without --modules-dir."));
}

// The text of a field; "" when it is absent.
Result<std::string> read_text(const Json& body, const char* name) {
  const Json* value = find_field(body, name);
  if (value == nullptr) return std::string();
  if (!value->is_string()) {
    return invalid_argument("'" + std::string(name) + "' must be a string.", name);
  }
  return value->get<std::string>();
}

Result<LoadCall> parse_load(const std::string& body_text, const RegistrySnapshot& registry) {
  GRAFT_ASSIGN_OR_RETURN(const Json body, parse_request_json(body_text));
  LoadCall call;
  GRAFT_ASSIGN_OR_RETURN(call.name, read_text(body, "lora_name"));
  GRAFT_ASSIGN_OR_RETURN(call.path, read_text(body, "lora_path"));
  GRAFT_ASSIGN_OR_RETURN(const std::string base, read_text(body, "base_model_name"));
  if (call.name.empty() || call.path.empty()) {
    return invalid_argument("Both 'lora_name' and 'lora_path' must be provided.");
  }
  if (const Json* in_place = find_field(body, "load_inplace")) {
    if (!in_place->is_boolean()) return invalid_argument("'load_inplace' must be true or false.");
    call.in_place = in_place->get<bool>();
  }
  // Whether it fits is found out by its shapes; the name is advice.
  if (!base.empty() && !is_base_name(registry, base)) {
    log_info("an adapter is loaded that names another base model");
  }
  return call;
}

// Refuses what a browser could send to a local port without asking: that includes a body of no
// type.
bool says_json(const HttpRequest& request) {
  return !request.header("content-type").empty() && is_json_body(request);
}

std::optional<HttpResponse> refuse_plain_body(const RouteCall& call) {
  if (says_json(call.request)) return std::nullopt;
  HttpResponse response = adapter_error(invalid_argument("The body must be application/json."));
  response.status = 415;
  return response;
}

std::string adapter_json(const ModuleVersion& module, const AttachmentSet& defaults) {
  double scale = 0;
  for (const Attachment& attachment : defaults.attachments) {
    if (attachment.module->id == module.id) scale = static_cast<double>(attachment.scale);
  }
  std::string out = R"({"id":)" + std::to_string(module.id) + R"(,"name":)" +
                    json_string(module.name) + R"(,"path":)" + json_string(module.path) +
                    R"(,"scale":)";
  append_number(out, scale);
  return out + R"(,"task_name":"","prompt_prefix":""})";
}

HttpResponse json_answer(std::string body) {
  HttpResponse response;
  response.headers = {{"content-type", "application/json"}};
  response.body = std::move(body);
  return response;
}

Error malformed_scale(std::size_t i) {
  return invalid_argument("Entry " + std::to_string(i) +
                          " must be an object with the integer 'id' of a module and a 'scale' from "
                          "-100 to 100.");
}

Result<std::vector<DefaultScale>> parse_scales(const std::string& text) {
  GRAFT_ASSIGN_OR_RETURN(const Json body, parse_request_array(text));
  if (body.size() > kMaxScales) {
    return invalid_argument("The list has more than " + std::to_string(kMaxScales) + " entries.");
  }
  std::vector<DefaultScale> scales;
  for (std::size_t i = 0; i < body.size(); ++i) {
    if (!body[i].is_object()) return malformed_scale(i);
    const Json* id = find_field(body[i], "id");
    const Json* scale = find_field(body[i], "scale");
    const bool well_formed = id != nullptr && id->is_number_integer() && scale != nullptr &&
                             scale->is_number() &&
                             !(id->is_number_unsigned() && id->get<std::uint64_t>() > INT64_MAX);
    if (!well_formed) return malformed_scale(i);
    const auto value = static_cast<float>(scale->get<double>());
    if (!std::isfinite(value) || std::fabs(value) > kMaxModuleScale) return malformed_scale(i);
    scales.push_back({id->get<std::int64_t>(), value});
    for (std::size_t j = 0; j < i; ++j) {
      if (scales[j].id != scales[i].id) continue;
      return invalid_argument("The module with id " + std::to_string(scales[i].id) +
                              " is named twice.");
    }
  }
  return scales;
}

}  // namespace

Answer answer_load_adapter(const RouteCall& call) {
  ModuleStore* store = loading_store(call);
  if (store == nullptr) return loading_is_off();
  if (auto refused = refuse_plain_body(call)) return std::move(*refused);
  auto load = parse_load(call.request.body, *store->registry().get());
  if (!load) return adapter_error(load.error());
  const std::string name = load->name;
  const auto outcome = std::make_shared<LoadOutcome>(call.waker);
  if (Status begun = store->load(std::move(*load), outcome); !begun) {
    return adapter_error(begun.error());
  }
  return std::make_shared<LoadExchange>(name, outcome,
                                        std::vector<Header>{{"x-request-id", call.request_id}});
}

Answer answer_unload_adapter(const RouteCall& call) {
  ModuleStore* store = loading_store(call);
  if (store == nullptr) return loading_is_off();
  if (auto refused = refuse_plain_body(call)) return std::move(*refused);
  const auto body = parse_request_json(call.request.body);
  if (!body) return adapter_error(body.error());
  const auto name = read_text(*body, "lora_name");
  if (!name) return adapter_error(name.error());
  if (name->empty()) {
    return adapter_error(
        invalid_argument("'lora_name' needs to be provided to unload a LoRA adapter."));
  }
  if (const Status gone = store->unload(*name); !gone) return adapter_error(gone.error());
  return adapter_success("LoRA adapter '" + *name + "' removed successfully.");
}

Answer answer_list_adapters(const RouteCall& call) {
  const auto registry = call.registry();
  std::string out = "[";
  for (const auto& module : registry->modules) {
    if (out.size() > 1) out.push_back(',');
    out += adapter_json(*module, registry->default_attachments);
  }
  return json_answer(out + "]");
}

Answer answer_set_scales(const RouteCall& call) {
  ModuleStore* store = call.service.parts().modules;
  if (store == nullptr || !store->has_default_scales()) {
    HttpResponse response = error_response(
        ApiError{405, "invalid_request_error",
                 "This path answers to GET: the server was started without --default-scales.", "",
                 "method_not_allowed"});
    response.headers.emplace_back("allow", "GET");
    return response;
  }
  if (!says_json(call.request)) {
    return error_response(ApiError{415, "invalid_request_error",
                                   "The body must be application/json.", "",
                                   "unsupported_media_type"});
  }
  const auto scales = parse_scales(call.request.body);
  if (!scales) return error_response(scales.error());
  if (const Status set = store->set_default_scales(*scales); !set) {
    return error_response(set.error());
  }
  return json_answer(R"({"success":true})");
}

}  // namespace graft::api
