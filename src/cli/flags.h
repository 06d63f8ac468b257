// The flags of every subcommand, with their limits and help texts. Internal to the command line;
// values land in the command structs, texts that need more than CLI11 in RawFlags.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/command.h"

namespace graft::cli {

// Values that are read once all flags are known.
struct RawFlags {
  std::vector<std::string> modules;       // NAME=PATH or NAME=PATH:SCALE
  std::vector<std::string> lora_modules;  // NAME=PATH or JSON
  std::string cache_type = "f16";
  std::string precision = "file";
  std::string device = "cpu";
  std::string log_format = "text";
  std::string log_level;  // empty = the subcommand's default
  std::string module_path;
  std::string url;
  std::string prompt_unit = "words";
  std::string arrival = "poisson";
};

void add_serve_flags(CLI::App& app, ServeCommand& command, RawFlags& raw);
void add_chat_flags(CLI::App& app, ChatCommand& command, RawFlags& raw);
void add_inspect_flags(CLI::App& app, InspectCommand& command);
void add_probe_flags(CLI::App& app, ProbeCommand& command, RawFlags& raw);
void add_doctor_flags(CLI::App& app, DoctorCommand& command, RawFlags& raw);
void add_bench_flags(CLI::App& app, BenchCommand& command, RawFlags& raw);
void add_bench_serve_flags(CLI::App& app, BenchServeCommand& command, RawFlags& raw);

// Errors: a name that is there already.
Status add_module(ModuleFlag module, ModelFlags& flags);

// Fills in what `raw` says. Errors name the flag.
Status finish_model_flags(const RawFlags& raw, bool with_scales, ModelFlags& flags);

Status finish_bench_serve_flags(const RawFlags& raw, BenchServeCommand& command);

// NAME=PATH, or NAME=PATH:SCALE where `with_scale`. Names are checked, paths are not.
Result<ModuleFlag> parse_module_flag(const std::string& text, bool with_scale);

}  // namespace graft::cli
