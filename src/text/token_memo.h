// TokenMemo: the tokens of stretches of text that were tokenised a short while ago.
//
// What a chat template writes, a system prompt and the messages of a conversation come again with
// every request; tokenising a short stretch costs a fixed 0.1 ms with some tokenizers. Bounded in
// entries and bytes, least recently used out first. What one owner sent is never found for another:
// how long it takes would tell that it had been sent. Any thread; a look-up holds a lock for well
// under a microsecond.
#pragma once

#include <cstddef>
#include <list>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "core/request.h"

namespace graft {

class TokenMemo {
 public:
  struct Limits {
    std::size_t n_entries = 4096;
    std::size_t n_bytes = std::size_t{8} << 20;
    std::size_t longest_text = std::size_t{16} << 10;  // longer ones are not kept
  };

  TokenMemo() : TokenMemo(Limits{}) {}
  explicit TokenMemo(Limits limits) : limits_(limits) {}

  // Appends the tokens of `text` to `tokens` if `owner` had them remembered.
  bool append_known(std::string_view owner, std::string_view text, std::vector<TokenId>& tokens);
  void remember(std::string_view owner, std::string_view text, std::span<const TokenId> tokens);

  std::size_t n_entries() const;
  std::size_t n_bytes() const;  // of keys and tokens, about

 private:
  struct Entry {
    std::string key;  // owner and text
    std::vector<TokenId> tokens;
    std::size_t n_bytes() const { return key.size() + tokens.size() * sizeof(TokenId); }
  };

  void drop_oldest() GRAFT_REQUIRES(mutex_);

  const Limits limits_;
  mutable Mutex mutex_;
  std::list<Entry> entries_ GRAFT_GUARDED_BY(mutex_);  // the most recently used first
  std::unordered_map<std::string_view, std::list<Entry>::iterator> by_key_
      GRAFT_GUARDED_BY(mutex_);  // keys are those of entries_
  std::size_t n_bytes_ GRAFT_GUARDED_BY(mutex_) = 0;
};

// A memo as one owner sees it.
struct OwnedMemo {
  TokenMemo* memo;  // not null
  std::string_view owner;
};

}  // namespace graft
