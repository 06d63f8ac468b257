#include "cli/module_flags.h"

#include <cctype>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "router/near_names.h"

namespace graft::cli {
namespace {

constexpr const char* kGroup = "Modules";

void add_limits(CLI::App& app, ServeCommand& command) {
  ModuleLimits& limits = command.module_limits;
  app.add_option("--max-modules", limits.max_modules,
                 "Modules at once; loading more is refused. Default: no limit.")
      ->check(CLI::Range(1, 1000000))
      ->type_name("N")
      ->group(kGroup);
  app.add_option("--max-lora-rank", limits.max_rank, "Highest rank of a module. Default: no limit.")
      ->check(CLI::Range(1, 1000000))
      ->type_name("N")
      ->group(kGroup);
  app.add_option_function<std::uint64_t>(
         "--module-memory",
         [&limits](const std::uint64_t& mebibytes) { limits.max_bytes = mebibytes << 20; },
         "MiB that modules may take, replaced ones included while requests hold them. Default: no "
         "limit.")
      ->check(CLI::Range(1, 1 << 30))
      ->type_name("MIB")
      ->group(kGroup);
  app.add_option("--module-loaders", command.n_loaders,
                 "Modules that are loaded at once. Default 2.")
      ->check(CLI::Range(1, 64))
      ->type_name("N")
      ->group(kGroup);
}

// What vLLM needs to be told and Graft does without.
void add_flags_without_effect(CLI::App& app) {
  app.add_flag_function(
         "--enable-lora", [](std::int64_t) {}, "Accepted: modules are always enabled.")
      ->group(kGroup);
  for (const char* name : {"--max-loras", "--max-cpu-loras"}) {
    app.add_option_function<std::int32_t>(
           name, [](std::int32_t) {},
           "Accepted without effect: any number of modules acts in one step.")
        ->check(CLI::Range(1, 1000000))
        ->type_name("N")
        ->group(kGroup);
  }
}

bool is_value(const std::string& word) {
  return !word.starts_with('-') ||
         (word.size() > 1 && std::isdigit(static_cast<unsigned char>(word[1])) != 0);
}

std::string warning_about(const std::string& name, const std::vector<std::string>& known) {
  std::string text = "the flag " + name.substr(0, 100) + " is not known and is ignored";
  const auto near = near_names(name, known);
  if (!near.empty()) text += "; there is " + near.front();
  return text;
}

}  // namespace

void add_serve_module_flags(CLI::App& app, ServeCommand& command, RawFlags& raw) {
  app.add_option("--lora-modules", raw.lora_modules,
                 "The same in vLLM's form: one or several NAME=PATH or JSON objects with name and "
                 "path.")
      ->type_name("NAME=PATH")
      ->group(kGroup);
  app.add_option("--modules-dir", command.modules_dir,
                 "Allow loading and unloading while serving (POST /v1/load_lora_adapter), from "
                 "this directory and nowhere else.")
      ->type_name("DIR")
      ->group(kGroup);
  app.add_flag("--autoload", command.autoload,
               "A request for a module that is not loaded loads DIR/NAME or DIR/NAME.gguf.")
      ->group(kGroup);
  app.add_flag("--default-scales", command.default_scales,
               "Allow POST /lora-adapters, which sets scales for requests that name no module.")
      ->group(kGroup);
  add_limits(app, command);
  add_flags_without_effect(app);
  app.add_option("--max-model-len", command.model.engine.n_seq_tokens,
                 "Longest prompt and answer of one request. Default: what the model was trained "
                 "for, at most --ctx.")
      ->check(CLI::Range(2, 1 << 24))
      ->type_name("N")
      ->group("Capacity");
}

Result<ModuleFlag> parse_lora_module(const std::string& text) {
  if (!text.starts_with('{')) return parse_module_flag(text, false);
  const auto object = nlohmann::json::parse(text, nullptr, false);
  const auto text_of = [&object](const char* key) {
    const auto found = object.find(key);
    return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  ModuleFlag flag;
  if (object.is_object()) flag.source = {text_of("name"), text_of("path")};
  if (flag.source.path.empty()) {
    return invalid_argument("--lora-modules: '" + text.substr(0, 200) +
                            "' is not a JSON object with a name and a path");
  }
  if (Status name = check_module_name(flag.source.name); !name) {
    return invalid_argument("--lora-modules: " + name.error().message);
  }
  return flag;
}

Status finish_serve_module_flags(const CLI::App& app, const RawFlags& raw, ServeCommand& command) {
  for (const std::string& text : raw.lora_modules) {
    GRAFT_ASSIGN_OR_RETURN(ModuleFlag module, parse_lora_module(text));
    GRAFT_RETURN_IF_ERROR(add_module(std::move(module), command.model));
  }
  if (command.modules_dir.empty() && command.autoload) {
    return invalid_argument("--autoload needs --modules-dir");
  }
  EngineOptions& engine = command.model.engine;
  if (engine.n_seq_tokens <= engine.n_ctx) return {};
  if (app.count("--ctx") > 0) {
    return invalid_argument("--max-model-len is " + std::to_string(engine.n_seq_tokens) +
                            "; it must not be more than --ctx, which is " +
                            std::to_string(engine.n_ctx));
  }
  engine.n_ctx = engine.n_seq_tokens;
  return {};
}

Result<std::vector<std::string>> warn_of_unknown_flags(const CLI::App& app) {
  std::vector<std::string> known;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
  }
  std::vector<std::string> warnings;
  const std::vector<std::string> words = app.remaining();
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (!word.starts_with("--") || word.size() == 2) {
      return invalid_argument("'" + word.substr(0, 100) + "' belongs to no flag");
    }
    const std::size_t equals = word.find('=');
    warnings.push_back(warning_about(word.substr(0, equals), known));
    if (equals != std::string::npos) continue;
    while (i + 1 < words.size() && is_value(words[i + 1])) ++i;
  }
  return warnings;
}

}  // namespace graft::cli
