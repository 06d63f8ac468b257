// Waiting for modules that are being loaded, without a thread: a LoadOutcome hears of the end on a
// loader thread and wakes the connection, whose strand then polls the exchange.
//
// LoadExchange answers the request that asked for a load. ModuleWait stands before a request that
// needs modules which are not there yet; when they are, the request is answered anew.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/exchange.h"
#include "base/mutex.h"
#include "modules/store/module_store.h"

namespace graft::api {

// Thread-safe.
class LoadOutcome final : public LoadWaiter {
 public:
  explicit LoadOutcome(std::shared_ptr<Waker> waker) : waker_(std::move(waker)) {}

  void on_loaded(const Loaded& loaded) override GRAFT_EXCLUDES(mutex_);
  // Nothing while the load goes on.
  std::optional<Loaded> get() const GRAFT_EXCLUDES(mutex_);

 private:
  const std::shared_ptr<Waker> waker_;
  mutable Mutex mutex_;
  std::optional<Loaded> loaded_ GRAFT_GUARDED_BY(mutex_);
};

// For whom only asks for a model, one that cannot be loaded does not exist; the reason is in the
// message.
Error as_missing(const Error& error);

class LoadExchange final : public Exchange {
 public:
  LoadExchange(std::string name, std::shared_ptr<LoadOutcome> outcome, std::vector<Header> headers)
      : name_(std::move(name)), outcome_(std::move(outcome)), headers_(std::move(headers)) {}

  Output poll(bool idle) override;
  void abandon() override {}  // the load goes on: others may wait for it
  void shut_down() override { shutting_down_ = true; }

 private:
  const std::string name_;
  const std::shared_ptr<LoadOutcome> outcome_;
  const std::vector<Header> headers_;
  bool shutting_down_ = false;
};

class ModuleWait final : public Exchange {
 public:
  // `request` is given back when all outcomes are there and good.
  ModuleWait(HttpRequest request, std::vector<std::shared_ptr<LoadOutcome>> outcomes,
             std::vector<Header> headers)
      : request_(std::move(request)),
        outcomes_(std::move(outcomes)),
        headers_(std::move(headers)) {}

  Output poll(bool idle) override;
  void abandon() override {}
  void shut_down() override { shutting_down_ = true; }

 private:
  HttpRequest request_;
  const std::vector<std::shared_ptr<LoadOutcome>> outcomes_;
  const std::vector<Header> headers_;
  bool shutting_down_ = false;
};

}  // namespace graft::api
