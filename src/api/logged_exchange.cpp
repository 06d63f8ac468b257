#include "api/logged_exchange.h"

#include <utility>

namespace graft::api {
namespace {

constexpr int kClientGone = 499;

}  // namespace

LoggedExchange::LoggedExchange(std::shared_ptr<Exchange> exchange,
                               std::shared_ptr<const RequestLine> line, HttpCounters& counters)
    : exchange_(std::move(exchange)), line_(std::move(line)), counters_(counters) {}

// A connection that is closed without more ado just lets go.
LoggedExchange::~LoggedExchange() { end(kClientGone); }

Output LoggedExchange::poll(bool idle) {
  Output output = exchange_->poll(idle);
  if (output.head != nullptr) status_ = output.head->status;
  if (output.whole != nullptr) end(output.whole->status);
  if (output.end) end(status_);
  if (output.broken) end(kClientGone);  // it did not read
  return output;
}

void LoggedExchange::abandon() {
  end(kClientGone);
  exchange_->abandon();
}

void LoggedExchange::end(int status) {
  if (std::exchange(ended_, true)) return;
  counters_.count(status);
  log_request(*line_, status);
}

}  // namespace graft::api
