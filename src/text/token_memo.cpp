#include "text/token_memo.h"

#include <utility>

#include "base/sized_text.h"

namespace graft {
namespace {

std::string make_key(std::string_view owner, std::string_view text) {
  std::string key;
  append_sized(key, owner);
  key += text;
  return key;
}

}  // namespace

bool TokenMemo::append_known(std::string_view owner, std::string_view text,
                             std::vector<TokenId>& tokens) {
  if (text.size() > limits_.longest_text) {
    return false;
  }
  const std::string key = make_key(owner, text);
  const MutexLock lock(mutex_);
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) {
    return false;
  }
  entries_.splice(entries_.begin(), entries_, found->second);
  const std::vector<TokenId>& known = found->second->tokens;
  tokens.insert(tokens.end(), known.begin(), known.end());
  return true;
}

void TokenMemo::remember(std::string_view owner, std::string_view text,
                         std::span<const TokenId> tokens) {
  if (text.size() > limits_.longest_text) {
    return;
  }
  std::list<Entry> made;
  made.push_back({make_key(owner, text), {tokens.begin(), tokens.end()}});
  const MutexLock lock(mutex_);
  if (!by_key_.emplace(made.front().key, made.begin()).second) {
    return;  // another thread was faster
  }
  n_bytes_ += made.front().n_bytes();
  entries_.splice(entries_.begin(), made);
  while (entries_.size() > limits_.n_entries || n_bytes_ > limits_.n_bytes) {
    drop_oldest();
  }
}

void TokenMemo::drop_oldest() {
  n_bytes_ -= entries_.back().n_bytes();
  by_key_.erase(entries_.back().key);
  entries_.pop_back();
}

std::size_t TokenMemo::n_entries() const {
  const MutexLock lock(mutex_);
  return entries_.size();
}

std::size_t TokenMemo::n_bytes() const {
  const MutexLock lock(mutex_);
  return n_bytes_;
}

}  // namespace graft
