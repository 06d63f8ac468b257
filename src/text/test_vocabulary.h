// A small committed model's tokenizer for tests of this folder; loads no weights.
#pragma once

#include <llama.h>

#include <memory>
#include <string>

#include "text/vocabulary.h"

namespace graft {

struct ModelFree {
  void operator()(llama_model* model) const { llama_model_free(model); }
};
using ModelPtr = std::unique_ptr<llama_model, ModelFree>;

inline ModelPtr load_vocabulary_only(const std::string& path) {
  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  llama_model_params params = llama_model_default_params();
  params.vocab_only = true;
  return ModelPtr(llama_model_load_from_file(path.c_str(), params));
}

inline ModelPtr load_counting_model() {
  return load_vocabulary_only(std::string(GRAFT_SOURCE_DIR) + "/tests/synthetic/counting.gguf");
}

}  // namespace graft
