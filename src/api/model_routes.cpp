// /v1/models and /v1/models/{id}: the base under all its names, then the modules.
#include <algorithm>

#include "api/json_text.h"
#include "api/routes.h"
#include "router/resolve.h"

namespace graft::api {
namespace {

struct ModelEntry {
  std::string id;
  std::string root;
  std::string parent;   // "" = null: the base
  std::string version;  // digest
  std::int64_t created_unix_s = 0;
};

std::string to_json(const ModelEntry& entry, const ModelFacts& facts) {
  std::string out = R"({"id":)" + json_string(entry.id) + R"(,"object":"model","created":)" +
                    std::to_string(entry.created_unix_s) + R"(,"owned_by":"graft","root":)" +
                    json_string(entry.root) + R"(,"parent":)" +
                    (entry.parent.empty() ? std::string("null") : json_string(entry.parent)) +
                    R"(,"max_model_len":)" + std::to_string(facts.n_context_tokens) +
                    R"(,"version":)" + json_string(entry.version);
  return out + R"(,"permission":[]})";
}

ModelEntry base_entry(const std::string& name, const RegistrySnapshot& registry,
                      const ModelFacts& facts) {
  return {name, registry.base_names.front(), "", facts.base_digest, facts.created_unix_s};
}

ModelEntry module_entry(const std::string& id, const ModuleVersion& module,
                        const RegistrySnapshot& registry) {
  return {id, module.path, registry.base_names.front(), digest_of(module), module.created_unix_s};
}

HttpResponse json_answer(std::string body) {
  HttpResponse response;
  response.headers = {{"content-type", "application/json"}};
  response.body = std::move(body);
  return response;
}

}  // namespace

Answer answer_models(const RouteCall& call) {
  const auto registry = call.registry();
  const ModelFacts& facts = call.service.parts().facts;
  std::string out = R"({"object":"list","data":[)";
  bool first = true;
  const auto append = [&](const ModelEntry& entry) {
    if (!first) out.push_back(',');
    first = false;
    out += to_json(entry, facts);
  };
  for (const std::string& name : registry->base_names) append(base_entry(name, *registry, facts));
  for (const auto& module : registry->modules) {
    append(module_entry(module->name, *module, *registry));
  }
  return json_answer(out + "]}");
}

Answer answer_model(const RouteCall& call) {
  const auto registry = call.registry();
  const ModelFacts& facts = call.service.parts().facts;
  const std::string& id = call.path_tail;
  const auto resolution = resolve(*registry, id, {});
  if (!resolution) return error_response(resolution.error());
  const auto& attachments = resolution->attachments.attachments;
  return json_answer(to_json(attachments.empty()
                                 ? base_entry(id, *registry, facts)
                                 : module_entry(id, *attachments.front().module, *registry),
                             facts));
}

}  // namespace graft::api
