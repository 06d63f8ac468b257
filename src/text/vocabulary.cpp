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
// quadratic in how many it finds; what lies between is tokenised by itself. Texts are therefore
// handed over in parts, cut behind such a token. Only where it is certain that llama.cpp finds this
// token there: no other overlaps it, and no white space touches it that a token beside it could
// take. After that many uncertain ones the text is cut all the same.
constexpr std::size_t kUncertainTokensPerPart = 1024;

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

// Collects the cuts from tokens found in order.
class Cutter {
 public:
  Cutter(std::string_view text, bool strips_space) : text_(text), strips_space_(strips_space) {}

  void add(SpecialText::Match match) {
    if (match.begin < group_.end) {
      group_.end = std::max(group_.end, match.end);
      ++n_overlapping_;
      return;
    }
    end_group();
    group_ = match;
    n_overlapping_ = 1;
  }

  // Ascending positions inside the text.
  std::vector<std::size_t> finish() {
    end_group();
    return std::move(cuts_);
  }

 private:
  void end_group() {
    if (n_overlapping_ == 0 || group_.end == text_.size()) {
      return;
    }
    n_uncertain_ += n_overlapping_;
    if ((n_overlapping_ == 1 && !touches_space()) || n_uncertain_ >= kUncertainTokensPerPart) {
      cuts_.push_back(group_.end);
      n_uncertain_ = 0;
    }
  }

  bool touches_space() const {
    return strips_space_ && (is_space(text_[group_.begin]) || is_space(text_[group_.end - 1]) ||
                             is_space(text_[group_.end]));
  }

  const std::string_view text_;
  const bool strips_space_;
  SpecialText::Match group_;       // of tokens that overlap
  std::size_t n_overlapping_ = 0;  // in the group
  std::size_t n_uncertain_ = 0;    // since the last cut
  std::vector<std::size_t> cuts_;
};

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
    vocabulary->find_frame();
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
  std::vector<std::string> user_texts;
  for (TokenId token = 0; token < n_tokens; ++token) {
    piece_begin_.push_back(bytes_.size());
    append_piece(vocab_, token, true, bytes_);
    longest_piece_bytes_ = std::max(longest_piece_bytes_, bytes_.size() - piece_begin_.back());
    const auto attributes = llama_vocab_get_attr(vocab_, token);
    std::uint8_t kind = 0;
    if ((attributes & (LLAMA_TOKEN_ATTR_CONTROL | LLAMA_TOKEN_ATTR_UNKNOWN)) != 0) {
      kind |= kHidden;
      special_texts.emplace_back(llama_vocab_get_text(vocab_, token));
    } else if ((attributes & LLAMA_TOKEN_ATTR_USER_DEFINED) != 0) {
      user_texts.emplace_back(llama_vocab_get_text(vocab_, token));
    }
    if ((attributes & (LLAMA_TOKEN_ATTR_LSTRIP | LLAMA_TOKEN_ATTR_RSTRIP)) != 0) {
      strips_space_ = true;
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
  user_text_ = SpecialText(user_texts);
  user_texts.insert(user_texts.end(), special_texts.begin(), special_texts.end());
  user_and_special_text_ = SpecialText(std::move(user_texts));
  special_text_ = SpecialText(std::move(special_texts));
  bos_ = llama_vocab_bos(vocab_);
  eos_ = llama_vocab_eos(vocab_);
  eot_ = llama_vocab_eot(vocab_);
  adds_bos_ = llama_vocab_get_add_bos(vocab_) && bos_ >= 0;
}

// Each kind of tokenizer has rules of its own for these; a text with and without them tells.
void Vocabulary::find_frame() {
  std::vector<TokenId> bare;
  std::vector<TokenId> framed;
  const bool works = append_tokens("a", false, false, bare) &&
                     append_tokens("a", true, false, framed) && !bare.empty();
  const auto text = std::search(framed.begin(), framed.end(), bare.begin(), bare.end());
  if (works && text != framed.end()) {
    begin_tokens_.assign(framed.begin(), text);
    end_tokens_.assign(text + std::ssize(bare), framed.end());
    return;
  }
  // A vocabulary of something else than letters.
  if (adds_bos_) {
    begin_tokens_ = {bos_};
  }
  if (llama_vocab_get_add_eos(vocab_) && eos_ >= 0) {
    end_tokens_ = {eos_};
  }
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
  const SpecialText& cut_text = options.parse_special ? user_and_special_text_ : user_text_;
  Cutter cutter(text, strips_space_);
  cut_text.for_each(text, [&](SpecialText::Match match) { cutter.add(match); });
  const std::vector<std::size_t> cuts = cutter.finish();
  std::vector<TokenId> tokens;
  if (options.add_special) {
    tokens = begin_tokens_;
  }
  std::size_t begin = 0;
  for (const std::size_t cut : cuts) {
    GRAFT_RETURN_IF_ERROR(append_part(text.substr(begin, cut - begin), options, tokens));
    begin = cut;
  }
  GRAFT_RETURN_IF_ERROR(append_part(text.substr(begin), options, tokens));
  if (options.add_special) {
    tokens.insert(tokens.end(), end_tokens_.begin(), end_tokens_.end());
  }
  return tokens;
}

Status Vocabulary::append_part(std::string_view text, const TokenizeOptions& options,
                               std::vector<TokenId>& tokens) const {
  // What a memo holds is tokenised with control tokens.
  if (!options.memo || !options.parse_special) {
    return append_tokens(text, false, options.parse_special, tokens);
  }
  const auto& [memo, owner] = *options.memo;
  if (memo->append_known(owner, text, tokens)) {
    return {};
  }
  const std::size_t old_size = tokens.size();
  GRAFT_RETURN_IF_ERROR(append_tokens(text, false, true, tokens));
  memo->remember(owner, text, std::span(tokens).subspan(old_size));
  return {};
}

Status Vocabulary::append_tokens(std::string_view text, bool add_special, bool parse_special,
                                 std::vector<TokenId>& tokens) const {
  const std::size_t old_size = tokens.size();
  const auto n_bytes = static_cast<std::int32_t>(text.size());
  try {
    // Hardly ever more tokens than bytes; else the call says how many.
    std::int32_t room = n_bytes + 16;
    std::int32_t n = 0;
    for (int attempt = 0; attempt < 2; ++attempt) {
      tokens.resize(old_size + static_cast<std::size_t>(room));
      n = llama_tokenize(vocab_, text.data(), n_bytes, tokens.data() + old_size, room, add_special,
                         parse_special);
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
