// Any text as adapter_config.json: no crash, and an accepted config gives finite scales.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "modules/formats/peft_config.h"

namespace graft {
namespace {

void run(std::string_view text) {
  const Result<PeftConfig> config = parse_peft_config(text);
  if (!config || !check_supported(*config)) return;
  const Result<PeftScaleRule> rule = PeftScaleRule::create(*config);
  if (!rule) return;
  for (const char* module : {"model.layers.0.self_attn.q_proj", "lm_head", ""}) {
    const double scale = rule->scale(module, 16);
    GRAFT_CHECK(std::isfinite(scale) && scale != 0);
    GRAFT_CHECK(rule->announced_rank(module) >= 1);
  }
}

}  // namespace
}  // namespace graft

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t n_bytes) {
  graft::run({reinterpret_cast<const char*>(bytes), n_bytes});
  return 0;
}
