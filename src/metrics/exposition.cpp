#include "metrics/exposition.h"

#include <prometheus/collectable.h>
#include <prometheus/text_serializer.h>

#include <sstream>

#include "metrics/family_list.h"

namespace graft {
namespace {

// prometheus-cpp's own histograms take a lock per observation; the engine's are atomics, and
// become its values here, on the thread that scrapes.
class ServingCollector : public prometheus::Collectable {
 public:
  ServingCollector(const ServingCounters& serving, const HttpCounters& http,
                   const ExpositionFacts& facts)
      : serving_(serving), http_(http), facts_(facts) {}

  std::vector<prometheus::MetricFamily> Collect() const override {  // NOLINT: the library's name
    std::vector<prometheus::MetricFamily> families;
    FamilyList list(families);
    const ServingSnapshot now = serving_.snapshot();
    add_graft_families(list, now, facts_);
    add_http_families(list, http_);
    add_module_families(list, serving_.modules(), facts_);
    add_vllm_families(list, now, serving_.modules(), facts_);
    return families;
  }

 private:
  const ServingCounters& serving_;
  const HttpCounters& http_;
  const ExpositionFacts& facts_;
};

}  // namespace

std::string exposition(const ServingCounters& serving, const HttpCounters& http,
                       const ExpositionFacts& facts) {
  std::ostringstream text;
  prometheus::TextSerializer().Serialize(text, ServingCollector(serving, http, facts).Collect());
  return std::move(text).str();
}

}  // namespace graft
