// What the flags of `graft bench serve` mean together: the URL in its parts, and contradictions.
#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <string_view>

#include "cli/flags.h"

namespace graft::cli {
namespace {

bool is_printable(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > 0x20 && c < 0x7F; });
}

Status parse_port(std::string_view text, std::uint16_t& port) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (error == std::errc() && end == text.data() + text.size() && port > 0) return {};
  return invalid_argument("URL: the port must be a number from 1 to 65535");
}

// http://HOST[:PORT][/PREFIX], HOST perhaps an IPv6 address in brackets.
Status parse_url(std::string_view url, BenchServeCommand& command) {
  static constexpr std::string_view kScheme = "http://";
  if (!url.starts_with(kScheme) || !is_printable(url) ||
      url.find_first_of("?#@") != std::string_view::npos) {
    return invalid_argument("URL: '" + std::string(url.substr(0, 200)) +
                            "' is not http://HOST[:PORT][/PREFIX]; TLS is not spoken");
  }
  url.remove_prefix(kScheme.size());
  const std::size_t slash = std::min(url.find('/'), url.size());
  std::string_view path = url.substr(slash);
  while (path.ends_with('/')) path.remove_suffix(1);
  command.base_path = path;
  std::string_view place = url.substr(0, slash);
  std::size_t host_end = place.find(':');
  if (place.starts_with('[')) {
    const std::size_t bracket = place.find(']');
    if (bracket == std::string_view::npos) return invalid_argument("URL: ']' is missing");
    command.host = place.substr(1, bracket - 1);
    place.remove_prefix(bracket + 1);
    host_end = 0;
    if (!place.empty() && place[0] != ':') return invalid_argument("URL: the host is not clear");
  } else {
    host_end = std::min(host_end, place.size());
    command.host = place.substr(0, host_end);
  }
  if (command.host.empty()) return invalid_argument("URL: the host is missing");
  place.remove_prefix(host_end);
  return place.empty() ? Status() : parse_port(place.substr(1), command.port);
}

}  // namespace

Status finish_bench_serve_flags(const RawFlags& raw, BenchServeCommand& command) {
  GRAFT_RETURN_IF_ERROR(parse_url(raw.url, command));
  command.prompt_unit = raw.prompt_unit == "tokens" ? PromptUnit::kTokens : PromptUnit::kWords;
  command.poisson = raw.arrival == "poisson";
  if (command.n_requests == 0) command.n_requests = command.n_streams;
  if (command.chat && command.prompt_unit == PromptUnit::kTokens) {
    return invalid_argument("--chat takes texts: --prompt-unit tokens is for completions");
  }
  if (command.common_prefix >= command.prompt_length) {
    return invalid_argument("--common-prefix must be smaller than --prompt-length, which is " +
                            std::to_string(command.prompt_length));
  }
  if (!command.models.empty() && !command.lora_ids.empty()) {
    return invalid_argument("--model and --lora-id are two ways to say the same; use one");
  }
  if (!is_printable(command.api_key)) {
    return invalid_argument("--api-key: only printable characters");
  }
  if (!command.more_fields.empty() &&
      !nlohmann::json::parse(command.more_fields, nullptr, false).is_object()) {
    return invalid_argument("--fields is not a JSON object");
  }
  return {};
}

}  // namespace graft::cli
