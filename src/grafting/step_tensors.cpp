#include "grafting/step_tensors.h"

#include <ggml-backend.h>
#include <ggml.h>

#include <algorithm>
#include <string>

namespace graft {

void StepTensors::clear() {
  listed_.clear();
  end_ = 0;
  needed_ = 0;
}

void StepTensors::add(ggml_tensor* tensor) {
  listed_.push_back({tensor, end_});
  if (tensor->view_src != nullptr) return;
  const std::size_t alignment = ggml_backend_buft_get_alignment(type_);
  const std::size_t n_bytes = ggml_backend_buft_get_alloc_size(type_, tensor);
  end_ += (n_bytes + alignment - 1) / alignment * alignment;
  needed_ = std::max(needed_, end_);
}

Status StepTensors::place() {
  if (capacity_ < needed_) {
    buffer_.reset();
    capacity_ = 0;
    buffer_.reset(ggml_backend_buft_alloc_buffer(type_, needed_));
    if (buffer_ == nullptr) {
      return Error{ErrorCode::kResourceExhausted,
                   "no device memory for a step's " + std::to_string(needed_) + " bytes of modules",
                   {}};
    }
    capacity_ = needed_;
  }
  for (const Listed& listed : listed_) {
    ggml_status status = GGML_STATUS_SUCCESS;
    if (listed.tensor->view_src != nullptr) {
      status = ggml_backend_view_init(listed.tensor);
    } else {
      auto* base = static_cast<char*>(ggml_backend_buffer_get_base(buffer_.get()));
      status = ggml_backend_tensor_alloc(buffer_.get(), listed.tensor, base + listed.offset);
    }
    if (status != GGML_STATUS_SUCCESS) {
      return internal_error("the device refuses a tensor of a step's modules");
    }
  }
  return {};
}

}  // namespace graft
