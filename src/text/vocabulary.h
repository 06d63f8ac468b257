// Vocabulary: a model's tokens as bytes, text -> token ids, token ids -> text.
//
// The bytes of every token (its piece) are computed once, so decoding a token is a table look-up.
// Immutable after creation: any thread may call anything. Borrows the llama_vocab, which belongs to
// the model and must outlive this object.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "core/request.h"
#include "text/special_text.h"
#include "text/token_memo.h"

struct llama_vocab;

namespace graft {

// The longest text that is tokenised at once, also the limit of a request's body.
inline constexpr std::size_t kMaxTextBytes = std::size_t{8} << 20;

struct TokenizeOptions {
  bool add_special = true;     // begin (and end) tokens that the model asks for
  bool parse_special = false;  // "<|im_end|>" in the text becomes that control token
  // Where to find, and leave, the tokens of what stands between control tokens.
  std::optional<OwnedMemo> memo = {};
};

class Vocabulary {
 public:
  static Result<std::unique_ptr<Vocabulary>> create(const llama_vocab* vocab);

  std::int32_t size() const { return static_cast<std::int32_t>(kinds_.size()); }
  bool contains(TokenId token) const { return token >= 0 && token < size(); }

  // -1 where the model has no such token.
  TokenId bos() const { return bos_; }
  TokenId eos() const { return eos_; }
  TokenId eot() const { return eot_; }
  // Whether the model wants bos() at the start of every text.
  bool adds_bos() const { return adds_bos_; }

  // A text of n bytes has at least n / longest_piece_bytes() tokens (unless the tokenizer drops
  // characters), which tells a hopelessly long one before it costs anything.
  std::size_t longest_piece_bytes() const { return longest_piece_bytes_; }

  // Ascending ids of the tokens that end a generation (eos, end of turn, ...).
  std::span<const TokenId> end_of_generation_ids() const { return end_of_generation_ids_; }

  // For the four below: ids outside the vocabulary are no tokens: false, or an empty piece.
  bool is_end_of_generation(TokenId token) const;
  bool is_control(TokenId token) const;
  // The token's raw bytes; perhaps not whole UTF-8.
  std::string_view piece(TokenId token) const;
  // The same, but nothing for control tokens unless `show_special`.
  std::string_view visible_piece(TokenId token, bool show_special) const;

  // Any bytes are text, NUL included; broken UTF-8 tokenises to something, never fails.
  Result<std::vector<TokenId>> tokenize(std::string_view text, TokenizeOptions options) const;

  // The pieces in a row: the bytes that a StreamDecoder sees.
  std::string detokenize(std::span<const TokenId> tokens, bool show_special) const;

  // The texts of the control tokens, to find them in what a request brings.
  const SpecialText& special_text() const { return special_text_; }

 private:
  enum Kind : std::uint8_t { kControl = 1, kHidden = 2, kEndOfGeneration = 4 };

  explicit Vocabulary(const llama_vocab* vocab) : vocab_(vocab) {}
  void read_tokens();
  void find_frame();
  Status append_part(std::string_view text, const TokenizeOptions& options,
                     std::vector<TokenId>& tokens) const;
  Status append_tokens(std::string_view text, bool add_special, bool parse_special,
                       std::vector<TokenId>& tokens) const;

  const llama_vocab* vocab_;
  std::string bytes_;                     // all pieces in a row
  std::vector<std::size_t> piece_begin_;  // size() + 1 offsets into bytes_
  std::size_t longest_piece_bytes_ = 1;
  std::vector<std::uint8_t> kinds_;  // bits of Kind
  std::vector<TokenId> end_of_generation_ids_;
  SpecialText special_text_;
  // Where llama.cpp cuts a text: user-defined tokens; with parse_special those above as well.
  SpecialText user_text_;
  SpecialText user_and_special_text_;
  bool strips_space_ = false;  // a token takes the white space before or behind it
  TokenId bos_ = -1;
  TokenId eos_ = -1;
  TokenId eot_ = -1;
  bool adds_bos_ = false;
  std::vector<TokenId> begin_tokens_;  // what add_special puts before a text
  std::vector<TokenId> end_tokens_;    // and behind it
};

}  // namespace graft
