// TriggerFinder: finds in an answer, while it grows, where a grammar starts. Looks at new text and
// a short end of the old, whatever the answer's length. One per answer; used by one thread at a
// time.
#pragma once

#include <cstddef>
#include <optional>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/answer_format.h"
#include "text/stream_decoder.h"

namespace graft {

class TriggerFinder {
 public:
  // kInvalidArgument for an empty or overlong word and a pattern that is none.
  static Result<TriggerFinder> create(const std::vector<GrammarTrigger>& triggers);

  // The answer's next text. When a trigger completes in it: all text from where the grammar starts.
  std::optional<std::string> push(std::string_view text);

 private:
  // No trigger is longer.
  static constexpr std::size_t kTailBytes = 192;

  explicit TriggerFinder(const std::vector<std::string>& words) : words_(words) {}
  std::optional<std::size_t> find_pattern() const;

  StopMatcher words_;
  std::vector<std::regex> patterns_;
  std::string tail_;      // the end of the answer, at least kTailBytes if it is as long
  bool is_whole_ = true;  // tail_ is the whole answer
};

}  // namespace graft
