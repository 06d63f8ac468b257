#include "engine/llama_log.h"

#include <ggml.h>
#include <llama.h>

#include <mutex>
#include <string_view>
#include <utility>

#include "base/log.h"

namespace graft {

namespace {

// llama.cpp logs pieces of lines, from whichever thread works.
struct ThreadLog {
  std::string line;
  ggml_log_level level = GGML_LOG_LEVEL_INFO;
  std::string last_error;
  bool is_silent = false;
};

ThreadLog& thread_log() {
  thread_local ThreadLog log;
  return log;
}

void end_line(ThreadLog& log) {
  std::string line = std::exchange(log.line, {});
  if (line.empty() || log.is_silent) return;
  if (log.level == GGML_LOG_LEVEL_ERROR || log.level == GGML_LOG_LEVEL_WARN) {
    log_warning("llama.cpp: " + line);
    if (log.level == GGML_LOG_LEVEL_ERROR) log.last_error = std::move(line);
  } else if (log_enabled(LogLevel::kDebug)) {
    log_debug("llama.cpp: " + line);
  }
}

void on_llama_log(ggml_log_level level, const char* text, void* /*user_data*/) {
  constexpr std::size_t kMaxLineBytes = 4096;
  ThreadLog& log = thread_log();
  if (level != GGML_LOG_LEVEL_CONT) log.level = level;
  for (const char c : std::string_view(text)) {
    if (c == '\n') {
      end_line(log);
    } else if (log.line.size() < kMaxLineBytes) {
      log.line.push_back(c);
    }
  }
}

void on_ggml_abort(const char* message) {
  log_error(std::string("ggml gave up, the process ends: ") + message);
}

}  // namespace

void route_llama_log() {
  static std::once_flag once;
  std::call_once(once, [] {
    llama_log_set(on_llama_log, nullptr);
    ggml_set_abort_callback(on_ggml_abort);
  });
}

LlamaLogSilence::LlamaLogSilence() { thread_log().is_silent = true; }
LlamaLogSilence::~LlamaLogSilence() { thread_log().is_silent = false; }

std::string take_llama_error() { return std::exchange(thread_log().last_error, {}); }

}  // namespace graft
