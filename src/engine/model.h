// Model: one base model in memory, loaded from a GGUF file through the grafting device, with its
// vocabulary and what readers of modules must know about it. Immutable after loading: any thread
// may read it. It must outlive every engine made from it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "core/request.h"
#include "modules/base_model.h"
#include "text/vocabulary.h"

struct ggml_backend_device;
struct llama_model;

namespace graft {

struct ModelOptions {
  std::string path = {};  // a GGUF file, or any part of a split one
  // Called while the weights load, with 0..1, on the loading thread; false gives up.
  std::function<bool(float)> on_progress = {};
  bool use_mmap = true;
  bool use_extra_buffers = true;  // repacked weights
  // What computes the model, all layers of it: a grafting device (grafting_gpu_device()) or null,
  // the CPU.
  ggml_backend_device* device = nullptr;
};

struct ModelFacts {
  std::string path;
  std::string description;         // "llama 135M Q4_1"
  std::string chat_template;       // Jinja source; may be empty
  std::uint64_t weight_bytes = 0;  // of all tensors
  std::uint64_t n_parameters = 0;
  std::int32_t n_ctx_train = 0;
  bool has_sliding_window = false;
  // How embeddings are pooled: what the file says, else the mean; nothing where it names a kind
  // that a decoder's rows cannot give (the first token, a ranking head).
  std::optional<Pooling> pooling;
  std::map<std::string, std::int32_t> matrices_by_type;  // how many matrices are "q4_0", ...
};

class Model {
 public:
  // Errors: as read_gguf_header; kNotSupported for models that cannot generate text row by row
  // (encoders, recurrent state, diffusion); kCancelled when on_progress says so.
  static Result<std::unique_ptr<Model>> load(const ModelOptions& options);
  ~Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  const BaseModel& base() const { return base_; }
  const ModelFacts& facts() const { return facts_; }
  const Vocabulary& vocabulary() const { return *vocabulary_; }
  llama_model* handle() const { return model_.get(); }
  ggml_backend_device* device() const { return device_; }

 private:
  struct Free {
    void operator()(llama_model* model) const;
  };

  Model() = default;
  Status check_supported() const;
  void complete_base();
  void read_facts(const std::string& path);

  BaseModel base_;
  ModelFacts facts_;
  ggml_backend_device* device_ = nullptr;
  std::unique_ptr<llama_model, Free> model_;
  std::unique_ptr<Vocabulary> vocabulary_;  // borrows from model_
};

}  // namespace graft
