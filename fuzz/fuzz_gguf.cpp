// Any bytes as a GGUF adapter. What our reader accepts, ggml's must accept too, and both must see
// the same keys, names, types, shapes and offsets. (The other direction does not hold: ours is
// stricter.) Accepted files are bound to a small base.
#include <gguf.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/check.h"
#include "ggml.h"
#include "modules/formats/format_test_support.h"
#include "modules/formats/gguf_file.h"
#include "modules/formats/gguf_lora.h"

namespace graft {
namespace {

struct GgmlRelease {
  void operator()(gguf_context* context) const { gguf_free(context); }
  void operator()(ggml_context* context) const { ggml_free(context); }
};

void silence(ggml_log_level, const char*, void*) {}

void compare_keys(const GgufFile& ours, const gguf_context* theirs) {
  GRAFT_CHECK(ours.version == gguf_get_version(theirs));
  GRAFT_CHECK(ours.alignment == gguf_get_alignment(theirs));
  GRAFT_CHECK(static_cast<std::int64_t>(ours.keys.size()) == gguf_get_n_kv(theirs));
  for (std::size_t i = 0; i < ours.keys.size(); ++i) {
    const GgufKey& key = ours.keys[i];
    const auto index = static_cast<std::int64_t>(i);
    GRAFT_CHECK(key.name == gguf_get_key(theirs, index));
    GRAFT_CHECK(static_cast<int>(key.type) == static_cast<int>(gguf_get_kv_type(theirs, index)));
    if (const auto* text = std::get_if<std::string>(&key.value)) {
      GRAFT_CHECK(std::string(text->c_str()) == gguf_get_val_str(theirs, index));
    }
    if (const auto* array = std::get_if<GgufArray>(&key.value)) {
      GRAFT_CHECK(array->n_elements == gguf_get_arr_n(theirs, index));
    }
  }
}

void compare_tensors(const GgufFile& ours, const gguf_context* theirs, ggml_context* tensors) {
  GRAFT_CHECK(static_cast<std::int64_t>(ours.tensors.size()) == gguf_get_n_tensors(theirs));
  const ggml_tensor* theirs_tensor = ggml_get_first_tensor(tensors);
  for (std::size_t i = 0; i < ours.tensors.size(); ++i) {
    const GgufTensor& tensor = ours.tensors[i];
    const auto index = static_cast<std::int64_t>(i);
    GRAFT_CHECK(tensor.name == gguf_get_tensor_name(theirs, index));
    GRAFT_CHECK(static_cast<int>(tensor.type) ==
                static_cast<int>(gguf_get_tensor_type(theirs, index)));
    GRAFT_CHECK(tensor.offset == gguf_get_tensor_offset(theirs, index));
    GRAFT_CHECK(tensor.bytes.size() == gguf_get_tensor_size(theirs, index));
    GRAFT_CHECK(theirs_tensor != nullptr);
    for (std::size_t d = 0; d < tensor.ne.size(); ++d) {
      GRAFT_CHECK(tensor.ne[d] == theirs_tensor->ne[d]);
    }
    theirs_tensor = ggml_get_next_tensor(tensors, const_cast<ggml_tensor*>(theirs_tensor));
  }
}

void compare(const GgufFile& ours, std::span<const std::byte> bytes) {
  ggml_context* raw_tensors = nullptr;
  const gguf_init_params params = {/*no_alloc=*/true, /*ctx=*/&raw_tensors};
  const std::unique_ptr<gguf_context, GgmlRelease> theirs(
      gguf_init_from_buffer(bytes.data(), bytes.size(), params));
  const std::unique_ptr<ggml_context, GgmlRelease> tensors(raw_tensors);
  GRAFT_CHECK(theirs != nullptr);
  compare_keys(ours, theirs.get());
  compare_tensors(ours, theirs.get(), tensors.get());
}

void run(std::span<const std::byte> bytes) {
  static const BaseModel kDense = format_test::make_base({});
  static const BaseModel kExperts = format_test::make_base({.n_experts = 3});
  ggml_log_set(silence, nullptr);
  const Result<GgufFile> file = read_gguf(bytes, "input");
  if (!file) return;
  compare(*file, bytes);
  for (const BaseModel* base : {&kDense, &kExperts}) {
    const Result<Adapter> adapter = bind_gguf_lora(*file, *base);
    GRAFT_CHECK(!adapter || !adapter->terms.empty());
  }
}

}  // namespace
}  // namespace graft

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t n_bytes) {
  graft::run(std::as_bytes(std::span(bytes, n_bytes)));
  return 0;
}
