#include "text/marked_render.h"

#include <ctime>
#include <string>
#include <utility>

namespace graft {
namespace {

std::string date_text(const char* format) {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  localtime_r(&now, &parts);
  char text[64];
  return {text, std::strftime(text, sizeof(text), format, &parts)};
}

// Keys under which templates read what clients call by one name.
void apply_reasoning_keys(jinja::context& context, const common_json& kwargs) {
  if (kwargs.contains("preserve_reasoning") && kwargs.at("preserve_reasoning").is_boolean()) {
    jinja::caps_apply_preserve_reasoning(context, kwargs.at("preserve_reasoning").get<bool>());
  }
  if (kwargs.contains("reasoning_effort") && kwargs.at("reasoning_effort").is_string()) {
    jinja::caps_apply_reasoning_effort(context, kwargs.at("reasoning_effort").get<std::string>());
  }
}

jinja::context make_context(const common_chat_template& source, const TemplateInput& input) {
  jinja::context context(source.source());
  common_json own = date_values();
  own["bos_token"] = source.bos_token();
  own["eos_token"] = source.eos_token();
  own["enable_thinking"] = true;
  own["add_generation_prompt"] = input.add_generation_prompt;
  jinja::global_from_json(context, own, /*mark_input=*/false);
  common_json requested = input.kwargs.is_object() ? input.kwargs : common_json::object();
  apply_reasoning_keys(context, requested);
  requested["messages"] = input.messages;
  if (input.tools.is_array() && !input.tools.empty()) {
    requested["tools"] = input.tools;
  }
  jinja::global_from_json(context, requested, /*mark_input=*/true);
  return context;
}

}  // namespace

common_json date_values() {
  common_json values = common_json::object();
  values["datetime"] = date_text("%b %d %Y");
  values["date_string"] = date_text("%d %b %Y");
  return values;
}

std::vector<PromptPart> render_marked(const common_chat_template& source,
                                      const TemplateInput& input) {
  jinja::context context = make_context(source, input);
  jinja::runtime runtime(context);
  const auto gathered = jinja::runtime::gather_string_parts(runtime.execute(source.prog));
  std::vector<PromptPart> parts;
  for (auto& part : gathered->val_str.parts) {
    if (!part.val.empty()) {
      parts.push_back({std::move(part.val), part.is_input});
    }
  }
  return parts;
}

}  // namespace graft
