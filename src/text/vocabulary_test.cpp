#include "text/vocabulary.h"

#include <gtest/gtest.h>

#include <chrono>
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

}  // namespace
}  // namespace graft
