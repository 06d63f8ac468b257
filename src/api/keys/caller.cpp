#include "api/keys/caller.h"

#include <algorithm>
#include <utility>
#include <variant>

namespace graft::api {
namespace {

class MeteredSink : public EventSink {
 public:
  MeteredSink(std::shared_ptr<EventSink> sink, std::shared_ptr<KeyUsage> usage)
      : sink_(std::move(sink)), usage_(std::move(usage)) {}

  bool publish(Event event) override {
    if (const auto* started = std::get_if<Started>(&event)) {
      usage_->add_tokens(started->n_prompt_tokens);
    } else if (std::holds_alternative<TokenOutput>(event)) {
      usage_->add_tokens(1);
    }
    return sink_->publish(std::move(event));
  }

 private:
  const std::shared_ptr<EventSink> sink_;
  const std::shared_ptr<KeyUsage> usage_;
};

}  // namespace

std::shared_ptr<const RegistrySnapshot> Caller::visible(
    std::shared_ptr<const RegistrySnapshot> registry) const {
  const auto& modules = registry->modules;
  const bool sees_all = std::all_of(modules.begin(), modules.end(),
                                    [this](const auto& module) { return may_use(module->name); });
  if (sees_all) return registry;
  auto seen = std::make_shared<RegistrySnapshot>(*registry);
  std::erase_if(seen->modules, [this](const auto& module) { return !may_use(module->name); });
  std::erase_if(seen->default_attachments.attachments,
                [this](const Attachment& one) { return !may_use(one.module->name); });
  return seen;
}

std::shared_ptr<EventSink> Caller::metered(std::shared_ptr<EventSink> sink) const {
  if (key == nullptr || key->limits.tokens_per_minute == 0) return sink;
  return std::make_shared<MeteredSink>(std::move(sink), key->usage);
}

}  // namespace graft::api
