// EmbeddingExchange: one answer of /v1/embeddings in the making. A list of inputs may be longer
// than the queue, so only some are submitted at once and the next ones as they end; cancels the
// work when the client goes, when an input fails, and when the server stops. Used by one strand
// (see exchange.h).
#pragma once

#include <cstddef>
#include <memory>
#include <set>
#include <vector>

#include "api/embedding_answer.h"
#include "api/event_inbox.h"
#include "api/exchange.h"
#include "api/keys/caller.h"
#include "api/request_line.h"
#include "api/service.h"

namespace graft::api {

struct EmbeddingWork {
  Caller caller;
  std::vector<std::vector<TokenId>> inputs;  // not empty, none empty
  AttachmentSet attachments;
  PrefixCacheRules prefix_cache;
  std::shared_ptr<RequestLine> line;
};

class EmbeddingExchange : public Exchange {
 public:
  // `service` outlives the exchange.
  EmbeddingExchange(Service& service, std::shared_ptr<EventInbox> inbox, EmbeddingWork work,
                    EmbeddingShape shape, std::vector<Header> headers);
  ~EmbeddingExchange() override;
  EmbeddingExchange(const EmbeddingExchange&) = delete;
  EmbeddingExchange& operator=(const EmbeddingExchange&) = delete;

  // Submits the first inputs. After an error nothing runs. Call once, before the first poll().
  Status start();

  Output poll(bool idle) override;
  void abandon() override { stop_work(); }
  void shut_down() override { shutting_down_ = true; }

 private:
  // Submits while there is room. Errors: the next input cannot be submitted and none runs that
  // would make room.
  Status submit_more();
  Status submit_next();
  Status take(const ChoiceEvent& event);
  HttpResponse failed(const Error& error);
  void stop_work();

  Service& service_;
  const std::shared_ptr<EventInbox> inbox_;
  EmbeddingWork work_;
  const std::vector<Header> headers_;
  EmbeddingAnswer answer_;
  std::vector<RequestId> ids_;  // by input, of those that were submitted
  std::set<std::size_t> running_;
  bool done_ = false;
  bool shutting_down_ = false;
};

}  // namespace graft::api
