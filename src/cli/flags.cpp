#include "cli/flags.h"

#include <cmath>
#include <utility>

#include "cli/flag_checks.h"
#include "cli/module_flags.h"
#include "cli/network_flags.h"
#include "router/resolve.h"

namespace graft::cli {
namespace {

void add_model_flags(CLI::App& app, ModelFlags& flags, RawFlags& raw) {
  app.add_option("MODEL", flags.path, "The base model: a GGUF file, or any part of a split one.")
      ->required()
      ->type_name("");
  add_whole(app, "--ctx", flags.engine.n_ctx, {256, 1 << 24},
            "Cells of the key/value memory, one per token, shared by all sequences. Default 4096.")
      ->group("Capacity");
  add_whole(app, "--batch", flags.engine.n_batch, {1, 1 << 16},
            "Most tokens that one step computes, prompts and answers together; at least "
            "--max-seqs. Default 512.")
      ->group("Capacity");
  add_whole(app, "--threads,-t", flags.engine.n_threads, {1, 512},
            "Threads that compute. Default: one per processor.")
      ->group("Capacity");
  app.add_option("--cache-type", raw.cache_type,
                 "Type of cached keys and values: f16, f32 or q8_0. Default f16.")
      ->check(one_of({"f16", "f32", "q8_0"}))
      ->type_name("TYPE")
      ->group("Capacity");
  app.add_flag("!--no-mmap", flags.use_mmap,
               "Read the model into memory instead of mapping its file.")
      ->group("Capacity");
  app.add_flag("--deterministic", flags.engine.deterministic,
               "For weights of any type: answers are the same bits whatever else is computed. "
               "q4_0, q4_1, q5_0 and q8_0 weights have that without this flag. Slower, above all "
               "for prompts; a model that it cannot cover is refused.")
      ->group("Capacity");
  app.add_option("--device", raw.device,
                 "What computes: cpu (the default), or gpu, the first one, which a build with the "
                 "option GRAFT_CUDA finds.")
      ->check(one_of({"cpu", "gpu"}))
      ->type_name("DEVICE")
      ->group("Capacity");
  app.add_option("--module-precision", raw.precision,
                 "How adapters are kept: file (as the file has them, the default), f16, or q8_0 "
                 "(smaller and faster, but lossy; the error is printed).")
      ->check(one_of({"file", "f16", "q8_0"}))
      ->type_name("TYPE")
      ->group("Modules");
  app.add_option("--log-level", raw.log_level, "debug, info, warning, error or off.")
      ->check(one_of({"debug", "info", "warning", "error", "off"}))
      ->type_name("LEVEL")
      ->group("Logging");
  app.add_flag("--log-json", flags.log.json, "Short for --log-format json.")->group("Logging");
  app.add_option("--log-format", raw.log_format,
                 "text, or json: one object per line. Default text.")
      ->check(one_of({"text", "json"}))
      ->type_name("FORMAT")
      ->group("Logging");
}

void add_max_seqs(CLI::App& app, ModelFlags& flags) {
  add_whole(app, "--max-seqs", flags.engine.max_seqs, {1, kMaxSequences},
            "Requests computed at once; others wait. Default 16.")
      ->group("Capacity");
}

void add_max_reported_rows(CLI::App& app, ModelFlags& flags) {
  add_whole(app, "--max-reported-rows", flags.engine.max_reported_rows, {1, 1 << 16},
            "Most prompt tokens per step whose log-probabilities (echo, prompt_logprobs) or states "
            "(embeddings) are reported, over all requests. Each takes memory for a number per "
            "token of the vocabulary. Default 64.")
      ->group("Capacity");
}

void add_module_flags(CLI::App& app, RawFlags& raw, const char* names, const char* form,
                      const char* text) {
  app.add_option(names, raw.modules, text)
      ->type_name(form)
      ->allow_extra_args(false)
      ->group("Modules");
}

LogLevel to_log_level(const std::string& name) {
  if (name == "debug") return LogLevel::kDebug;
  if (name == "info") return LogLevel::kInfo;
  if (name == "warning") return LogLevel::kWarning;
  return name == "error" ? LogLevel::kError : LogLevel::kOff;
}

void add_prefix_flags(CLI::App& app, PrefixCacheOptions& options) {
  app.add_option_function<std::string>(
         "--prefix-cache", [&options](const std::string& word) { options.enabled = word == "on"; },
         "on or off: keep what prompts begin with, so that others with the same beginning (and the "
         "same tenant, salt and modules) need not compute it. Default on.")
      ->check(one_of({"on", "off"}))
      ->type_name("WORD")
      ->group("Capacity");
  add_whole(app, "--prefix-cells", options.max_hot_cells, {1, 1 << 24},
            "Most cells of --ctx that cached beginnings hold; running requests take them when they "
            "need them. Default: a quarter.")
      ->group("Capacity");
  app.add_option_function<std::int64_t>(
         "--prefix-memory",
         [&options](std::int64_t n) {
           options.max_warm_bytes = static_cast<std::uint64_t>(n) << 20;
         },
         "MiB of memory for cached beginnings that have left the cells; 0 = none. Default 1024.")
      ->check(in_range(0, 1 << 24, true))
      ->type_name("MIB")
      ->group("Capacity");
}

void add_watch_flags(CLI::App& app, ServeCommand& command) {
  add_whole(app, "--metrics-port", command.metrics_port, {0, 65535},
            "A second port with a thread of its own for /metrics, /health and /load, so that those "
            "who watch never wait behind requests; 0 takes any free one. Default: none.")
      ->group("Network");
  app.add_flag("--old-vllm-metrics", command.old_gpu_names,
               "Also vLLM's old metric names: gpu_cache_usage_perc, gpu_prefix_cache_*.")
      ->group("Logging");
  app.add_flag("--log-prompts", command.log_prompts,
               "Prompts appear in the log, 4 KiB of each. Off: nothing of them does.")
      ->group("Logging");
}

void add_sampling_flags(CLI::App& app, ChatCommand& command) {
  SamplingParams& sampling = command.sampling;
  const std::string group = "Sampling";
  add_number(app, "--temperature", sampling.temperature, {0, 2},
             "0 always takes the likeliest token. Default 0.7.")
      ->group(group);
  add_whole(app, "--top-k", sampling.top_k, {0, kMaxInt}, "Likeliest tokens kept; 0 keeps all.")
      ->group(group);
  add_number(app, "--top-p", sampling.top_p, {1e-6, 1},
             "Smallest set of tokens with that probability. Default 0.95.")
      ->group(group);
  add_number(app, "--min-p", sampling.min_p, {0, 1},
             "Drops tokens less likely than this part of the likeliest. Default 0.")
      ->group(group);
  add_number(app, "--repetition-penalty", sampling.repetition_penalty, {0.01, 10},
             "Above 1 makes repeated tokens less likely. Default 1.")
      ->group(group);
  app.add_option("--seed", sampling.seed, "The same seed gives the same answer.")
      ->check(in_range(0, 4294967295.0, true))
      ->type_name("N")
      ->group(group);
  add_whole(app, "--max-tokens,-n", command.stop.max_tokens, {1, kMaxInt},
            "Longest answer. Default: until the context ends.")
      ->group(group);
  app.add_option("--stop", command.stop.strings, "Text that ends the answer; repeatable.")
      ->type_name("TEXT")
      ->allow_extra_args(false)
      ->group(group);
}

}  // namespace

Result<ModuleFlag> parse_module_flag(const std::string& text, bool with_scale) {
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos || equals + 1 == text.size()) {
    return invalid_argument("--module: '" + text.substr(0, 200) + "' is not NAME=PATH" +
                            (with_scale ? " or NAME=PATH:SCALE" : ""));
  }
  ModuleFlag flag{{text.substr(0, equals), text.substr(equals + 1)}, 1.0F};
  if (Status name = check_module_name(flag.source.name); !name) {
    return invalid_argument("--module: " + name.error().message);
  }
  const std::size_t colon = flag.source.path.rfind(':');
  if (!with_scale || colon == std::string::npos || colon == 0) return flag;
  // A path may hold a colon: only a number behind the last one is a scale.
  const auto scale = parse_number(std::string_view(flag.source.path).substr(colon + 1));
  if (!scale) return flag;
  if (std::fabs(*scale) > static_cast<double>(kMaxModuleScale)) {
    return invalid_argument("--module " + flag.source.name + ": the scale must be from -" +
                            shown(static_cast<double>(kMaxModuleScale)) + " to " +
                            shown(static_cast<double>(kMaxModuleScale)));
  }
  flag.scale = static_cast<float>(*scale);
  flag.source.path.resize(colon);
  return flag;
}

Status add_module(ModuleFlag module, ModelFlags& flags) {
  for (const ModuleFlag& earlier : flags.modules) {
    if (earlier.source.name == module.source.name) {
      return invalid_argument("--module: two modules are named '" + module.source.name + "'");
    }
  }
  flags.modules.push_back(std::move(module));
  return {};
}

Status finish_model_flags(const RawFlags& raw, bool with_scales, ModelFlags& flags) {
  for (const std::string& text : raw.modules) {
    GRAFT_ASSIGN_OR_RETURN(ModuleFlag module, parse_module_flag(text, with_scales));
    GRAFT_RETURN_IF_ERROR(add_module(std::move(module), flags));
  }
  flags.engine.kv_type = raw.cache_type == "f32"    ? KvType::kF32
                         : raw.cache_type == "q8_0" ? KvType::kQ8_0
                                                    : KvType::kF16;
  flags.precision = raw.precision == "f16"    ? Precision::kF16
                    : raw.precision == "q8_0" ? Precision::kQ8_0
                                              : Precision::kFile;
  flags.use_gpu = raw.device == "gpu";
  if (raw.log_format == "json") flags.log.json = true;
  if (!raw.log_level.empty()) flags.log.level = to_log_level(raw.log_level);
  if (flags.engine.n_batch < flags.engine.max_seqs) {
    return invalid_argument("--batch is " + std::to_string(flags.engine.n_batch) +
                            "; it must be at least --max-seqs, which is " +
                            std::to_string(flags.engine.max_seqs));
  }
  return {};
}

void add_serve_flags(CLI::App& app, ServeCommand& command, RawFlags& raw) {
  command.model.log.level = LogLevel::kInfo;
  add_model_flags(app, command.model, raw);
  add_max_seqs(app, command.model);
  add_max_reported_rows(app, command.model);
  add_module_flags(app, raw, "--module,-m", "NAME=PATH",
                   "An adapter under a name: a PEFT directory or a GGUF file. Repeatable.");
  app.add_option("--served-model-name", command.served_names,
                 "Further names of the base, the first one reported. The base also answers to "
                 "'base' and to its file's stem.")
      ->type_name("NAME")
      ->group("Network");
  add_serve_module_flags(app, command, raw);
  add_network_flags(app, command);
  add_watch_flags(app, command);
  add_whole(app, "--default-max-tokens", command.default_max_tokens, {1, kMaxInt},
            "Longest chat answer when a request names no limit. Default: until the context ends.")
      ->group("Capacity");
  add_whole(app, "--max-waiting", command.max_waiting, {1, 100000},
            "Requests that may wait; more are answered with 429. Default 1024.")
      ->group("Capacity");
  add_prefix_flags(app, command.prefix_cache);
  app.add_flag("--allow-special-in-input", command.allow_special_in_input,
               "Control tokens written in chat messages count. Off: they are plain text.")
      ->group("Network");
}

void add_chat_flags(CLI::App& app, ChatCommand& command, RawFlags& raw) {
  command.sampling.temperature = 0.7F;
  command.sampling.top_p = 0.95F;
  command.model.engine.max_seqs = 1;
  add_model_flags(app, command.model, raw);
  add_module_flags(app, raw, "--module,-m", "NAME=PATH[:SCALE]",
                   "An adapter that shapes the answers, with a weight (default 1). Repeatable: "
                   "several add up.");
  app.add_option("--prompt,-p", command.prompt, "One question; its answer is all that is printed.")
      ->type_name("TEXT")
      ->group("Conversation");
  app.add_option("--system", command.system, "The system message.")
      ->type_name("TEXT")
      ->group("Conversation");
  add_sampling_flags(app, command);
}

void add_inspect_flags(CLI::App& app, InspectCommand& command) {
  app.add_option("PATH", command.path, "A PEFT directory or a GGUF file.")
      ->required()
      ->type_name("");
  app.add_flag("--json", command.json, "Print one JSON object instead of text.");
}

void add_probe_flags(CLI::App& app, ProbeCommand& command, RawFlags& raw) {
  command.model.engine.max_seqs = 32;
  command.model.engine.n_ctx = 1024;
  add_model_flags(app, command.model, raw);
  app.add_option("PATH", raw.module_path, "The adapter: a PEFT directory or a GGUF file.")
      ->required()
      ->type_name("");
  app.add_option("--prompt,-p", command.prompts,
                 "Text on which logits are compared; repeatable. Default: four short texts.")
      ->type_name("TEXT")
      ->allow_extra_args(false)
      ->group("Probe");
  add_number(app, "--scale", command.scale, {-100, 100}, "The request's weight. Default 1.")
      ->group("Probe");
  app.add_flag("--sites", command.every_site, "List every site, not only each kind of site.")
      ->group("Probe");
}

void add_doctor_flags(CLI::App& app, DoctorCommand& command, RawFlags& raw) {
  add_model_flags(app, command.model, raw);
  add_max_seqs(app, command.model);
  app.add_option("--module,-m", raw.module_path,
                 "An adapter to examine: a PEFT directory or a GGUF file.")
      ->type_name("PATH")
      ->group("Modules");
}

void add_bench_flags(CLI::App& app, BenchCommand& command, RawFlags& raw) {
  add_model_flags(app, command.model, raw);
  // `bench serve` has none; without it, the command line checks.
  app.get_option("MODEL")->required(false);
  add_module_flags(app, raw, "--module,-m", "NAME=PATH",
                   "An adapter; stream i gets module i, round and round. Repeatable.");
  add_whole(app, "--streams", command.n_streams, {1, kMaxSequences}, "Requests at once. Default 8.")
      ->group("Load");
  add_whole(app, "--prompt-tokens", command.n_prompt_tokens, {1, 1 << 20},
            "Tokens of each prompt, all different. Default 96.")
      ->group("Load");
  add_whole(app, "--max-tokens,-n", command.n_max_tokens, {1, 1 << 20},
            "Tokens generated per request. Default 64.")
      ->group("Load");
}

namespace {

void add_request_flags(CLI::App& app, BenchServeCommand& command, RawFlags& raw) {
  const std::string group = "Requests";
  app.add_option(
         "--model,-m", command.models,
         "A name for the field `model`; repeatable: request i takes name i, round and round.")
      ->type_name("NAME")
      ->allow_extra_args(false)
      ->group(group);
  app.add_option("--lora-id", command.lora_ids,
                 "An adapter of llama-server by its number, instead of --model; repeatable.")
      ->check(in_range(0, 100000, true))
      ->type_name("N")
      ->allow_extra_args(false)
      ->group(group);
  app.add_flag("--chat", command.chat, "Chat completions. Off: completions.")->group(group);
  add_whole(app, "--prompt-length", command.prompt_length, {1, 1 << 20},
            "Length of each prompt, all different from their first word on. Default 96.")
      ->group(group);
  add_whole(app, "--common-prefix", command.common_prefix, {0, 1 << 20},
            "How much at their beginning all prompts share. Default 0.")
      ->group(group);
  app.add_option("--prompt-unit", raw.prompt_unit,
                 "words (short ones, about a token each) or tokens (ids; not for chat). "
                 "Default words.")
      ->check(one_of({"words", "tokens"}))
      ->type_name("UNIT")
      ->group(group);
  add_whole(app, "--vocab", command.n_vocab, {101, kMaxInt},
            "Token ids are from 100 to below this. Default 30000.")
      ->group(group);
  add_whole(app, "--max-tokens,-n", command.max_tokens, {1, 1 << 20},
            "Tokens generated per request. Default 64.")
      ->group(group);
  add_number(app, "--temperature", command.temperature, {0, 2}, "Default 0.")->group(group);
  app.add_flag("!--stop-at-eos", command.ignore_eos,
               "Answers end where the model ends them. Off: `ignore_eos` is sent.")
      ->group(group);
  app.add_option("--fields", command.more_fields,
                 "A JSON object whose fields every request gets, over all others.")
      ->type_name("JSON")
      ->group(group);
  app.add_option("--api-key", command.api_key, "Sent as a bearer token.")
      ->type_name("KEY")
      ->group(group);
}

}  // namespace

void add_bench_serve_flags(CLI::App& app, BenchServeCommand& command, RawFlags& raw) {
  app.add_option("URL", raw.url, "The server: http://HOST[:PORT][/PREFIX].")
      ->required()
      ->type_name("");
  add_request_flags(app, command, raw);
  const std::string group = "Load";
  add_whole(
      app, "--streams", command.n_streams, {1, 4096},
      "Connections, each with one request at a time. With --rate: at most so many. Default 8.")
      ->group(group);
  add_whole(app, "--requests", command.n_requests, {1, 10000000},
            "Requests in all. Default: one per stream.")
      ->group(group);
  add_number(app, "--rate", command.rate, {0.001, 100000},
             "Requests per second, whatever the answers do. Default: as fast as answers end.")
      ->group(group);
  app.add_option("--arrival", raw.arrival,
                 "How requests of a --rate are spread: poisson or fixed. Default poisson.")
      ->check(one_of({"poisson", "fixed"}))
      ->type_name("KIND")
      ->group(group);
  app.add_option("--seed", command.seed, "Other prompts for another seed. Default 1.")
      ->check(in_range(0, 4294967295.0, true))
      ->type_name("N")
      ->group(group);
  add_whole(app, "--timeout", command.timeout_s, {1, 86400},
            "Seconds after which a request has failed. Default 300.")
      ->group(group);
  app.add_flag("--json", command.json, "Print one JSON object instead of text.");
}

}  // namespace graft::cli
