#include "cli/help_page.h"

#include <vector>

namespace graft::cli {
namespace {

constexpr std::size_t kLineWidth = 88;
constexpr std::size_t kTextIndent = 6;

// `text` in lines of at most kLineWidth, each after `indent` spaces.
std::string wrapped(std::string_view text, std::size_t indent) {
  std::string out;
  std::string line;
  const std::size_t width = kLineWidth - indent;
  const auto flush = [&] {
    if (!line.empty()) out += std::string(indent, ' ') + line + "\n";
    line.clear();
  };
  while (!text.empty()) {
    const std::size_t end = text.find(' ');
    const std::string_view word = text.substr(0, end);
    if (!line.empty() && line.size() + 1 + word.size() > width) flush();
    if (!line.empty() && !word.empty()) line += ' ';
    line += word;
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  flush();
  return out;
}

class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override {
    // CLI11 asks for the page of the subcommand that was given.
    std::string page = make_usage(app, std::move(name)) + "\n" + wrapped(app->get_description(), 0);
    page += make_positionals(app) + make_groups(app, mode) + make_subcommands(app, mode);
    if (const std::string footer = app->get_footer(); !footer.empty()) page += "\n" + footer;
    // CLI11 puts an empty line of its own between groups.
    for (std::size_t at = 0; (at = page.find("\n\n\n", at)) != std::string::npos;) {
      page.erase(at, 1);
    }
    return page;
  }

  std::string make_usage(const CLI::App* app, std::string name) const override {
    std::string path;
    for (const CLI::App* at = app; at != nullptr; at = at->get_parent()) {
      path = at->get_name() + (path.empty() ? "" : " " + path);
    }
    if (path.empty()) path = std::move(name);
    std::string usage = "Usage: " + path;
    const bool has_subcommands =
        !app->get_subcommands([](const CLI::App*) { return true; }).empty();
    const bool may_stand_alone =
        has_subcommands &&
        !app->get_options([](const CLI::Option* option) { return option->get_positional(); })
             .empty();
    if (has_subcommands) usage += may_stand_alone ? " [COMMAND]" : " COMMAND";
    for (const CLI::Option* option : app->get_options()) {
      if (option->get_positional()) usage += " " + option->get_name(true);
    }
    return usage + " [OPTION]...\n";
  }

  std::string make_group(std::string group, bool is_positional,
                         std::vector<const CLI::Option*> options) const override {
    std::string out = "\n" + (group == "Options" ? "General" : group) + ":\n";
    for (const CLI::Option* option : options) out += make_option(option, is_positional);
    return out;
  }

  std::string make_option(const CLI::Option* option, bool is_positional) const override {
    const std::string type = option->get_type_size() > 0 ? option->get_type_name() : "";
    std::string head = "  " + option->get_name(is_positional, true);
    for (std::size_t at = 0; (at = head.find(',', at)) != std::string::npos; at += 2) {
      head.insert(at + 1, " ");
    }
    // CLI11 shows the default of negated flags behind their name.
    if (const std::size_t brace = head.find('{'); brace != std::string::npos) head.resize(brace);
    if (!is_positional && !type.empty()) head += " " + type;
    return head + "\n" + wrapped(option->get_description(), kTextIndent);
  }

  std::string make_subcommands(const CLI::App* app, CLI::AppFormatMode) const override {
    std::string out;
    for (const CLI::App* sub : app->get_subcommands([](const CLI::App*) { return true; })) {
      const std::string text = sub->get_description();
      out +=
          "  " + sub->get_name() + "\n" + wrapped(text.substr(0, text.find(". ") + 1), kTextIndent);
    }
    return out.empty() ? out : "\nCommands:\n" + out;
  }
};

HelpPage serve_page() {
  return {
      "Serves a model over HTTP with the OpenAI API. Every request chooses its adapters: by the "
      "name in `model`, by `modules` with scales, or by none at all; requests with different "
      "adapters are computed in one batch. Routes: /v1/chat/completions, /v1/completions, "
      "/v1/models, /health, /metrics, /load, /version.",
      "Examples:\n"
      "  graft serve model.gguf --module pirate=adapters/pirate --module json=adapters/json\n"
      "  graft serve model.gguf --port 0 --ctx 16384 --max-seqs 32 --served-model-name gpt\n\n"
      "SIGTERM or SIGINT stops accepting, lets running answers finish and ends with status 0;\n"
      "a second one ends at once.\n\n"
      "With --host 0.0.0.0 and keys:\n"
      "  graft serve model.gguf --host 0.0.0.0 --api-keys-file keys.jsonl \\\n"
      "      --ssl-certfile cert.pem --ssl-keyfile key.pem\n"};
}

HelpPage chat_page() {
  return {
      "Talks with a model in this terminal. With --prompt it answers once and ends; without, it "
      "is a conversation (/reset begins anew, /quit or Ctrl-D ends). A last line on standard "
      "error says which modules shaped each answer.",
      "Examples:\n"
      "  graft chat model.gguf\n"
      "  graft chat model.gguf -m pirate=adapters/pirate:0.8 -p 'What is the moon?'\n"};
}

HelpPage bench_serve_page() {
  return {
      "Measures a server over HTTP. Sends streamed requests to any server with the OpenAI API and "
      "prints throughput, the time to the first token and between tokens, and what failed. "
      "Without --rate each stream sends its next request when the last answer has ended; the "
      "phase in which all streams decode is then shown too.",
      "Examples:\n"
      "  graft bench serve http://127.0.0.1:8080 --streams 32 --prompt-length 512 -n 128\n"
      "  graft bench serve http://127.0.0.1:8080 -m pirate -m json --rate 5 --requests 200\n\n"
      "Ends with status 1 when a request failed.\n"};
}

HelpPage keys_page(std::string_view name) {
  if (name == "keys") {
    return {"Makes API keys for 'graft serve --api-keys-file'. See the subcommand.",
            "'graft keys COMMAND --help' describes a command.\n"};
  }
  return {
      "Makes a random key of 128 bits and prints it. Its hash is appended to the file, with what "
      "the key may do; the key itself is kept nowhere. A running server reads the file again on "
      "SIGHUP.",
      "Examples:\n"
      "  graft keys new keys.jsonl alice --module 'team-a/*' --max-concurrent 4\n"
      "  graft keys new keys.jsonl operator --admin\n"};
}

HelpPage module_page(std::string_view name) {
  if (name == "inspect") {
    return {
        "Describes an adapter without a base model. Shows format, rank, alpha, targets, "
        "tensors, size, digest, and why it would be refused, if it would.",
        "Examples:\n  graft module inspect adapters/pirate\n"
        "  graft module inspect adapter.gguf --json\n"};
  }
  if (name == "probe") {
    return {
        "Measures what an adapter does to a model. Shows how far it moves the logits on a few "
        "texts, how strong it is at each site, and why it does nothing, if it does nothing.",
        "Example:\n  graft module probe model.gguf adapters/pirate --prompt 'The moon is'\n"};
  }
  return {"Examines adapters. See the two subcommands.",
          "'graft module COMMAND --help' describes a command.\n"};
}

}  // namespace

std::string about_graft() {
  return "Graft " GRAFT_VERSION
         ", a language-model server for many adapters on one base model. Every request chooses the "
         "adapters that shape its answer, and all requests run in one batch.";
}

HelpPage help_page(std::string_view name) {
  if (name == "serve") return serve_page();
  if (name == "chat") return chat_page();
  if (name == "doctor") {
    return {
        "Examines a model on this machine. Says which attention nodes Graft computes itself, "
        "measures whether company changes a sequence's logits, how long steps take, and, with "
        "--module, what the adapter does.",
        "Example:\n  graft doctor model.gguf --module adapters/pirate\n\n"
        "Ends with status 1 when something is found that breaks a promise.\n"};
  }
  if (name == "bench") {
    return {
        "Measures throughput without HTTP. Runs requests through the scheduler, first without "
        "modules and, when some are given, with a different one per stream. `graft bench serve` "
        "measures a server.",
        "Example:\n  graft bench model.gguf -m a=adapters/pirate -m b=adapters/json --streams 8\n"};
  }
  if (name == "bench serve") return bench_serve_page();
  if (name == "graft") {
    return {about_graft(),
            "'graft COMMAND --help' describes a command.\n\n"
            "Exit status: 0 success, 1 failure, 2 wrong usage.\n"};
  }
  if (name.starts_with("keys")) return keys_page(name);
  return module_page(name);
}

std::shared_ptr<CLI::FormatterBase> make_help_formatter() {
  return std::make_shared<HelpFormatter>();
}

}  // namespace graft::cli
