#include "api/logprobs_json.h"

#include <algorithm>
#include <cstddef>
#include <set>
#include <utility>

#include "api/json_text.h"

namespace graft::api {
namespace {

void append_bytes_array(std::string& out, const std::string& bytes) {
  out.push_back('[');
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (i > 0) out.push_back(',');
    out += std::to_string(static_cast<unsigned char>(bytes[i]));
  }
  out.push_back(']');
}

std::string id_name(TokenId token) { return "token_id:" + std::to_string(token); }

void append_entry(std::string& out, const TokenLogprob& entry, bool as_ids) {
  out += R"({"token":)";
  append_json_string(out, as_ids ? id_name(entry.token) : entry.bytes);
  out += R"(,"logprob":)";
  append_logprob(out, entry.logprob);
  out += R"(,"bytes":)";
  append_bytes_array(out, entry.bytes);
}

// Keys of an object must differ; parts of characters would all become the same U+FFFD.
std::string token_key(const TokenLogprob& entry, bool as_ids) {
  const std::string& bytes = entry.bytes;
  if (as_ids) return id_name(entry.token);
  if (is_valid_utf8(bytes)) return bytes;
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string key = "bytes:";
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    key += "\\x";
    key.push_back(kDigits[byte >> 4]);
    key.push_back(kDigits[byte & 15]);
  }
  return key;
}

// The alternatives, and the token itself where it is none of them.
void append_top_object(std::string& out, std::span<const TokenLogprob> top, const TokenLogprob& own,
                       bool as_ids) {
  std::set<std::string> seen;
  const auto append = [&](const TokenLogprob& entry) {
    const std::string key = token_key(entry, as_ids);
    if (!seen.insert(key).second) return;
    if (seen.size() > 1) out.push_back(',');
    append_json_string(out, key);
    out.push_back(':');
    append_logprob(out, entry.logprob);
  };
  out.push_back('{');
  for (const TokenLogprob& entry : top) append(entry);
  append(own);
  out.push_back('}');
}

void separate(std::string& list) {
  if (!list.empty()) list.push_back(',');
}

}  // namespace

void append_chat_logprob(std::string& out, const TokenOutput& token, bool as_ids) {
  append_entry(out, token.logprob.value_or(TokenLogprob{token.token, token.text, 0.0F}), as_ids);
  out += R"(,"top_logprobs":[)";
  for (std::size_t i = 0; i < token.top_logprobs.size(); ++i) {
    if (i > 0) out.push_back(',');
    append_entry(out, token.top_logprobs[i], as_ids);
    out.push_back('}');
  }
  out += "]}";
}

namespace {

std::span<const TokenLogprob> first_of(const std::vector<TokenLogprob>& top, std::int32_t n) {
  return std::span(top).first(std::min(top.size(), static_cast<std::size_t>(n)));
}

void append_ranked(std::string& out, const TokenLogprob& token, std::int32_t rank) {
  out += "\"" + std::to_string(token.token) + R"(":{"logprob":)";
  append_logprob(out, token.logprob);
  out += R"(,"rank":)" + std::to_string(rank) + R"(,"decoded_token":)";
  append_json_string(out, token.bytes);
  out += "}";
}

}  // namespace

void append_prompt_logprob(std::string& out, const PromptToken& token, std::int32_t n_top) {
  if (token.rank == 0) {
    out += "null";
    return;
  }
  out.push_back('{');
  append_ranked(out, token.token, token.rank);
  std::int32_t rank = 0;
  for (const TokenLogprob& other : first_of(token.top_logprobs, n_top)) {
    ++rank;
    if (other.token == token.token.token) continue;
    out.push_back(',');
    append_ranked(out, other, rank);
  }
  out.push_back('}');
}

void CompletionLogprobs::add(const TokenOutput& token) {
  const TokenLogprob chosen = token.logprob.value_or(TokenLogprob{token.token, token.text, 0.0F});
  add_entry(chosen, token.top_logprobs, n_characters_);
  n_characters_ += count_characters(token.text);
}

void CompletionLogprobs::add(const PromptToken& token, std::int32_t n_top) {
  const std::int64_t offset = n_prompt_characters_;
  n_prompt_characters_ += count_characters(token.text);
  if (token.rank > 0) return add_entry(token.token, first_of(token.top_logprobs, n_top), offset);
  // Nothing stands before the first one.
  separate(tokens_);
  append_json_string(tokens_, token_key(token.token, as_ids_));
  separate(logprobs_);
  logprobs_ += "null";
  separate(top_);
  top_ += "null";
  separate(offsets_);
  append_number(offsets_, offset);
}

void CompletionLogprobs::add_entry(const TokenLogprob& token, std::span<const TokenLogprob> top,
                                   std::int64_t offset) {
  separate(tokens_);
  append_json_string(tokens_, token_key(token, as_ids_));
  separate(logprobs_);
  append_logprob(logprobs_, token.logprob);
  separate(top_);
  append_top_object(top_, top, token, as_ids_);
  separate(offsets_);
  append_number(offsets_, offset);
}

std::string CompletionLogprobs::take() {
  std::string out = R"({"tokens":[)" + std::exchange(tokens_, {}) + R"(],"token_logprobs":[)" +
                    std::exchange(logprobs_, {}) + R"(],"top_logprobs":[)" +
                    std::exchange(top_, {}) + R"(],"text_offset":[)" + std::exchange(offsets_, {}) +
                    "]}";
  return out;
}

}  // namespace graft::api
