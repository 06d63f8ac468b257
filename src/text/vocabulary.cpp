#include "text/vocabulary.h"

#include <llama.h>

#include <algorithm>
#include <exception>
#include <limits>
#include <type_traits>
#include <utility>

namespace graft {
namespace {

static_assert(std::is_same_v<llama_token, TokenId>);
static_assert(kMaxTextBytes < static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max()));

// Before anything else llama.cpp cuts the text at control and user-defined tokens, in time
// quadratic in how many it finds. Longer texts are therefore handed over in parts, cut behind such
// a token: nothing merges across it. White space behind a token may belong to it, so a cut there is
// avoided up to a harder limit.
constexpr std::size_t kSoftTokensPerPart = 256;
constexpr std::size_t kHardTokensPerPart = 1024;

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

// Ascending positions at which `text` may be cut.
std::vector<std::size_t> cuts_of(std::string_view text, const SpecialText& cut_text) {
  std::vector<std::size_t> cuts;
  if (text.size() < kSoftTokensPerPart) {
    return cuts;
  }
  std::size_t n_since_cut = 0;
  std::size_t end = 0;
  cut_text.for_each(text, [&](SpecialText::Match match) {
    if (match.begin < end || match.end == text.size()) {
      return;
    }
    end = match.end;
    ++n_since_cut;
    if (n_since_cut >= kHardTokensPerPart ||
        (n_since_cut >= kSoftTokensPerPart && !is_space(text[end]))) {
      cuts.push_back(end);
      n_since_cut = 0;
    }
  });
  return cuts;
}

void append_piece(const llama_vocab* vocab, TokenId token, bool special, std::string& out) {
  const std::size_t begin = out.size();
  out.resize(begin + 64);
  std::int32_t n = llama_token_to_piece(vocab, token, out.data() + begin, 64, 0, special);
  if (n < 0) {
    out.resize(begin + static_cast<std::size_t>(-n));
    n = llama_token_to_piece(vocab, token, out.data() + begin, -n, 0, special);
  }
  out.resize(begin + static_cast<std::size_t>(std::max(n, 0)));
}

}  // namespace

Result<std::unique_ptr<Vocabulary>> Vocabulary::create(const llama_vocab* vocab) {
  if (vocab == nullptr || llama_vocab_type(vocab) == LLAMA_VOCAB_TYPE_NONE) {
    return not_supported("the model file has no tokenizer");
  }
  std::unique_ptr<Vocabulary> vocabulary(new Vocabulary(vocab));
  try {
    vocabulary->read_tokens();
  } catch (const std::exception& e) {
    return data_corrupt(std::string("the model's vocabulary cannot be read: ") + e.what());
  }
  return vocabulary;
}

void Vocabulary::read_tokens() {
  const std::int32_t n_tokens = llama_vocab_n_tokens(vocab_);
  kinds_.reserve(static_cast<std::size_t>(n_tokens));
  piece_begin_.reserve(static_cast<std::size_t>(n_tokens) + 1);
  std::vector<std::string> special_texts;
  std::vector<std::string> cut_texts;
  for (TokenId token = 0; token < n_tokens; ++token) {
    piece_begin_.push_back(bytes_.size());
    append_piece(vocab_, token, true, bytes_);
    longest_piece_bytes_ = std::max(longest_piece_bytes_, bytes_.size() - piece_begin_.back());
    const auto attributes = llama_vocab_get_attr(vocab_, token);
    std::uint8_t kind = 0;
    if ((attributes & (LLAMA_TOKEN_ATTR_CONTROL | LLAMA_TOKEN_ATTR_UNKNOWN)) != 0) {
      kind |= kHidden;
      special_texts.emplace_back(llama_vocab_get_text(vocab_, token));
    }
    if ((attributes & LLAMA_TOKEN_ATTR_USER_DEFINED) != 0) {
      cut_texts.emplace_back(llama_vocab_get_text(vocab_, token));
    }
    if (llama_vocab_is_control(vocab_, token)) {
      kind |= kControl;
    }
    if (llama_vocab_is_eog(vocab_, token)) {
      kind |= kEndOfGeneration;
      end_of_generation_ids_.push_back(token);
    }
    kinds_.push_back(kind);
  }
  piece_begin_.push_back(bytes_.size());
  cut_texts.insert(cut_texts.end(), special_texts.begin(), special_texts.end());
  cut_text_ = SpecialText(std::move(cut_texts));
  special_text_ = SpecialText(std::move(special_texts));
  bos_ = llama_vocab_bos(vocab_);
  eos_ = llama_vocab_eos(vocab_);
  eot_ = llama_vocab_eot(vocab_);
  adds_bos_ = llama_vocab_get_add_bos(vocab_) && bos_ >= 0;
  adds_eos_ = llama_vocab_get_add_eos(vocab_) && eos_ >= 0;
}

bool Vocabulary::is_end_of_generation(TokenId token) const {
  return contains(token) && (kinds_[static_cast<std::size_t>(token)] & kEndOfGeneration) != 0;
}

bool Vocabulary::is_control(TokenId token) const {
  return contains(token) && (kinds_[static_cast<std::size_t>(token)] & kControl) != 0;
}

std::string_view Vocabulary::piece(TokenId token) const {
  if (!contains(token)) {
    return {};
  }
  const auto index = static_cast<std::size_t>(token);
  const std::size_t begin = piece_begin_[index];
  return std::string_view(bytes_).substr(begin, piece_begin_[index + 1] - begin);
}

std::string_view Vocabulary::visible_piece(TokenId token, bool show_special) const {
  const bool hidden = contains(token) && (kinds_[static_cast<std::size_t>(token)] & kHidden) != 0;
  return hidden && !show_special ? std::string_view{} : piece(token);
}

Result<std::vector<TokenId>> Vocabulary::tokenize(std::string_view text,
                                                  TokenizeOptions options) const {
  if (text.size() > kMaxTextBytes) {
    return invalid_argument("a text of " + std::to_string(text.size()) +
                            " bytes is longer than the limit of " + std::to_string(kMaxTextBytes) +
                            " bytes");
  }
  std::vector<TokenId> tokens;
  const std::vector<std::size_t> cuts = cuts_of(text, cut_text_);
  if (cuts.empty()) {
    GRAFT_RETURN_IF_ERROR(append_tokens(text, options, tokens));
    return tokens;
  }
  const bool add_special = std::exchange(options.add_special, false);
  if (add_special && adds_bos_) {
    tokens.push_back(bos_);
  }
  std::size_t begin = 0;
  for (const std::size_t cut : cuts) {
    GRAFT_RETURN_IF_ERROR(append_tokens(text.substr(begin, cut - begin), options, tokens));
    begin = cut;
  }
  GRAFT_RETURN_IF_ERROR(append_tokens(text.substr(begin), options, tokens));
  if (add_special && adds_eos_) {
    tokens.push_back(eos_);
  }
  return tokens;
}

Status Vocabulary::append_tokens(std::string_view text, TokenizeOptions options,
                                 std::vector<TokenId>& tokens) const {
  const std::size_t old_size = tokens.size();
  const auto n_bytes = static_cast<std::int32_t>(text.size());
  try {
    // Hardly ever more tokens than bytes; else the call says how many.
    std::int32_t room = n_bytes + 16;
    std::int32_t n = 0;
    for (int attempt = 0; attempt < 2; ++attempt) {
      tokens.resize(old_size + static_cast<std::size_t>(room));
      n = llama_tokenize(vocab_, text.data(), n_bytes, tokens.data() + old_size, room,
                         options.add_special, options.parse_special);
      if (n >= 0 || n == std::numeric_limits<std::int32_t>::min()) {
        break;
      }
      room = -n;
    }
    if (n < 0) {
      return internal_error("the text makes more tokens than can be counted");
    }
    tokens.resize(old_size + static_cast<std::size_t>(n));
  } catch (const std::exception& e) {
    return internal_error(std::string("the tokenizer failed: ") + e.what());
  }
  return {};
}

std::string Vocabulary::detokenize(std::span<const TokenId> tokens, bool show_special) const {
  std::string text;
  for (const TokenId token : tokens) {
    text += visible_piece(token, show_special);
  }
  return text;
}

}  // namespace graft
