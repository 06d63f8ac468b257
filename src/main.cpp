// The program: parses the command line and runs one subcommand. Serving is wired here, the only
// place that knows every folder: model and engine, the loop on its thread, names, the API, sockets.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "api/keys/key_sources.h"
#include "api/service.h"
#include "api/text_prompt_builder.h"
#include "base/log.h"
#include "cli/command_line.h"
#include "cli/loading.h"
#include "cli/run.h"
#include "cli/stop_signal.h"
#include "http/http_server.h"
#include "modules/store/module_store.h"
#include "scheduler/loop.h"
#include "scheduler/loop_trial.h"
#include "text/chat_template.h"
#include "text/constraint.h"

namespace graft {
namespace {

using cli::ServeCommand;

constexpr std::size_t kMaxMonitorConnections = 64;

// The names of the base, each once, the one to report first.
std::vector<std::string> base_names(const ServeCommand& command) {
  std::vector<std::string> names = command.served_names;
  for (std::string name :
       {std::string("base"), std::filesystem::path(command.model.path).stem().string()}) {
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      names.push_back(std::move(name));
    }
  }
  return names;
}

Result<std::unique_ptr<ModuleStore>> make_store(const ServeCommand& command,
                                                const cli::LoadedModel& loaded,
                                                ModuleTrial& trial) {
  ModuleStoreOptions options;
  options.base_names = base_names(command);
  options.root = command.modules_dir;
  options.autoload = command.autoload;
  options.default_scales = command.default_scales;
  options.precision = command.model.precision;
  options.limits = command.module_limits;
  options.n_loaders = command.n_loaders;
  return ModuleStore::create(loaded.model->base(), trial, std::move(options), loaded.modules);
}

// A model without a usable template still serves completions.
std::unique_ptr<ChatTemplate> make_chat_template(const Model& model) {
  auto made = ChatTemplate::create(model.handle());
  if (made) return std::move(*made);
  log_warning("no chat: " + made.error().message);
  return nullptr;
}

void log_module(const ModuleVersion& module) {
  char text[96];
  std::snprintf(text, sizeof text, ", rank %lld, %.2f MiB resident, digest %.12s",
                static_cast<long long>(module.resident->max_rank()),
                static_cast<double>(module.resident->arena_bytes()) / (1 << 20),
                module.digest().c_str());
  log_info("module '" + module.name + "': " + module.description->report.format + text);
  for (const std::string& note : module.description->report.notes) {
    log_info("module '" + module.name + "': " + note);
  }
  if (module.resident->packing_error() > 0) {
    std::snprintf(text, sizeof text, "packing error %.2g of a row's largest value",
                  module.resident->packing_error());
    log_info("module '" + module.name + "': " + text);
  }
}

api::ModelFacts api_facts(const ServeCommand& command, const cli::LoadedModel& loaded) {
  api::ModelFacts facts;
  facts.n_context_tokens = loaded.engine->max_sequence_tokens();
  facts.n_vocab = loaded.model->vocabulary().size();
  facts.max_choices = std::min(facts.max_choices, loaded.engine->max_sequences());
  facts.base_digest = loaded.model->base().digest;
  facts.created_unix_s = std::chrono::duration_cast<std::chrono::seconds>(
                             std::chrono::system_clock::now().time_since_epoch())
                             .count();
  if (loaded.model->facts().pooling) {
    facts.n_embedding_values = static_cast<std::int32_t>(loaded.engine->n_state_values());
    facts.pooling = *loaded.model->facts().pooling;
  }
  facts.default_max_tokens = command.default_max_tokens;
  facts.n_sequences = loaded.engine->max_sequences();
  facts.model_file = std::filesystem::path(command.model.path).filename().string();
  facts.chat_template = loaded.model->facts().chat_template;
  const Vocabulary& vocabulary = loaded.model->vocabulary();
  facts.bos_token = vocabulary.piece(vocabulary.bos());
  facts.eos_token = vocabulary.piece(vocabulary.eos());
  return facts;
}

std::string ready_line(const ServeCommand& command, std::uint16_t port,
                       const RegistrySnapshot& registry) {
  const bool is_v6 = command.http.host.find(':') != std::string::npos;
  const std::string& host = command.http.host;
  std::string line = std::string("ready: ") + (command.http.uses_tls() ? "https" : "http") + "://" +
                     (is_v6 ? "[" + host + "]" : host) + ":" + std::to_string(port) + "  model " +
                     registry.base_names.front() + " (" +
                     std::filesystem::path(command.model.path).filename().string() + ")  modules";
  for (const auto& module : registry.modules) line += " " + module->name;
  if (registry.modules.empty()) line += " none";
  return line;
}

// What can answer before there is a model: the keys, and the sockets in front of a service.
struct FrontDoor {
  Snapshot<api::KeyRing> keys{std::make_shared<const api::KeyRing>()};
  api::Service service{&keys};
  api::Service monitor_service{api::Service::Watch{service}};
  std::unique_ptr<HttpServer> server;
  std::unique_ptr<HttpServer> monitor;  // null without a port of its own
};

// The port for those who watch, if there is to be one.
Status open_monitor(const ServeCommand& command, FrontDoor& door) {
  if (!command.metrics_port) return {};
  HttpOptions options;
  options.host = command.http.host;
  options.port = *command.metrics_port;
  options.max_connections = kMaxMonitorConnections;
  door.monitor_service.set_state(api::Service::State::kReady);
  GRAFT_ASSIGN_OR_RETURN(door.monitor, HttpServer::start(options, door.monitor_service));
  log_info("metrics: port " + std::to_string(door.monitor->port()));
  return {};
}

Status open_front_door(const ServeCommand& command, FrontDoor& door) {
  GRAFT_ASSIGN_OR_RETURN(auto ring, api::load_key_ring(command.keys, {}));
  door.keys.set(std::move(ring));
  if (!command.keys.file.empty()) cli::install_reload_signal();
  GRAFT_ASSIGN_OR_RETURN(door.server, HttpServer::start(command.http, door.service));
  log_info("listening on " + command.http.host + ":" + std::to_string(door.server->port()) + ", " +
           std::to_string(door.keys.get()->size()) + " API keys");
  return open_monitor(command, door);
}

// A file that cannot be used changes nothing.
void reload_keys(const ServeCommand& command, Snapshot<api::KeyRing>& keys) {
  auto ring = api::load_key_ring(command.keys, *keys.get());
  if (!ring) {
    log_error("the API keys stay as they are: " + ring.error().message);
    return;
  }
  log_info("API keys read again: " + std::to_string((*ring)->size()));
  keys.set(std::move(ring).value());
}

// Runs until a signal asks to stop, then lets answers finish.
Status serve_until_stopped(const ServeCommand& command, cli::LoadedModel& loaded, FrontDoor& door) {
  const auto chat_template = make_chat_template(*loaded.model);
  const api::TextPromptBuilder prompts(loaded.model->vocabulary(), chat_template.get(),
                                       command.allow_special_in_input);
  const ConstraintCompiler constraints(loaded.model->vocabulary());
  Loop loop(*loaded.engine,
            {.max_waiting = command.max_waiting, .prefix_cache = command.prefix_cache});
  LoopTrial trial(loop);
  GRAFT_ASSIGN_OR_RETURN(const auto store, make_store(command, loaded, trial));
  // Connections use what stands above: they end first.
  const std::unique_ptr<HttpServer> server = std::move(door.server);
  const std::unique_ptr<HttpServer> monitor = std::move(door.monitor);
  const api::Observation observation = {&loop.metrics(), command.old_gpu_names,
                                        command.log_prompts};
  door.service.open({loop, store->registry(), prompts, api_facts(command, loaded), &constraints,
                     store.get(), observation});
  door.service.set_state(api::Service::State::kReady);
  std::cout << ready_line(command, server->port(), *store->registry().get()) << std::endl;

  while (cli::wait_for_signal() == cli::Asked::kReload) reload_keys(command, door.keys);
  log_info("stopping: running answers have " + std::to_string(command.shutdown_timeout.count()) +
           " s to finish; another signal ends at once");
  server->drain(command.shutdown_timeout);
  loop.stop(std::chrono::milliseconds(0));
  return {};
}

int serve(const ServeCommand& command) {
  for (const std::string& warning : command.warnings) log_warning(warning);
  FrontDoor door;
  if (Status opened = open_front_door(command, door); !opened) {
    return cli::report(opened.error());
  }
  auto loaded = cli::load(command.model);
  if (!loaded) return cli::report(loaded.error());
  log_info(loaded->model->facts().description + ", " + std::to_string(loaded->engine->n_threads()) +
           " threads, " + std::to_string(loaded->engine->cells().n_cells()) + " cells, " +
           std::to_string(loaded->engine->max_sequences()) + " sequences");
  for (const auto& module : loaded->modules) log_module(*module);
  const Status served = serve_until_stopped(command, *loaded, door);
  return served ? cli::kExitOk : cli::report(served.error());
}

int say(const cli::SayCommand& command) {
  std::fputs(command.text.c_str(), command.exit_code == cli::kExitOk ? stdout : stderr);
  return command.exit_code;
}

template <typename T>
void prepare_log(const T& command) {
  if constexpr (requires { command.model.log; }) {
    init_log(command.model.log);
    cli::install_stop_signal();
  }
}

int run(const cli::Command& command) {
  return std::visit(
      [](const auto& one) {
        prepare_log(one);
        if constexpr (std::is_same_v<decltype(one), const cli::SayCommand&>) {
          return say(one);
        } else if constexpr (std::is_same_v<decltype(one), const ServeCommand&>) {
          return serve(one);
        } else {
          return cli::run(one);
        }
      },
      command);
}

}  // namespace
}  // namespace graft

int main(int argc, char** argv) {
  try {
    return graft::run(
        graft::cli::parse_command_line(std::vector<std::string>(argv + 1, argv + argc)));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "graft: %s\n", error.what());
    return graft::cli::kExitFailure;
  }
}
