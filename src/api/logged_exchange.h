// LoggedExchange: an exchange whose end is written to the log and counted, whichever way it ends.
// Used by one strand, like the exchange it wraps.
#pragma once

#include <memory>

#include "api/exchange.h"
#include "api/request_line.h"
#include "metrics/http_counters.h"

namespace graft::api {

class LoggedExchange : public Exchange {
 public:
  // `counters` outlives this.
  LoggedExchange(std::shared_ptr<Exchange> exchange, std::shared_ptr<const RequestLine> line,
                 HttpCounters& counters);
  ~LoggedExchange() override;
  LoggedExchange(const LoggedExchange&) = delete;
  LoggedExchange& operator=(const LoggedExchange&) = delete;

  Output poll(bool idle) override;
  void abandon() override;
  void shut_down() override { exchange_->shut_down(); }

 private:
  void end(int status);

  const std::shared_ptr<Exchange> exchange_;
  const std::shared_ptr<const RequestLine> line_;
  HttpCounters& counters_;
  int status_ = 200;  // of a streamed answer
  bool ended_ = false;
};

}  // namespace graft::api
