// /props and /slots, as llama-server has them: what was loaded, and how busy the server is. Both
// are made of facts and published counters; no prompt is shown, and the engine thread never waits.
#include <algorithm>
#include <cstdint>

#include "api/json_text.h"
#include "api/routes.h"
#include "core/request.h"

namespace graft::api {
namespace {

HttpResponse json_answer(std::string body) {
  HttpResponse response;
  response.headers = {{"content-type", "application/json"}};
  response.body = std::move(body);
  return response;
}

void append_member(std::string& out, const char* name, double value) {
  out += std::string(",\"") + name + "\":";
  append_number(out, value);
}

// What a request gets that names nothing.
std::string default_settings(const ModelFacts& facts) {
  const SamplingParams defaults;
  std::string out = R"({"n_predict":)" + std::to_string(facts.default_max_tokens) +
                    R"(,"max_tokens":)" + std::to_string(facts.default_max_tokens) +
                    R"(,"seed":-1,"stream":false,"stop":[],"lora":[])";
  append_member(out, "temperature", static_cast<double>(defaults.temperature));
  append_member(out, "top_k", defaults.top_k);
  append_member(out, "top_p", static_cast<double>(defaults.top_p));
  append_member(out, "min_p", static_cast<double>(defaults.min_p));
  append_member(out, "repeat_last_n", defaults.penalty_last_n);
  append_member(out, "repeat_penalty", static_cast<double>(defaults.repetition_penalty));
  append_member(out, "presence_penalty", static_cast<double>(defaults.presence_penalty));
  append_member(out, "frequency_penalty", static_cast<double>(defaults.frequency_penalty));
  return out + R"(,"samplers":["penalties","temperature","top_k","top_p","min_p"]})";
}

bool asks_to_fail(const std::string& target) {
  const std::size_t query = target.find('?');
  return query != std::string::npos && target.find("fail_on_no_slot=1", query) != std::string::npos;
}

}  // namespace

Answer answer_props(const RouteCall& call) {
  const ModelFacts& facts = call.service.parts().facts;
  const auto registry = call.registry();
  std::string out = R"({"default_generation_settings":{"id":0,"n_ctx":)" +
                    std::to_string(facts.n_context_tokens) + R"(,"speculative":false,"params":)" +
                    default_settings(facts) + R"(},"total_slots":)" +
                    std::to_string(facts.n_sequences);
  const auto append = [&out](const char* name, const std::string& value) {
    out += std::string(",\"") + name + "\":" + json_string(value);
  };
  append("model_alias", registry->base_names.front());
  append("model_path", facts.model_file);
  append("chat_template", facts.chat_template);
  append("bos_token", facts.bos_token);
  append("eos_token", facts.eos_token);
  append("build_info", "graft-" GRAFT_VERSION);
  return json_answer(out + R"(,"modalities":{"vision":false,"audio":false},"is_sleeping":false})");
}

Answer answer_slots(const RouteCall& call) {
  const ModelFacts& facts = call.service.parts().facts;
  const std::int64_t n_running = call.service.parts().generation.counters().n_running;
  if (asks_to_fail(call.request.target) && n_running >= facts.n_sequences) {
    return error_response(ApiError{503, "server_error", "Every slot is busy.", "", "unavailable"});
  }
  // Sequences are not reserved ahead, so a slot is just a place that can be taken.
  std::string out = "[";
  for (std::int32_t i = 0; i < facts.n_sequences; ++i) {
    out += (i > 0 ? R"(,{"id":)" : R"({"id":)") + std::to_string(i) + R"(,"n_ctx":)" +
           std::to_string(facts.n_context_tokens) + R"(,"speculative":false,"is_processing":)" +
           (i < n_running ? "true" : "false") + "}";
  }
  return json_answer(out + "]");
}

}  // namespace graft::api
