#include "cli/command_line.h"

#include <functional>
#include <memory>
#include <utility>

#include "cli/flags.h"
#include "cli/help_page.h"
#include "cli/licences.h"
#include "cli/module_flags.h"
#include "cli/network_flags.h"

namespace graft::cli {
namespace {

Command usage_fault(const std::string& message, const std::string& subcommand) {
  return SayCommand{"graft: " + message + "\nTry 'graft" +
                        (subcommand.empty() ? "" : " " + subcommand) + " --help'.\n",
                    kExitUsage};
}

Status check_serve(const ServeCommand& command) {
  for (const std::string& name : command.served_names) {
    if (name.empty() || name.size() > 200) {
      return invalid_argument("--served-model-name: a name has 1 to 200 bytes");
    }
    for (const ModuleFlag& module : command.model.modules) {
      if (module.source.name == name) {
        return invalid_argument("'" + name + "' would be both the base and a module");
      }
    }
  }
  return {};
}

// All subcommands with what they fill in; exactly one of them was given when parsing succeeds.
struct Grammar {
  CLI::App app{about_graft(), "graft"};
  RawFlags raw;
  ServeCommand serve;
  ChatCommand chat;
  InspectCommand inspect;
  ProbeCommand probe;
  DoctorCommand doctor;
  BenchCommand bench;
  BenchServeCommand bench_serve;
  NewKeyCommand new_key;
  CLI::App* serve_app = nullptr;
  CLI::App* module_app = nullptr;
  bool wants_version = false;
  bool wants_licences = false;

  Grammar();
  // `page` where the name alone does not say which help page.
  CLI::App* add(CLI::App& parent, const char* name, const char* page = nullptr);
  Command finish();
  Result<Command> finish_checked();
  std::string chosen() const;
};

CLI::App* Grammar::add(CLI::App& parent, const char* name, const char* page) {
  const HelpPage words = help_page(page == nullptr ? name : page);
  CLI::App* sub = parent.add_subcommand(name, words.description);
  sub->footer(words.footer);
  return sub;
}

Grammar::Grammar() {
  app.formatter(make_help_formatter());
  app.footer(help_page("graft").footer);
  app.set_help_flag("--help,-h", "Print this page.");
  app.add_flag("--version", wants_version, "Print the version.");
  app.add_flag("--licenses,--licences", wants_licences, "Print the licences of all parts.");
  serve_app = add(app, "serve");
  add_serve_flags(*serve_app, serve, raw);
  serve_app->allow_extras();
  add_chat_flags(*add(app, "chat"), chat, raw);
  module_app = add(app, "module");
  add_inspect_flags(*add(*module_app, "inspect"), inspect);
  add_probe_flags(*add(*module_app, "probe"), probe, raw);
  module_app->require_subcommand(1);
  add_doctor_flags(*add(app, "doctor"), doctor, raw);
  CLI::App* bench_app = add(app, "bench");
  add_bench_flags(*bench_app, bench, raw);
  add_bench_serve_flags(*add(*bench_app, "serve", "bench serve"), bench_serve, raw);
  bench_app->require_subcommand(0, 1);
  CLI::App* keys_app = add(app, "keys");
  add_new_key_flags(*add(*keys_app, "new", "keys new"), new_key);
  keys_app->require_subcommand(1);
  app.require_subcommand(0, 1);
}

std::string Grammar::chosen() const {
  std::string path;
  for (const CLI::App* at = &app; !at->get_subcommands().empty();) {
    at = at->get_subcommands().front();
    path += (path.empty() ? "" : " ") + at->get_name();
  }
  return path;
}

Result<Command> Grammar::finish_checked() {
  const std::string name = chosen();
  if (name == "serve") {
    GRAFT_RETURN_IF_ERROR(finish_model_flags(raw, false, serve.model));
    GRAFT_RETURN_IF_ERROR(finish_network_flags(serve));
    GRAFT_RETURN_IF_ERROR(finish_serve_module_flags(*serve_app, raw, serve));
    GRAFT_ASSIGN_OR_RETURN(serve.warnings, warn_of_unknown_flags(*serve_app));
    GRAFT_RETURN_IF_ERROR(check_serve(serve));
    return Command(serve);
  }
  if (name == "chat") {
    GRAFT_RETURN_IF_ERROR(finish_model_flags(raw, true, chat.model));
    return Command(chat);
  }
  if (name == "keys new") {
    if (new_key.key.tenant.empty()) new_key.key.tenant = new_key.key.name;
    GRAFT_RETURN_IF_ERROR(api::check_key(new_key.key));
    return Command(new_key);
  }
  if (name == "module inspect") return Command(inspect);
  if (!raw.module_path.empty()) raw.modules = {"examined=" + raw.module_path};
  if (name == "module probe") {
    GRAFT_RETURN_IF_ERROR(finish_model_flags(raw, false, probe.model));
    return Command(probe);
  }
  if (name == "doctor") {
    GRAFT_RETURN_IF_ERROR(finish_model_flags(raw, false, doctor.model));
    return Command(doctor);
  }
  if (name == "bench serve") {
    GRAFT_RETURN_IF_ERROR(finish_bench_serve_flags(raw, bench_serve));
    return Command(bench_serve);
  }
  if (bench.model.path.empty()) return invalid_argument("MODEL is required");
  bench.model.engine.max_seqs = bench.n_streams;
  GRAFT_RETURN_IF_ERROR(finish_model_flags(raw, false, bench.model));
  return Command(bench);
}

Command Grammar::finish() {
  if (wants_version) return SayCommand{"graft " GRAFT_VERSION "\n", kExitOk};
  if (wants_licences) return SayCommand{licences_text(), kExitOk};
  if (app.get_subcommands().empty()) return SayCommand{app.help(), kExitUsage};
  auto command = finish_checked();
  if (!command) return usage_fault(command.error().message, chosen());
  return std::move(*command);
}

}  // namespace

Command parse_command_line(const std::vector<std::string>& arguments) {
  Grammar grammar;
  try {
    // CLI11 takes them last first.
    grammar.app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::CallForHelp&) {
    return SayCommand{grammar.app.help(), kExitOk};
  } catch (const CLI::ParseError& error) {
    return usage_fault(error.what(), grammar.chosen());
  }
  return grammar.finish();
}

}  // namespace graft::cli
