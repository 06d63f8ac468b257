// StepTensors: device memory for the tensors that OpsStep adds to a graph. Tensors are listed
// first and placed together, so that one buffer, which only grows, serves every step. Belongs to
// the thread that calls llama_decode; the tensor structs are the caller's.
#pragma once

#include <cstddef>
#include <vector>

#include "base/result.h"
#include "grafting/ops_factors.h"

namespace graft {

class StepTensors {
 public:
  explicit StepTensors(ggml_backend_buffer_type* type) : type_(type) {}

  // Forgets the tensors of the previous node list; the memory stays.
  void clear();

  // Lists a tensor, or a view of one that is listed or has memory already.
  void add(ggml_tensor* tensor);

  // What is listed from here on may use the memory of what was listed before.
  void reuse() { end_ = 0; }

  // Gives every listed tensor its memory. Errors: kResourceExhausted.
  Status place();

 private:
  struct Listed {
    ggml_tensor* tensor = nullptr;
    std::size_t offset = 0;  // unused for views
  };

  ggml_backend_buffer_type* type_;
  BufferPointer buffer_;
  std::size_t capacity_ = 0;
  std::vector<Listed> listed_;
  std::size_t end_ = 0;
  std::size_t needed_ = 0;
};

}  // namespace graft
