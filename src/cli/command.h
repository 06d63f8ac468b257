// What a command line asks for: one plain struct per subcommand, as parse_command_line() fills it,
// ranges checked. No behaviour; any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "api/keys/key_file.h"
#include "api/keys/key_sources.h"
#include "base/log.h"
#include "core/request.h"
#include "engine/engine_options.h"
#include "engine/prefix_cache.h"
#include "http/http_options.h"
#include "modules/residency/resident_adapter.h"
#include "modules/store/live_registry.h"
#include "modules/store/load_module.h"

namespace graft::cli {

struct ModuleFlag {
  ModuleSource source;
  float scale = 1.0F;  // chat only: NAME=PATH:SCALE
};

// What every subcommand that loads a model takes.
struct ModelFlags {
  std::string path;
  std::vector<ModuleFlag> modules;
  EngineOptions engine;
  Precision precision = Precision::kFile;
  bool use_mmap = true;
  bool use_gpu = false;
  LogOptions log = {.level = LogLevel::kWarning};
};

struct ServeCommand {
  ModelFlags model;
  HttpOptions http;
  api::KeySources keys;
  bool allow_remote = false;
  bool allow_special_in_input = false;
  std::vector<std::string> served_names;
  std::int32_t default_max_tokens = -1;
  std::int32_t max_waiting = 1024;
  PrefixCacheOptions prefix_cache;
  std::optional<std::uint16_t> metrics_port;  // a listener of its own for those who watch
  bool old_gpu_names = false;
  bool log_prompts = false;
  std::chrono::seconds shutdown_timeout{30};
  // Modules while serving.
  std::string modules_dir;  // "" = none are loaded
  bool autoload = false;
  bool default_scales = false;
  ModuleLimits module_limits;
  int n_loaders = 2;
  std::vector<std::string> warnings;  // about the command line itself
};

struct ChatCommand {
  ModelFlags model;
  std::string prompt;  // empty = interactive
  std::string system;
  SamplingParams sampling;
  StopRules stop;
};

struct InspectCommand {
  std::string path;
  bool json = false;
};

struct ProbeCommand {
  ModelFlags model;  // with one module
  std::vector<std::string> prompts;
  float scale = 1.0F;
  bool every_site = false;
};

struct DoctorCommand {
  ModelFlags model;  // with one module at most
};

struct BenchCommand {
  ModelFlags model;
  std::int32_t n_streams = 8;
  std::int32_t n_prompt_tokens = 96;
  std::int32_t n_max_tokens = 64;
};

enum class PromptUnit { kWords, kTokens };

// A load test of a server that runs somewhere.
struct BenchServeCommand {
  std::string host;
  std::uint16_t port = 80;
  std::string base_path;  // of the URL, without a slash at its end
  std::vector<std::string> models;
  std::vector<std::int32_t> lora_ids;  // llama-server's
  std::string api_key;
  bool chat = false;
  std::int32_t n_requests = 0;  // 0 = one per stream
  std::int32_t n_streams = 8;
  double rate = 0;  // requests per second; 0 = closed loop
  bool poisson = true;
  std::int32_t prompt_length = 96;
  std::int32_t common_prefix = 0;
  PromptUnit prompt_unit = PromptUnit::kWords;
  std::int32_t n_vocab = 30000;  // token ids are below this
  std::int32_t max_tokens = 64;
  double temperature = 0;
  bool ignore_eos = true;
  std::string more_fields;  // a JSON object whose fields every request gets, or ""
  std::uint32_t seed = 1;
  std::int32_t timeout_s = 300;
  bool json = false;
};

struct NewKeyCommand {
  std::string file;
  api::ApiKey key{.name = {}, .hash = api::KeyHash::of({}), .tenant = {}};  // all but the hash
};

// The command line is answered with a text: help, version, licences, or what is wrong with it.
struct SayCommand {
  std::string text;
  int exit_code = 0;  // 0 goes to standard output, others to standard error
};

using Command = std::variant<SayCommand, ServeCommand, ChatCommand, InspectCommand, ProbeCommand,
                             DoctorCommand, BenchCommand, BenchServeCommand, NewKeyCommand>;

inline constexpr int kExitOk = 0;
inline constexpr int kExitFailure = 1;
inline constexpr int kExitUsage = 2;

}  // namespace graft::cli
