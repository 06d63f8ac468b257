// Constraint: a rule for the text of an answer (a JSON schema, a grammar, a regular expression, a
// choice), compiled for one vocabulary. Immutable and shared: any thread, several requests at once.
// ConstraintState follows one answer through it and belongs to one thread at a time.
//
// Compiling takes text from a request and may take some ten milliseconds: not on the engine thread.
// The work of every later call is bounded. Nothing here throws (memory apart).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "base/result.h"
#include "core/request.h"
#include "text/constraint_source.h"
#include "text/grammar.h"
#include "text/grammar_matcher.h"
#include "text/token_mask.h"
#include "text/token_trie.h"
#include "text/vocabulary.h"

namespace graft {

class Constraint {
 public:
  // kInvalidArgument says what is wrong, too large or too ambiguous; kNotSupported names what
  // cannot be enforced. Borrows the vocabulary, whose pieces `trie` holds.
  static Result<std::shared_ptr<const Constraint>> compile(const Vocabulary& vocabulary,
                                                           std::shared_ptr<const TokenTrie> trie,
                                                           const ConstraintSource& source);
  // The same with a trie of its own, which takes longer.
  static Result<std::shared_ptr<const Constraint>> compile(const Vocabulary& vocabulary,
                                                           const ConstraintSource& source);

  const std::vector<std::string>& ignored_keywords() const { return ignored_keywords_; }

 private:
  friend class ConstraintState;

  Constraint(const Vocabulary& vocabulary, std::shared_ptr<const TokenTrie> trie, Grammar grammar)
      : vocabulary_(vocabulary), trie_(std::move(trie)), grammar_(std::move(grammar)) {}
  Status check_ambiguity() const;

  const Vocabulary& vocabulary_;
  std::shared_ptr<const TokenTrie> trie_;
  Grammar grammar_;
  std::vector<TokenId> control_tokens_;
  std::vector<std::string> ignored_keywords_;
};

class ConstraintState {
 public:
  explicit ConstraintState(std::shared_ptr<const Constraint> constraint);

  // Whether the answer may come next to `token`. End-of-generation tokens fit where the answer may
  // end; ids outside the vocabulary never fit.
  Result<bool> fits(TokenId token);
  // All that fits() is true for. Errors as for fits(): kInvalidArgument when the grammar proves too
  // ambiguous here.
  Status allowed(TokenMask& mask);

  // The token joins the answer. Error: it does not fit. Requires: not an end-of-generation token.
  Status accept(TokenId token);
  // The same for bytes that came in another way than by whole tokens.
  Status accept_text(std::string_view bytes);

  bool may_end() const { return matcher_.may_end(place_); }
  // The answer is complete and nothing can follow.
  bool must_end() const { return matcher_.must_end(place_); }

 private:
  using Place = GrammarMatcher::Place;

  bool is_readable(TokenId token) const;
  Place after(TokenId token);
  void collect(TokenMask& mask);
  void walk(TokenMask& mask);
  Status begin();
  Status check_work() const;

  std::shared_ptr<const Constraint> constraint_;
  GrammarMatcher matcher_;
  Place place_;
  std::vector<Place> path_;  // by depth in the trie
  // What was allowed at the last places, which answers come back to: the inside of a string, say.
  struct KnownMask {
    GrammarMatcher::SetId set = GrammarMatcher::kDead;
    std::uint32_t epoch = 0;  // 0 = no mask yet
    TokenMask mask;
  };
  std::array<KnownMask, 4> known_;
  std::size_t next_known_ = 0;
};

// ConstraintCompiler: compiles for one vocabulary and remembers the last constraints by content.
// Thread-safe; two threads may compile the same thing at the same time. Borrows the vocabulary.
class ConstraintCompiler {
 public:
  explicit ConstraintCompiler(const Vocabulary& vocabulary);

  // As Constraint::compile.
  Result<std::shared_ptr<const Constraint>> compile(const ConstraintSource& source) const
      GRAFT_EXCLUDES(mutex_);

 private:
  static constexpr std::size_t kMaxRemembered = 32;
  struct Entry {
    ConstraintSource source;
    std::shared_ptr<const Constraint> constraint;
  };

  std::shared_ptr<const Constraint> find(const ConstraintSource& source) const
      GRAFT_EXCLUDES(mutex_);

  const Vocabulary& vocabulary_;
  const std::shared_ptr<const TokenTrie> trie_;
  mutable Mutex mutex_;
  mutable std::vector<Entry> entries_ GRAFT_GUARDED_BY(mutex_);  // the last used one at the end
};

}  // namespace graft
