// CaseFile: a file of HTTP exchanges as text, for the case runner. Used by one thread.
//
//   # a comment
//   case the name of the case
//   send POST /v1/completions
//   header x-request-id: abc           (any number; host, content type and length are added)
//   body {"prompt": "hi"}              (further body lines are joined to the first)
//   status 200
//   has x-request-id: abc              (this header with this value, both in lower case)
//   lacks x-graft-modules              (no such header)
//   json {"choices": [{"text": "..."}]}    (the answer's JSON holds at least this)
//   event {"choices": [...]}           (some event of the stream, after the one matched before)
//   named NAME {"type": "NAME", ...}   (the same for an event with an `event:` line of that name)
//   done                               (the stream ends with [DONE])
//   error param code                   (shorthand for an error object; - = null)
//
// Lines from `script` before a `send` set what the fake engine does: pieces, fail_after, refuse,
// stop_string.
#pragma once

#include <fstream>
#include <string>
#include <utility>
#include <vector>

namespace graft {

struct CaseLine {
  int number = 0;
  std::string word;
  std::string rest;
};

struct TestCase {
  std::string name;
  std::vector<CaseLine> lines;
};

inline std::vector<TestCase> read_case_file(const std::string& path) {
  std::ifstream file(path);
  std::vector<TestCase> cases;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    if (line.empty() || line[0] == '#') continue;
    const std::size_t space = line.find(' ');
    CaseLine read{number, line.substr(0, space),
                  space == std::string::npos ? "" : line.substr(space + 1)};
    if (read.word == "case") {
      cases.push_back({read.rest, {}});
    } else if (!cases.empty()) {
      cases.back().lines.push_back(std::move(read));
    }
  }
  return cases;
}

}  // namespace graft
