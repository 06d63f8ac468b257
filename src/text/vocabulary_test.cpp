#include "text/vocabulary.h"

#include <gguf.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "base/testing/sanitized.h"
#include "text/test_vocabulary.h"

namespace graft {
namespace {

class VocabularyTest : public testing::Test {
 protected:
  void SetUp() override {
    model_ = load_counting_model();
    ASSERT_NE(model_, nullptr);
    auto vocabulary = Vocabulary::create(llama_model_get_vocab(model_.get()));
    ASSERT_TRUE(vocabulary);
    vocabulary_ = std::move(vocabulary).value();
  }

  std::vector<TokenId> tokens(std::string_view text, bool parse_special = false) {
    auto result = vocabulary_->tokenize(text, {.parse_special = parse_special});
    EXPECT_TRUE(result);
    return result ? std::move(result).value() : std::vector<TokenId>();
  }

  ModelPtr model_;
  std::unique_ptr<Vocabulary> vocabulary_;
};

TEST_F(VocabularyTest, NoVocabularyIsRefused) {
  auto result = Vocabulary::create(nullptr);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::kNotSupported);
}

TEST_F(VocabularyTest, PiecesAreLlamas) {
  const llama_vocab* vocab = llama_model_get_vocab(model_.get());
  ASSERT_EQ(vocabulary_->size(), llama_vocab_n_tokens(vocab));
  for (TokenId token = 0; token < vocabulary_->size(); ++token) {
    char text[256];
    const std::int32_t shown = llama_token_to_piece(vocab, token, text, 256, 0, true);
    EXPECT_EQ(vocabulary_->piece(token), std::string_view(text, static_cast<std::size_t>(shown)));
    const std::int32_t hidden = llama_token_to_piece(vocab, token, text, 256, 0, false);
    EXPECT_EQ(vocabulary_->visible_piece(token, false),
              std::string_view(text, static_cast<std::size_t>(hidden)));
    EXPECT_EQ(vocabulary_->visible_piece(token, true), vocabulary_->piece(token));
    EXPECT_EQ(vocabulary_->is_control(token), llama_vocab_is_control(vocab, token));
    EXPECT_EQ(vocabulary_->is_end_of_generation(token), llama_vocab_is_eog(vocab, token));
  }
}

TEST_F(VocabularyTest, LongestPiece) {
  EXPECT_EQ(vocabulary_->longest_piece_bytes(), std::string_view("<|endoftext|>").size());
}

TEST_F(VocabularyTest, EndOfGeneration) {
  EXPECT_EQ(vocabulary_->piece(vocabulary_->eos()), "<|im_end|>");
  EXPECT_TRUE(vocabulary_->is_end_of_generation(vocabulary_->eos()));
  const auto ids = vocabulary_->end_of_generation_ids();
  EXPECT_NE(std::find(ids.begin(), ids.end(), vocabulary_->eos()), ids.end());
  for (const TokenId id : ids) {
    EXPECT_TRUE(vocabulary_->is_end_of_generation(id));
  }
}

TEST_F(VocabularyTest, IdsOutsideTheVocabularyAreNoTokens) {
  for (const TokenId id : {-1, vocabulary_->size(), INT32_MAX, INT32_MIN}) {
    EXPECT_FALSE(vocabulary_->contains(id));
    EXPECT_TRUE(vocabulary_->piece(id).empty());
    EXPECT_TRUE(vocabulary_->visible_piece(id, false).empty());
    EXPECT_FALSE(vocabulary_->is_control(id));
    EXPECT_FALSE(vocabulary_->is_end_of_generation(id));
  }
}

TEST_F(VocabularyTest, TextSurvivesTheRoundTrip) {
  std::mt19937 rng(5);
  for (int round = 0; round < 300; ++round) {
    std::string text;
    for (std::size_t n = rng() % 60; n > 0; --n) {
      text += static_cast<char>(rng() % 128);  // with NUL
    }
    EXPECT_EQ(vocabulary_->detokenize(tokens(text), true), text);
  }
  EXPECT_EQ(vocabulary_->detokenize(tokens("na\xC3\xAFve \xF0\x9F\x98\x80"), false),
            "na\xC3\xAFve \xF0\x9F\x98\x80");
  EXPECT_TRUE(tokens("").empty());
}

TEST_F(VocabularyTest, BrokenUtf8IsText) {
  for (const char* text : {"\xFF\xFE", "a\xC3", "\xE2\x82", "\xED\xA0\x80"}) {
    EXPECT_FALSE(tokens(text).empty());
  }
}

TEST_F(VocabularyTest, ControlTokensOnlyWhenAsked) {
  const TokenId eos = vocabulary_->eos();
  EXPECT_EQ(tokens("<|im_end|>", true), std::vector<TokenId>{eos});
  const std::vector<TokenId> plain = tokens("<|im_end|>", false);
  EXPECT_EQ(plain.size(), 10U);
  EXPECT_EQ(vocabulary_->detokenize(plain, false), "<|im_end|>");
  EXPECT_EQ(vocabulary_->detokenize(std::vector<TokenId>{eos}, false), "");
  EXPECT_EQ(vocabulary_->detokenize(std::vector<TokenId>{eos}, true), "<|im_end|>");
  EXPECT_TRUE(vocabulary_->special_text().occurs_in("a<|im_end|>"));
}

TEST_F(VocabularyTest, TooLongATextIsRefused) {
  auto result = vocabulary_->tokenize(std::string(kMaxTextBytes + 1, 'a'), {});
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::kInvalidArgument);
}

// Parts must give the tokens of the whole, and many control tokens must not take quadratic time.
TEST_F(VocabularyTest, ManyControlTokens) {
  std::mt19937 rng(9);
  std::string text;
  for (int i = 0; i < 3000; ++i) {
    const char* const words[] = {"<|im_end|>", "<|im_start|>", " ",  "~~",
                                 "~",          "word",         "\n", "<|im_"};
    text += words[rng() % 8];
  }
  const llama_vocab* vocab = llama_model_get_vocab(model_.get());
  std::vector<TokenId> expected(text.size());
  const std::int32_t n =
      llama_tokenize(vocab, text.data(), static_cast<std::int32_t>(text.size()), expected.data(),
                     static_cast<std::int32_t>(expected.size()), true, true);
  ASSERT_GT(n, 0);
  expected.resize(static_cast<std::size_t>(n));
  EXPECT_EQ(tokens(text, true), expected);

  std::string many;
  for (int i = 0; i < 100000; ++i) {
    many += "<|im_end|>";
  }
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(tokens(many, true).size(), 100000U);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, kSlowness * std::chrono::seconds(10));
}

std::vector<TokenId> llamas_tokens(const llama_vocab* vocab, const std::string& text,
                                   const TokenizeOptions& options) {
  std::vector<TokenId> tokens(2 * text.size() + 8);
  const std::int32_t n = llama_tokenize(vocab, text.data(), static_cast<std::int32_t>(text.size()),
                                        tokens.data(), static_cast<std::int32_t>(tokens.size()),
                                        options.add_special, options.parse_special);
  tokens.resize(static_cast<std::size_t>(std::max(n, 0)));
  return tokens;
}

// Texts full of what tokenizers cut at, with the white space that some of those take along, and
// with their beginnings and ends, which do not count.
class CutTexts {
 public:
  explicit CutTexts(const llama_vocab* vocab) {
    for (TokenId token = 0; token < llama_vocab_n_tokens(vocab); ++token) {
      const auto attributes = llama_vocab_get_attr(vocab, token);
      if ((attributes & (LLAMA_TOKEN_ATTR_CONTROL | LLAMA_TOKEN_ATTR_UNKNOWN |
                         LLAMA_TOKEN_ATTR_USER_DEFINED)) != 0) {
        words_.emplace_back(llama_vocab_get_text(vocab, token));
      }
    }
    std::shuffle(words_.begin(), words_.end(), rng_);
    words_.resize(std::min<std::size_t>(words_.size(), 24));
    const std::size_t n_special = words_.size();
    for (std::size_t i = 0; i < n_special; ++i) {
      words_.push_back(words_[i].substr(0, words_[i].size() / 2));
      words_.push_back(words_[i].substr(words_[i].size() / 2));
    }
    for (std::size_t i = 0; i < n_special / 4 + 1; ++i) {
      for (const char* plain : {" ", "  ", "\n", "\n\n", "\t", "Hello", " world", "na\xC3\xAFve",
                                "3.14", "user\n", "'s", "<", "|>"}) {
        words_.emplace_back(plain);
      }
    }
  }

  std::string next() {
    std::string text;
    for (std::size_t n = rng_() % 12; n > 0; --n) text += words_[rng_() % words_.size()];
    return text;
  }

 private:
  std::mt19937 rng_{17};
  std::vector<std::string> words_;
};

constexpr int kRounds = 100;

// Of every kind of tokenizer that llama.cpp brings a vocabulary of, alone and with a memo.
TEST(VocabulariesTest, PartsHaveTheTokensOfTheWhole) {
  std::size_t n_vocabularies = 0;
  const std::filesystem::path folder = std::string(GRAFT_LLAMA_CPP_DIR) + "/models";
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    if (file.path().extension() != ".gguf") continue;
    SCOPED_TRACE(file.path().filename().string());
    const ModelPtr model = load_vocabulary_only(file.path().string());
    ASSERT_NE(model, nullptr);
    const llama_vocab* vocab = llama_model_get_vocab(model.get());
    auto vocabulary = Vocabulary::create(vocab);
    ASSERT_TRUE(vocabulary) << vocabulary.error().message;
    ++n_vocabularies;
    TokenMemo memo;
    CutTexts texts(vocab);
    for (int round = 0; round < kRounds; ++round) {
      const std::string text = texts.next();
      for (const bool add_special : {false, true}) {
        for (const bool parse_special : {false, true}) {
          TokenizeOptions options{.add_special = add_special, .parse_special = parse_special};
          const std::vector<TokenId> expected = llamas_tokens(vocab, text, options);
          ASSERT_EQ((*vocabulary)->tokenize(text, options).value(), expected)
              << testing::PrintToString(text) << add_special << parse_special;
          options.memo = OwnedMemo{&memo, "me"};
          ASSERT_EQ((*vocabulary)->tokenize(text, options).value(), expected)
              << testing::PrintToString(text) << add_special << parse_special;
        }
      }
    }
  }
  EXPECT_GE(n_vocabularies, 10U);
}

// A vocabulary with tokens of the user that overlap: "ab" and "bc".
ModelPtr make_overlapping_model(const std::string& path) {
  const char* texts[] = {"<unk>", "<s>", "</s>", "a", "b", "c", "d", "cd", "ab", "bc"};
  const float scores[] = {0, 0, 0, -1, -2, -3, -4, 5, 0, 0};
  const std::int32_t kinds[] = {2, 3, 3, 1, 1, 1, 1, 1, 4, 4};
  const std::unique_ptr<gguf_context, decltype(&gguf_free)> file(gguf_init_empty(), &gguf_free);
  gguf_set_val_str(file.get(), "general.architecture", "llama");
  gguf_set_val_str(file.get(), "tokenizer.ggml.model", "llama");
  gguf_set_val_bool(file.get(), "tokenizer.ggml.add_space_prefix", false);
  gguf_set_arr_str(file.get(), "tokenizer.ggml.tokens", texts, std::size(texts));
  gguf_set_arr_data(file.get(), "tokenizer.ggml.scores", GGUF_TYPE_FLOAT32, scores,
                    std::size(scores));
  gguf_set_arr_data(file.get(), "tokenizer.ggml.token_type", GGUF_TYPE_INT32, kinds,
                    std::size(kinds));
  if (!gguf_write_to_file(file.get(), path.c_str(), /*only_meta=*/true)) return nullptr;
  return load_vocabulary_only(path);
}

// Which of two that overlap llama.cpp takes decides what the text behind them merges with.
TEST(VocabulariesTest, NoCutBehindTokensThatOverlap) {
  const std::string path = testing::TempDir() + "overlapping.gguf";
  const ModelPtr model = make_overlapping_model(path);
  ASSERT_NE(model, nullptr);
  const llama_vocab* vocab = llama_model_get_vocab(model.get());
  auto vocabulary = Vocabulary::create(vocab);
  ASSERT_TRUE(vocabulary) << vocabulary.error().message;
  const TokenizeOptions options{.add_special = false};
  const std::vector<TokenId> expected = llamas_tokens(vocab, "abcd", options);
  ASSERT_EQ(expected, (std::vector<TokenId>{8, 7}));  // "ab", "cd"
  EXPECT_EQ((*vocabulary)->tokenize("abcd", options).value(), expected);
  std::mt19937 rng(3);
  for (int round = 0; round < 500; ++round) {
    std::string text;
    for (std::size_t n = rng() % 12; n > 0; --n) text += "abcd"[rng() % 4];
    EXPECT_EQ((*vocabulary)->tokenize(text, options).value(), llamas_tokens(vocab, text, options));
  }
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace graft
