// Caller: who sent a request, as its API key says, and what that one sees. A small value, copied
// with a request; any thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "api/keys/api_key.h"
#include "modules/store/registry_snapshot.h"
#include "scheduler/generation_service.h"

namespace graft::api {

struct Caller {
  std::shared_ptr<const ApiKey> key;  // null: nobody was asked for a key

  // Whose cached prompts a request of this caller may share; "" without keys.
  std::string tenant() const { return key == nullptr ? std::string() : key->tenant; }
  bool may_use(std::string_view module) const { return key == nullptr || key->may_use(module); }

  // The registry without the modules that this caller may not use. For it they do not exist: no
  // name, no near name, no position.
  std::shared_ptr<const RegistrySnapshot> visible(
      std::shared_ptr<const RegistrySnapshot> registry) const;

  // `sink`, counting the request's tokens where the key has a limit on them.
  std::shared_ptr<EventSink> metered(std::shared_ptr<EventSink> sink) const;
};

}  // namespace graft::api
