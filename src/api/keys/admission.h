// admit(): may this request use a route of this role? The one place where roles are enforced,
// called by Service::answer for every route. Any thread.
#pragma once

#include <variant>

#include "api/exchange.h"
#include "api/keys/caller.h"
#include "api/keys/key_ring.h"

namespace graft::api {

// Who may call a route. Every route states one; without API keys all are open.
enum class Role { kOpen, kInference, kAdmin };

// The caller, or the refusal: 401 without a valid key, 403 when the key's role is not enough. The
// key is read from `Authorization: Bearer KEY`, or from `x-api-key` as Anthropic's clients send it.
std::variant<Caller, HttpResponse> admit(const KeyRing& ring, Role role,
                                         const HttpRequest& request);

// A place among the running requests of the caller's key, or the refusal: 429 with Retry-After.
std::variant<KeyPermit, HttpResponse> take_place(const Caller& caller);

// `answer`, holding `permit` until it is complete or abandoned.
Answer hold(Answer answer, KeyPermit permit);

}  // namespace graft::api
