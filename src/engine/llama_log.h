// Routes llama.cpp's log and its last words before an abort into ours, and keeps the last error
// line, because libllama reports why a load failed nowhere else.
#pragma once

#include <string>

namespace graft {

// Idempotent; call before the first model is loaded.
void route_llama_log();

// While it lives, what llama.cpp logs on this thread is dropped: for calls that are meant to fail.
class LlamaLogSilence {
 public:
  LlamaLogSilence();
  ~LlamaLogSilence();
  LlamaLogSilence(const LlamaLogSilence&) = delete;
  LlamaLogSilence& operator=(const LlamaLogSilence&) = delete;
};

// The last error that llama.cpp logged on this thread since the last call; may be empty.
std::string take_llama_error();

}  // namespace graft
