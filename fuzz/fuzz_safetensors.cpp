// Any bytes as a safetensors file, and what is accepted bound to a small base: no crash, and what
// is accepted keeps its promises.
#include <cstdint>
#include <span>

#include "base/check.h"
#include "modules/formats/format_test_support.h"
#include "modules/formats/peft_lora.h"

namespace graft {
namespace {

void check_promises(const SafetensorsFile& file) {
  GRAFT_CHECK(!file.tensors.empty());
  const std::byte* end = file.tensors.front().bytes.data();
  for (const SafetensorsTensor& tensor : file.tensors) {
    GRAFT_CHECK(!tensor.bytes.empty() && tensor.bytes.data() == end);
    end = tensor.bytes.data() + tensor.bytes.size();
  }
}

void check_promises(const Adapter& adapter) {
  GRAFT_CHECK(!adapter.terms.empty());
  const LoadReport& report = adapter.report;
  GRAFT_CHECK(report.bound.size() + report.ignored.size() ==
              static_cast<std::size_t>(report.n_tensors));
  for (const LoraTerm& term : adapter.terms) {
    for (const FactorMatrix* matrix : {&term.a, &term.b}) {
      GRAFT_CHECK(matrix->bytes.size() ==
                  static_cast<std::size_t>(matrix->n_rows * matrix->n_cols) *
                      bytes_per_value(matrix->type));
    }
  }
}

void run(std::span<const std::byte> bytes) {
  static const BaseModel kDense = format_test::make_base({});
  static const BaseModel kExperts =
      format_test::make_base({.architecture = "qwen3moe", .n_experts = 3});
  static const PeftConfig kConfig = parse_peft_config(R"({"peft_type":"LORA"})").value();
  const Result<SafetensorsFile> file = read_safetensors(bytes, "input");
  if (!file) return;
  check_promises(*file);
  for (const BaseModel* base : {&kDense, &kExperts}) {
    const Result<Adapter> adapter = bind_peft_lora(kConfig, *file, *base);
    if (adapter) check_promises(*adapter);
  }
}

}  // namespace
}  // namespace graft

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t n_bytes) {
  graft::run(std::as_bytes(std::span(bytes, n_bytes)));
  return 0;
}
