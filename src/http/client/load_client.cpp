#include "http/client/load_client.h"

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <memory>

#include "http/client/load_stream.h"

namespace graft {
namespace {

namespace asio = boost::asio;
using boost::asio::ip::tcp;
using boost::system::error_code;

constexpr std::chrono::milliseconds kTick{200};

// Everything up to the length of the body.
std::string request_head(const LoadTarget& target) {
  const bool is_v6 = target.host.find(':') != std::string::npos;
  std::string head = "POST " + target.path +
                     " HTTP/1.1\r\nHost: " + (is_v6 ? "[" + target.host + "]" : target.host) + ":" +
                     std::to_string(target.port) +
                     "\r\nContent-Type: application/json\r\nAccept: text/event-stream\r\n";
  for (const auto& [name, value] : target.headers) head.append(name + ": " + value + "\r\n");
  return head + "Content-Length: ";
}

class LoadRun : public LoadStreamOwner {
 public:
  LoadRun(const LoadTarget& target, const LoadPlan& plan)
      : plan_(plan), head_(request_head(target)), arrival_(io_), tick_(io_) {}

  Result<LoadRecord> run(const LoadTarget& target);
  void on_finished(LoadStream& stream) override;

 private:
  void start_waiting();
  void start_on(LoadStream& stream);
  LoadStream* free_stream();
  void arm_arrival();
  void arm_tick();
  void end_late_answers();

  bool open_loop() const { return !plan_.due.empty(); }
  bool all_sent() const { return stopped_ || n_sent_ == plan_.n_requests; }

  const LoadPlan& plan_;
  const std::string head_;
  asio::io_context io_{1};
  tcp::resolver::results_type endpoints_;
  asio::steady_timer arrival_;
  asio::steady_timer tick_;
  std::vector<std::unique_ptr<LoadStream>> streams_;
  std::vector<LoadStream*> free_;
  LoadRecord record_;
  std::size_t n_due_ = 0;  // requests whose moment has come
  std::size_t n_sent_ = 0;
  std::size_t n_busy_ = 0;
  bool stopped_ = false;
};

Result<LoadRecord> LoadRun::run(const LoadTarget& target) {
  error_code error;
  tcp::resolver resolver(io_);
  endpoints_ = resolver.resolve(target.host, std::to_string(target.port), error);
  if (error) {
    return Error{
        ErrorCode::kUnavailable, "no address of " + target.host + ": " + error.message(), {}};
  }
  record_.answers.resize(plan_.n_requests);  // stays where it is: streams refer to answers
  record_.begin = LoadClock::now();
  n_due_ = open_loop() ? 0 : plan_.n_requests;
  arm_tick();
  if (open_loop()) arm_arrival();
  start_waiting();
  io_.run();
  record_.end = LoadClock::now();
  record_.answers.resize(n_sent_);
  record_.stopped = stopped_;
  return std::move(record_);
}

// Sends what is due as far as there are connections.
void LoadRun::start_waiting() {
  while (!stopped_ && n_sent_ < n_due_) {
    LoadStream* stream = free_stream();
    if (stream == nullptr) return;
    start_on(*stream);
  }
}

LoadStream* LoadRun::free_stream() {
  if (!free_.empty()) {
    LoadStream* stream = free_.back();
    free_.pop_back();
    return stream;
  }
  if (streams_.size() >= plan_.n_streams) return nullptr;
  streams_.push_back(std::make_unique<LoadStream>(io_, endpoints_, *this));
  return streams_.back().get();
}

void LoadRun::start_on(LoadStream& stream) {
  const std::size_t i = n_sent_++;
  const std::string body = plan_.make_body(i);
  LoadAnswer& answer = record_.answers[i];
  ++n_busy_;
  std::string request = head_ + std::to_string(body.size()) + "\r\n\r\n" + body;
  answer.due = open_loop() ? record_.begin + plan_.due[i] : LoadClock::now();
  stream.start(std::move(request), answer);
}

void LoadRun::on_finished(LoadStream& stream) {
  --n_busy_;
  free_.push_back(&stream);
  start_waiting();
  if (n_busy_ > 0 || !all_sent()) return;
  arrival_.cancel();
  tick_.cancel();
}

void LoadRun::arm_arrival() {
  if (n_due_ == plan_.n_requests || stopped_) return;
  arrival_.expires_at(record_.begin + plan_.due[n_due_]);
  arrival_.async_wait([this](const error_code& error) {
    if (error || stopped_) return;
    const auto elapsed = LoadClock::now() - record_.begin;
    while (n_due_ < plan_.n_requests && plan_.due[n_due_] <= elapsed) ++n_due_;
    start_waiting();
    arm_arrival();
  });
}

void LoadRun::arm_tick() {
  tick_.expires_after(kTick);
  tick_.async_wait([this](const error_code& error) {
    if (error) return;
    if (plan_.stop_requested != nullptr && plan_.stop_requested()) stopped_ = true;
    end_late_answers();
    if (n_busy_ > 0 || !all_sent()) arm_tick();
  });
}

void LoadRun::end_late_answers() {
  if (stopped_) arrival_.cancel();
  const auto now = LoadClock::now();
  // A failed stream may start its next request at once, so the list grows at most at its end.
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    if (stopped_) {
      streams_[i]->fail("stopped");
    } else if (now - streams_[i]->sent_at() > plan_.timeout) {
      streams_[i]->fail("no end within " + std::to_string(plan_.timeout.count()) + " ms");
    }
  }
}

}  // namespace

Result<LoadRecord> run_load(const LoadTarget& target, const LoadPlan& plan) {
  return LoadRun(target, plan).run(target);
}

}  // namespace graft
