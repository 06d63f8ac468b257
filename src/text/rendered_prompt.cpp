#include <algorithm>
#include <utility>

#include "text/chat_template.h"

namespace graft {
namespace {

// For each part: whether the text of a control token lies in it or reaches into it.
std::vector<bool> touched_parts(const Vocabulary& vocabulary, const RenderedPrompt& prompt,
                                const std::string& text) {
  std::vector<std::size_t> ends;
  std::size_t end = 0;
  for (const PromptPart& part : prompt.parts) {
    end += part.text.size();
    ends.push_back(end);
  }
  std::vector<bool> touched(prompt.parts.size(), false);
  std::size_t first = 0;  // the part in which the match begins; matches come in order
  vocabulary.special_text().for_each(text, [&](SpecialText::Match match) {
    while (ends[first] <= match.begin) {
      ++first;
    }
    for (std::size_t part = first; part < ends.size(); ++part) {
      touched[part] = true;
      if (ends[part] >= match.end) {
        break;
      }
    }
  });
  return touched;
}

// Stretches of text that are tokenised by themselves.
std::vector<PromptPart> stretches(const Vocabulary& vocabulary, const RenderedPrompt& prompt,
                                  const std::string& text) {
  const std::vector<bool> touched = touched_parts(vocabulary, prompt, text);
  std::vector<PromptPart> result;
  for (std::size_t i = 0; i < prompt.parts.size(); ++i) {
    const PromptPart& part = prompt.parts[i];
    const bool alone = part.from_request && touched[i];
    if (!alone && !result.empty() && !result.back().from_request) {
      result.back().text += part.text;
    } else {
      result.push_back({part.text, alone});
    }
  }
  return result;
}

}  // namespace

std::string RenderedPrompt::text() const {
  std::string whole;
  for (const PromptPart& part : parts) {
    whole += part.text;
  }
  return whole;
}

Result<std::vector<TokenId>> tokenize(const Vocabulary& vocabulary, const RenderedPrompt& prompt,
                                      bool allow_special_in_input, std::optional<OwnedMemo> memo) {
  const std::string text = prompt.text();
  if (text.size() > kMaxTextBytes) {
    return invalid_argument("the prompt has " + std::to_string(text.size()) +
                                " bytes; the limit is " + std::to_string(kMaxTextBytes),
                            "messages");
  }
  if (!allow_special_in_input && vocabulary.special_text().occurs_in(prompt.request_text)) {
    return invalid_argument(
        "the messages hold the text of a control token, which this model's chat template cannot "
        "keep apart from its own",
        "messages");
  }
  std::vector<PromptPart> pieces;
  if (allow_special_in_input) {
    pieces.push_back({text, false});
  } else {
    pieces = stretches(vocabulary, prompt, text);
  }
  std::vector<TokenId> tokens;
  for (const PromptPart& piece : pieces) {
    GRAFT_ASSIGN_OR_RETURN(const std::vector<TokenId> more,
                           vocabulary.tokenize(piece.text, {.add_special = false,
                                                            .parse_special = !piece.from_request,
                                                            .memo = memo}));
    tokens.insert(tokens.end(), more.begin(), more.end());
  }
  if (vocabulary.adds_bos() && (tokens.empty() || tokens.front() != vocabulary.bos())) {
    tokens.insert(tokens.begin(), vocabulary.bos());
  }
  return tokens;
}

}  // namespace graft
