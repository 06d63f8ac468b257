// Constraints on answers: the first byte chooses what the rest is (schema, lenient schema, grammar,
// regular expression, choices). Any text gives a constraint or an error; a constraint is followed
// for a while, and what the mask allows is what fits.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "text/constraint.h"
#include "text/test_vocabulary.h"

namespace {

using graft::Constraint;
using graft::ConstraintSource;
using graft::ConstraintState;
using graft::TokenId;

struct Reader {
  graft::ModelPtr model = graft::load_counting_model();
  std::unique_ptr<graft::Vocabulary> vocabulary =
      std::move(*graft::Vocabulary::create(llama_model_get_vocab(model.get())));
  std::shared_ptr<const graft::TokenTrie> trie = std::make_shared<graft::TokenTrie>(*vocabulary);
};

const Reader& reader() {
  static const Reader* const kReader = new Reader();
  return *kReader;
}

void require(bool condition) {
  if (!condition) std::abort();
}

ConstraintSource source_of(std::uint8_t kind, std::string text) {
  using Kind = ConstraintSource::Kind;
  switch (kind % 5) {
    case 0: return {.kind = Kind::kJsonSchema, .text = std::move(text)};
    case 1: return {.kind = Kind::kJsonSchema, .text = std::move(text), .lenient = true};
    case 2: return {.kind = Kind::kGrammar, .text = std::move(text)};
    case 3: return {.kind = Kind::kRegex, .text = std::move(text)};
    default: break;
  }
  ConstraintSource choices{.kind = Kind::kChoice};
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    choices.choices.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return choices;
}

void follow(const std::shared_ptr<const Constraint>& constraint, std::uint32_t seed) {
  const graft::Vocabulary& vocabulary = *reader().vocabulary;
  ConstraintState state(constraint);
  graft::TokenMask mask;
  for (int step = 0; step < 8; ++step) {
    if (!state.allowed(mask)) return;
    TokenId next = -1;
    for (TokenId i = 0; i < vocabulary.size(); ++i) {
      const auto token = static_cast<TokenId>((static_cast<std::uint32_t>(i) + seed) %
                                              static_cast<std::uint32_t>(vocabulary.size()));
      const auto fits = state.fits(token);
      if (!fits) return;
      require(*fits == mask.contains(token));
      if (*fits && next < 0 && !vocabulary.is_end_of_generation(token)) next = token;
    }
    if (next < 0) return;
    require(static_cast<bool>(state.accept(next)));
    seed = seed * 1664525U + 1013904223U;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  if (size == 0) return 0;
  const auto* text = reinterpret_cast<const char*>(bytes) + 1;
  const auto made = Constraint::compile(*reader().vocabulary, reader().trie,
                                        source_of(bytes[0], std::string(text, size - 1)));
  if (made) {
    follow(*made, static_cast<std::uint32_t>(size));
  } else {
    require(made.error().code == graft::ErrorCode::kInvalidArgument ||
            made.error().code == graft::ErrorCode::kNotSupported);
  }
  return 0;
}
