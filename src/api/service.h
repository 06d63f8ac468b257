// Service: the HTTP surface without HTTP. Takes a request as bytes, finds its route, validates,
// resolves names, tokenises, submits, and hands back an answer or an Exchange that makes one.
//
// Thread-safe. answer() may take long on heavy routes (JSON, templates, tokenising): http/ calls it
// on its prepare pool for those. All parts are borrowed and outlive the service.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <string_view>

#include "api/exchange.h"
#include "api/generation_call.h"
#include "api/id_source.h"
#include "api/prompt_builder.h"
#include "base/snapshot.h"
#include "router/registry_snapshot.h"
#include "scheduler/generation_service.h"

namespace graft::api {

struct ServiceParts {
  GenerationService& generation;
  const Snapshot<RegistrySnapshot>& registry;
  const PromptBuilder& prompts;
  ModelFacts facts;
};

class Service {
 public:
  enum class State { kLoading, kReady, kDraining };

  explicit Service(ServiceParts parts);

  // Whether answer() belongs on the prepare pool rather than on an io thread.
  bool is_heavy(const HttpRequest& request) const;

  // `waker` is called when the returned Exchange has more to say.
  Answer answer(const HttpRequest& request, const std::shared_ptr<Waker>& waker);

  // Starts as kLoading: everything but /health and /version answers 503 until kReady.
  void set_state(State state) { state_.store(state); }
  State state() const { return state_.load(); }

  // What the route functions use.
  const ServiceParts& parts() const { return parts_; }
  IdSource& ids() { return ids_; }
  const std::string& fingerprint() const { return fingerprint_; }

 private:
  ServiceParts parts_;
  IdSource ids_;
  std::string fingerprint_;
  std::atomic<State> state_{State::kLoading};
};

}  // namespace graft::api
