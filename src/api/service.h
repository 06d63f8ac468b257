// Service: the HTTP surface without HTTP. Takes a request as bytes, finds its route, validates,
// resolves names, compiles constraints, tokenises, submits, and hands back an answer or an Exchange
// that makes one.
//
// Thread-safe. answer() may take long on heavy routes (JSON, templates, tokenising): http/ calls it
// on its prepare pool for those. The service can answer before there is a model: open() brings the
// parts. They are borrowed, and outlive every answer.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "api/exchange.h"
#include "api/generation_call.h"
#include "api/id_source.h"
#include "api/keys/caller.h"
#include "api/keys/key_ring.h"
#include "api/prompt_builder.h"
#include "api/request_line.h"
#include "base/snapshot.h"
#include "metrics/http_counters.h"
#include "metrics/serving_counters.h"
#include "modules/store/module_store.h"
#include "modules/store/registry_snapshot.h"
#include "scheduler/generation_service.h"
#include "text/constraint.h"

namespace graft::api {

struct Route;

// How the server is watched.
struct Observation {
  const ServingCounters* counters = nullptr;  // the engine's; null in tests without one
  bool old_gpu_names = false;                 // see ExpositionFacts
  bool log_prompts = false;
};

struct ServiceParts {
  GenerationService& generation;
  const Snapshot<RegistrySnapshot>& registry;
  const PromptBuilder& prompts;
  ModelFacts facts;
  const ConstraintCompiler* constraints = nullptr;  // null: no constrained answers
  ModuleStore* modules = nullptr;                   // null: no module is loaded while serving
  Observation observation = {};
};

class Service {
 public:
  enum class State { kLoading, kReady, kDraining };

  // `keys`: whom it answers; null = everybody. Borrowed.
  explicit Service(const Snapshot<KeyRing>* keys = nullptr)
      : keys_(keys == nullptr ? no_keys_ : *keys) {}
  explicit Service(ServiceParts parts, const Snapshot<KeyRing>* keys = nullptr);
  // For a listener of its own: answers only the open routes (health, metrics), in the name of
  // `watched`, which outlives it.
  struct Watch {
    Service& watched;
  };
  explicit Service(Watch watch) : keys_(no_keys_), watched_(&watch.watched) {}

  // Requires: called once, while kLoading, before set_state().
  void open(ServiceParts parts);

  // Whether answer() belongs on the prepare pool rather than on an io thread.
  bool is_heavy(const HttpRequest& request) const;

  // What a request gets whatever its body: nothing at its path, no key, no model yet. Asked before
  // a body is received, so that nobody without a key makes the server hold one.
  std::optional<HttpResponse> refuse_early(const HttpRequest& head);

  // `waker` is called when the returned Exchange has more to say.
  Answer answer(const HttpRequest& request, const std::shared_ptr<Waker>& waker);

  // Starts as kLoading: all routes but the open ones answer 503 until kReady.
  void set_state(State state) { state_.store(state); }
  State state() const { return state_.load(); }
  // Every submission of every route goes through here: with the caller's tenant, its tokens
  // counted.
  Status submit(const Caller& caller, Submission submission);
  Status submit_group(const Caller& caller, std::vector<Submission> choices);

  // What the route functions use. Requires: not kLoading.
  const ServiceParts& parts() const { return *parts_; }
  IdSource& ids() { return ids_; }
  const std::string& fingerprint() const { return fingerprint_; }
  HttpCounters& http_counters() { return http_counters_; }

 private:
  struct Way {
    const Route* route = nullptr;
    std::string path_tail;
    std::string path_module;
    Caller caller;
  };
  std::variant<Way, HttpResponse> find_way(const HttpRequest& request) const;
  Answer dispatch_or_error(const HttpRequest& request, const std::shared_ptr<RequestLine>& line,
                           const std::shared_ptr<Waker>& waker);
  Answer dispatch(const HttpRequest& request, const std::shared_ptr<RequestLine>& line,
                  const std::shared_ptr<Waker>& waker);
  std::string request_id_of(const HttpRequest& request);
  void finish(HttpResponse& response, const RequestLine& line);

  const Snapshot<KeyRing> no_keys_{std::make_shared<const KeyRing>()};
  const Snapshot<KeyRing>& keys_;
  std::optional<ServiceParts> parts_;  // set while kLoading, read afterwards
  Service* const watched_ = nullptr;
  IdSource ids_;
  HttpCounters http_counters_;
  std::string fingerprint_;
  std::atomic<State> state_{State::kLoading};
};

}  // namespace graft::api
