// The words and the layout of --help. Pure; any thread.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <string_view>

namespace graft::cli {

struct HelpPage {
  std::string description;
  std::string footer;  // examples and exit codes
};

std::string about_graft();

// Of a subcommand, or of "graft" itself. Requires: one of those names.
HelpPage help_page(std::string_view name);

// Lays a page out like a manual page: usage, description, options in groups, footer.
std::shared_ptr<CLI::FormatterBase> make_help_formatter();

}  // namespace graft::cli
