#include "text/constraint.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "text/constraint_grammar.h"

namespace graft {
namespace {

// Of the exploration before a constraint is accepted: sets of stacks that are looked at, steps in
// all, and the work that one step may take. A token makes many steps.
constexpr std::size_t kExploredSets = 256;
constexpr int kExploredSteps = 1 << 13;
constexpr std::int64_t kMaxStepWork = kMaxMatcherWork / 8;

Error too_ambiguous() {
  return invalid_argument(
      "the grammar is too ambiguous: a text can be read in too many ways at once");
}

}  // namespace

Result<std::shared_ptr<const Constraint>> Constraint::compile(const Vocabulary& vocabulary,
                                                              std::shared_ptr<const TokenTrie> trie,
                                                              const ConstraintSource& source) {
  try {
    GRAFT_ASSIGN_OR_RETURN(ConstraintGrammar made, make_constraint_grammar(source, vocabulary));
    GRAFT_ASSIGN_OR_RETURN(Grammar grammar, Grammar::create(made.rules));
    std::shared_ptr<Constraint> constraint(
        new Constraint(vocabulary, std::move(trie), std::move(grammar)));
    constraint->control_tokens_ = source.control_tokens;
    std::erase_if(constraint->control_tokens_,
                  [&](TokenId token) { return !vocabulary.contains(token); });
    constraint->ignored_keywords_ = std::move(made.ignored_keywords);
    GRAFT_RETURN_IF_ERROR(constraint->check_ambiguity());
    ConstraintState state(constraint);
    TokenMask mask;
    GRAFT_RETURN_IF_ERROR(state.allowed(mask));
    bool any = state.may_end();
    for (TokenId token = 0; token < vocabulary.size() && !any; ++token) any = mask.contains(token);
    if (!any) return invalid_argument("no token of the model can begin such an answer");
    return std::shared_ptr<const Constraint>(std::move(constraint));
  } catch (const std::exception& e) {
    return internal_error(std::string("the constraint cannot be compiled: ") + e.what());
  }
}

Result<std::shared_ptr<const Constraint>> Constraint::compile(const Vocabulary& vocabulary,
                                                              const ConstraintSource& source) {
  return compile(vocabulary, std::make_shared<TokenTrie>(vocabulary), source);
}

// Looks at the sets of stacks that come first, by every character: what explodes mostly does so
// soon. What does not is caught when it happens, by the same count of work.
Status Constraint::check_ambiguity() const {
  GrammarMatcher matcher(grammar_);
  std::vector<GrammarMatcher::SetId> seen = {matcher.start().set};
  int n_steps = 0;
  for (std::size_t i = 0; i < seen.size() && n_steps < kExploredSteps; ++i) {
    for (std::uint32_t c = 0; c < grammar_.n_classes() && !matcher.exhausted(); ++c, ++n_steps) {
      matcher.allow_work(kMaxStepWork);
      const GrammarMatcher::SetId next = matcher.next_set(seen[i], c);
      const bool is_new = next != GrammarMatcher::kDead && seen.size() < kExploredSets &&
                          std::find(seen.begin(), seen.end(), next) == seen.end();
      if (is_new) seen.push_back(next);
    }
    if (matcher.exhausted()) return too_ambiguous();
  }
  return {};
}

ConstraintState::ConstraintState(std::shared_ptr<const Constraint> constraint)
    : constraint_(std::move(constraint)),
      matcher_(constraint_->grammar_),
      place_(matcher_.start()),
      path_(constraint_->trie_->max_depth() + 1) {}

Status ConstraintState::check_work() const {
  return matcher_.exhausted() ? Status(too_ambiguous()) : Status();
}

bool ConstraintState::is_readable(TokenId token) const {
  const auto& allowed = constraint_->control_tokens_;
  return !constraint_->vocabulary_.visible_piece(token, false).empty() ||
         std::find(allowed.begin(), allowed.end(), token) != allowed.end();
}

ConstraintState::Place ConstraintState::after(TokenId token) {
  const Vocabulary& vocabulary = constraint_->vocabulary_;
  if (!vocabulary.contains(token) || vocabulary.is_end_of_generation(token)) return {};
  const Place as_token = matcher_.next_token(place_, token);
  if (!is_readable(token)) return as_token;
  const Place as_text = matcher_.next(place_, vocabulary.piece(token));
  if (!matcher_.is_viable(as_text)) return as_token;
  // Inside a character a token symbol cannot be next; such a reading comes first.
  if (!as_text.partial.empty()) return as_token.is_dead() ? as_text : as_token;
  return matcher_.either(as_token, as_text);
}

Result<bool> ConstraintState::fits(TokenId token) {
  if (constraint_->vocabulary_.is_end_of_generation(token)) return may_end();
  place_ = matcher_.begin(place_);
  const bool fits = !after(token).is_dead();
  GRAFT_RETURN_IF_ERROR(check_work());
  return fits;
}

Status ConstraintState::accept(TokenId token) {
  place_ = matcher_.begin(place_);
  const Place next = after(token);
  GRAFT_RETURN_IF_ERROR(check_work());
  if (next.is_dead()) return internal_error("a token does not fit the grammar");
  place_ = next;
  return {};
}

Status ConstraintState::accept_text(std::string_view bytes) {
  place_ = matcher_.begin(place_);
  const Place next = matcher_.next(place_, bytes);
  GRAFT_RETURN_IF_ERROR(check_work());
  if (!matcher_.is_viable(next)) return internal_error("a text does not fit the grammar");
  place_ = next;
  return {};
}

Status ConstraintState::allowed(TokenMask& mask) {
  place_ = matcher_.begin(place_);
  if (place_.partial.empty()) {
    for (const KnownMask& known : known_) {
      if (known.set != place_.set || known.epoch != matcher_.epoch()) continue;
      mask = known.mask;
      return {};
    }
  }
  collect(mask);
  GRAFT_RETURN_IF_ERROR(check_work());
  if (place_.partial.empty()) {
    known_[next_known_] = {place_.set, matcher_.epoch(), mask};
    next_known_ = (next_known_ + 1) % known_.size();
  }
  return {};
}

void ConstraintState::collect(TokenMask& mask) {
  const Vocabulary& vocabulary = constraint_->vocabulary_;
  mask.reset(vocabulary.size());
  if (may_end()) {
    for (const TokenId token : vocabulary.end_of_generation_ids()) mask.add(token);
  }
  walk(mask);
  for (const TokenId token : constraint_->control_tokens_) {
    if (!after(token).is_dead()) mask.add(token);
  }
  for (const GrammarSymbol& symbol : matcher_.token_symbols(place_)) {
    if (symbol.kind == GrammarSymbol::kToken) {
      const auto token = static_cast<TokenId>(symbol.value);
      if (!vocabulary.is_end_of_generation(token)) mask.add(token);
      continue;
    }
    for (TokenId token = 0; token < vocabulary.size(); ++token) {
      const bool is_other = static_cast<std::uint32_t>(token) != symbol.value;
      if (is_other && !vocabulary.is_end_of_generation(token)) mask.add(token);
    }
  }
}

// Down the trie as far as the text fits.
void ConstraintState::walk(TokenMask& mask) {
  const TokenTrie& trie = *constraint_->trie_;
  const auto nodes = trie.nodes();
  path_[0] = place_;
  for (std::size_t i = 0; i < nodes.size() && !matcher_.exhausted();) {
    const TokenTrie::Node& node = nodes[i];
    const Place place = matcher_.next(path_[node.depth - 1], node.byte);
    if (!matcher_.is_viable(place)) {
      i = node.end;
      continue;
    }
    path_[node.depth] = place;
    for (const TokenId token : trie.tokens(node)) mask.add(token);
    ++i;
  }
}

ConstraintCompiler::ConstraintCompiler(const Vocabulary& vocabulary)
    : vocabulary_(vocabulary), trie_(std::make_shared<TokenTrie>(vocabulary)) {}

std::shared_ptr<const Constraint> ConstraintCompiler::find(const ConstraintSource& source) const {
  const MutexLock lock(mutex_);
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const Entry& entry) { return entry.source == source; });
  if (found == entries_.end()) return nullptr;
  std::rotate(found, found + 1, entries_.end());
  return entries_.back().constraint;
}

Result<std::shared_ptr<const Constraint>> ConstraintCompiler::compile(
    const ConstraintSource& source) const {
  if (auto known = find(source)) return known;
  GRAFT_ASSIGN_OR_RETURN(auto made, Constraint::compile(vocabulary_, trie_, source));
  const MutexLock lock(mutex_);
  if (entries_.size() == kMaxRemembered) entries_.erase(entries_.begin());
  entries_.push_back({source, made});
  return made;
}

}  // namespace graft
