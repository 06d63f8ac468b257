// What the files over llama.cpp's chat library share. Included only by .cpp files of text/, as the
// library's headers are. Its functions throw in many places; every call runs inside `guarded`.
#pragma once

#include <chat-auto-parser.h>
#include <chat.h>

#include <exception>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"

namespace graft {

// A template with all that was found out about it, once per model. Does not move: parts of the
// analysis point at `source`. Templates are trusted as much as the model they come with.
struct AnalysedTemplate {
  explicit AnalysedTemplate(common_chat_template parsed) : source(std::move(parsed)) {}
  AnalysedTemplate(const AnalysedTemplate&) = delete;
  AnalysedTemplate& operator=(const AnalysedTemplate&) = delete;

  common_chat_template source;
  autoparser::autoparser analysis;  // not for families that llama.cpp has a parser of its own for
  bool is_special = false;          // one of those families
  bool renames_developer = true;    // the template knows "system" but not "developer"
  bool writes_tools = false;        // it shows tools to the model, and we can parse its calls
  bool has_syntax = false;  // an answer without tools has more than content: reasoning, tags
};

// Runs `body`; what it throws becomes an error with this code and param.
template <typename Body>
auto guarded(ErrorCode code, const char* what, const char* param, Body body) -> decltype(body()) {
  try {
    return body();
  } catch (const std::exception& e) {
    return Error{code, std::string(what) + ": " + e.what(), param};
  } catch (...) {
    return Error{code, what, param};
  }
}

}  // namespace graft
