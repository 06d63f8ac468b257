#include "api/logprobs_json.h"

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

void append_top_object(std::string& out, std::span<const TokenLogprob> top, bool as_ids) {
  std::set<std::string> seen;
  out.push_back('{');
  for (const TokenLogprob& entry : top) {
    const std::string key = token_key(entry, as_ids);
    if (!seen.insert(key).second) continue;
    if (seen.size() > 1) out.push_back(',');
    append_json_string(out, key);
    out.push_back(':');
    append_logprob(out, entry.logprob);
  }
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

void CompletionLogprobs::add(const TokenOutput& token) {
  const TokenLogprob chosen = token.logprob.value_or(TokenLogprob{token.token, token.text, 0.0F});
  separate(tokens_);
  append_json_string(tokens_, token_key(chosen, as_ids_));
  separate(logprobs_);
  append_logprob(logprobs_, chosen.logprob);
  separate(top_);
  append_top_object(top_, token.top_logprobs, as_ids_);
  separate(offsets_);
  append_number(offsets_, n_characters_);
  n_characters_ += count_characters(token.text);
}

std::string CompletionLogprobs::take() {
  std::string out = R"({"tokens":[)" + std::exchange(tokens_, {}) + R"(],"token_logprobs":[)" +
                    std::exchange(logprobs_, {}) + R"(],"top_logprobs":[)" +
                    std::exchange(top_, {}) + R"(],"text_offset":[)" + std::exchange(offsets_, {}) +
                    "]}";
  return out;
}

}  // namespace graft::api
