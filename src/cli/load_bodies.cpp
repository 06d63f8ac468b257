#include "cli/load_bodies.h"

#include <array>
#include <nlohmann/json.hpp>
#include <random>
#include <vector>

namespace graft::cli {
namespace {

using Json = nlohmann::ordered_json;

// Mostly one token each, with the space before them, in the vocabularies of common models.
constexpr std::array<const char*, 64> kWords = {
    "the",  "of",   "and",   "to",    "in",    "is",    "that",  "for",  "it",   "as",   "was",
    "with", "be",   "by",    "on",    "not",   "he",    "his",   "but",  "at",   "are",  "this",
    "have", "from", "or",    "had",   "an",    "they",  "which", "one",  "you",  "were", "all",
    "her",  "she",  "there", "would", "their", "we",    "him",   "been", "has",  "when", "who",
    "will", "no",   "more",  "if",    "out",   "so",    "up",    "said", "what", "its",  "about",
    "than", "into", "them",  "can",   "only",  "other", "time",  "new",  "some"};

// Low ids are often control tokens.
constexpr std::int32_t kFirstToken = 100;

std::mt19937 random_of(std::uint32_t seed, std::size_t i) {
  std::seed_seq sequence{seed, static_cast<std::uint32_t>(i), 0x9E3779B9U};
  return std::mt19937(sequence);
}

// `length` numbers below `n_kinds`. The first `n_common` depend on nothing, the next ones spell the
// seed and the number of the request, the rest is random.
std::vector<std::uint32_t> symbols(const BenchServeCommand& command, std::size_t i,
                                   std::uint32_t n_kinds) {
  std::vector<std::uint32_t> out;
  const auto length = static_cast<std::size_t>(command.prompt_length);
  const auto n_common = static_cast<std::size_t>(command.common_prefix);
  std::mt19937 common = random_of(0, 0);
  while (out.size() < n_common) out.push_back(static_cast<std::uint32_t>(common() % n_kinds));
  std::size_t number = std::size_t{command.seed} * 1000003 + i;
  for (int digit = 0; digit < 4 && out.size() < length; ++digit) {
    out.push_back(static_cast<std::uint32_t>(number % n_kinds));
    number /= n_kinds;
  }
  std::mt19937 own = random_of(command.seed, i + 1);
  while (out.size() < length) out.push_back(static_cast<std::uint32_t>(own() % n_kinds));
  return out;
}

}  // namespace

const char* LoadBodies::path() const {
  return command_.chat ? "/v1/chat/completions" : "/v1/completions";
}

std::string LoadBodies::text(std::size_t i) const {
  std::string text;
  for (const std::uint32_t word : symbols(command_, i, kWords.size())) {
    text += (text.empty() ? "" : " ") + std::string(kWords[word]);
  }
  return text;
}

std::string LoadBodies::body(std::size_t i) const {
  Json body = Json::object();
  if (!command_.models.empty()) body["model"] = command_.models[i % command_.models.size()];
  if (!command_.lora_ids.empty()) {
    const std::int32_t id = command_.lora_ids[i % command_.lora_ids.size()];
    body["lora"] = Json::array({Json{{"id", id}, {"scale", 1.0}}});
  }
  if (command_.chat) {
    body["messages"] = Json::array({Json{{"role", "user"}, {"content", text(i)}}});
  } else if (command_.prompt_unit == PromptUnit::kWords) {
    body["prompt"] = text(i);
  } else {
    const auto n_kinds = static_cast<std::uint32_t>(command_.n_vocab - kFirstToken);
    std::vector<std::uint32_t> tokens = symbols(command_, i, n_kinds);
    for (std::uint32_t& token : tokens) token += kFirstToken;
    body["prompt"] = tokens;
  }
  body["max_tokens"] = command_.max_tokens;
  body["temperature"] = command_.temperature;
  if (command_.ignore_eos) body["ignore_eos"] = true;
  body["stream"] = true;
  body["stream_options"] = {{"include_usage", true}};
  // Checked to be an object when the command line was read.
  const Json more = Json::parse(command_.more_fields, nullptr, false);
  if (more.is_object()) body.update(more);
  return body.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace graft::cli
