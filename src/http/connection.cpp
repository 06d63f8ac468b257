#include "http/connection.h"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/post.hpp>
#include <utility>

#include "api/errors.h"
#include "http/answer_job.h"

namespace graft {
namespace {

namespace asio = boost::asio;

constexpr std::size_t kReadBytes = std::size_t{4} << 10;
constexpr std::size_t kBodyReadBytes = std::size_t{64} << 10;
constexpr std::size_t kWriteBytes = std::size_t{256} << 10;
constexpr std::size_t kMaxDiscardedBytes = std::size_t{32} << 20;
constexpr std::chrono::milliseconds kLingerTime{2000};

}  // namespace

Connection::Connection(asio::ip::tcp::socket socket, const ConnectionContext& context)
    : stream_(std::move(socket), context.tls),
      deadline_(stream_.get_executor()),
      context_(context),
      reader_(context.options) {}

Connection::~Connection() { context_.connections.remove(this); }

void Connection::start() {
  waker_ = std::make_shared<ConnectionWaker>(context_.wake_list, weak_from_this());
  boost::system::error_code ignored;
  stream_.socket().set_option(asio::ip::tcp::no_delay(true), ignored);
  asio::dispatch(stream_.get_executor(), [self = shared_from_this()] {
    if (self->stream_.is_tls()) {
      self->begin_handshake();
    } else {
      self->begin_reading();
    }
  });
}

void Connection::begin_handshake() {
  phase_ = Phase::kHandshake;
  arm_deadline();
  stream_.handshake([self = shared_from_this()](const boost::system::error_code& error) {
    self->on_handshake(error);
  });
}

void Connection::on_handshake(const boost::system::error_code& error) {
  if (phase_ == Phase::kClosed) return;
  if (!error) {
    begin_reading();
    return;
  }
  if (ByteStream::is_plain_http(error)) {
    const api::HttpResponse response =
        api::protocol_error(400, "This port speaks TLS: the address begins with https://.");
    context_.service.http_counters().count(response.status);
    const std::string bytes = response_head(response, BodyFraming::kLength, false) + response.body;
    boost::system::error_code ignored;
    stream_.socket().non_blocking(true, ignored);
    stream_.socket().write_some(asio::buffer(bytes), ignored);
    stream_.socket().shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
  }
  close();
}

void Connection::begin_reading() {
  phase_ = Phase::kIdle;
  arm_deadline();
  read_more();
}

void Connection::on_wake() {
  asio::dispatch(stream_.get_executor(), [self = shared_from_this()] { self->poll(false); });
}

void Connection::drain() {
  asio::dispatch(stream_.get_executor(), [self = shared_from_this()] {
    self->draining_ = true;
    if (self->at_rest()) self->close();
  });
}

void Connection::stop() {
  asio::dispatch(stream_.get_executor(), [self = shared_from_this()] {
    self->draining_ = true;
    self->stopping_ = true;
    if (self->phase_ != Phase::kAnswering) {
      self->close();
      return;
    }
    if (self->exchange_ != nullptr) {
      self->exchange_->shut_down();
      self->poll(false);
    }
  });
}

void Connection::read_more() {
  if (read_pending_ || phase_ == Phase::kClosed) return;
  // Enough for the next requests is here; until they are wanted, the client has to wait.
  if (phase_ == Phase::kAnswering && input_.size() >= context_.options.max_pipelined_bytes) return;
  read_pending_ = true;
  const bool much = phase_ == Phase::kBody || phase_ == Phase::kLingering;
  read_buffer_.resize(much ? kBodyReadBytes : kReadBytes);
  stream_.read_some(
      asio::buffer(read_buffer_),
      [self = shared_from_this()](const boost::system::error_code& error, std::size_t n_bytes) {
        self->on_read(error, n_bytes);
      });
}

void Connection::on_read(const boost::system::error_code& error, std::size_t n_bytes) {
  read_pending_ = false;
  if (phase_ == Phase::kClosed) return;
  if (error) {
    on_gone();
    return;
  }
  if (phase_ == Phase::kLingering) {
    n_discarded_bytes_ += n_bytes;
    if (n_discarded_bytes_ > kMaxDiscardedBytes) close();
  } else {
    asio::buffer_copy(input_.prepare(n_bytes), asio::buffer(read_buffer_, n_bytes));
    input_.commit(n_bytes);
    if (phase_ != Phase::kAnswering) advance();
  }
  read_more();
}

void Connection::on_gone() {
  // A complete answer still goes out: the client may have closed only its own side.
  if (phase_ == Phase::kAnswering && answer_complete_) {
    keep_alive_ = false;
    return;
  }
  if (exchange_ != nullptr) std::exchange(exchange_, nullptr)->abandon();
  close();
}

// Goes on with the request that the input holds a part of.
void Connection::advance() {
  if (input_.size() == 0) return;
  const Phase before = phase_;
  const bool wanted_continue = reader_.wants_continue();
  switch (reader_.feed(input_)) {
    case RequestReader::Progress::kFailed:
      keep_alive_ = false;
      request_unread_ = true;
      http_1_0_ = false;
      head_only_ = false;
      phase_ = Phase::kAnswering;
      send_own(api::protocol_error(reader_.error_status(), reader_.error_message()));
      return;
    case RequestReader::Progress::kComplete: begin_answer(); return;
    case RequestReader::Progress::kNeedMore: break;
  }
  phase_ = reader_.header_complete() ? Phase::kBody : Phase::kHeader;
  if (phase_ == Phase::kBody && before != Phase::kBody && refuse_early()) return;
  if (reader_.wants_continue() && !wanted_continue) {
    output_ += "HTTP/1.1 100 Continue\r\n\r\n";
    write_more();
  }
  if (phase_ != before) arm_deadline();
}

// Answers before there is a body, where it could change nothing.
bool Connection::refuse_early() {
  auto refusal = context_.service.refuse_early(reader_.head());
  if (!refusal) return false;
  keep_alive_ = false;
  request_unread_ = true;
  http_1_0_ = reader_.is_http_1_0();
  head_only_ = false;
  phase_ = Phase::kAnswering;
  send_whole(*refusal);
  return true;
}

void Connection::begin_answer() {
  phase_ = Phase::kAnswering;
  first_request_ = false;
  answer_complete_ = false;
  keep_alive_ = reader_.keep_alive() && !draining_;
  http_1_0_ = reader_.is_http_1_0();
  api::HttpRequest request = reader_.take();
  head_only_ = request.method == "HEAD";
  arm_deadline();
  if (!context_.service.is_heavy(request)) {
    on_answer(answer_or_error(context_.service, request, waker_));
    return;
  }
  prepare(std::move(request));
}

void Connection::prepare(api::HttpRequest request) {
  // The posted handler alone keeps the connection, so that it ends on its strand.
  auto done = [self = shared_from_this()](api::Answer answer) mutable {
    const auto executor = self->stream_.get_executor();
    asio::post(executor, [kept = std::move(self), held = std::move(answer)]() mutable {
      kept->on_answer(std::move(held));
    });
  };
  auto job =
      std::make_unique<AnswerJob>(context_.service, waker_, std::move(request), std::move(done));
  if (Status status = context_.pool.submit(std::move(job)); !status) {
    send_own(api::error_response(status.error()));
  }
}

void Connection::on_answer(api::Answer answer) {
  if (phase_ != Phase::kAnswering) {  // the client went while the request was prepared
    if (auto* exchange = std::get_if<std::shared_ptr<api::Exchange>>(&answer)) {
      (*exchange)->abandon();
    }
    return;
  }
  if (auto* response = std::get_if<api::HttpResponse>(&answer)) {
    send_whole(*response);
    return;
  }
  exchange_ = std::move(std::get<std::shared_ptr<api::Exchange>>(answer));
  if (stopping_) exchange_->shut_down();
  poll(false);
}

void Connection::poll(bool idle) {
  if (exchange_ == nullptr || write_pending_ || phase_ != Phase::kAnswering) return;
  api::Output output = exchange_->poll(idle);
  if (output.broken) {
    exchange_ = nullptr;
    // A reset tells the client that the answer is not complete.
    boost::system::error_code ignored;
    stream_.socket().set_option(asio::socket_base::linger(true, 0), ignored);
    close();
    return;
  }
  if (output.whole != nullptr) {
    exchange_ = nullptr;
    send_whole(*output.whole);
    return;
  }
  if (output.again != nullptr) {
    exchange_ = nullptr;
    prepare(std::move(*output.again));
    return;
  }
  if (output.head != nullptr) send_head(*output.head);
  if (!output.bytes.empty()) {
    if (chunked_) {
      append_chunk(output_, output.bytes);
    } else {
      output_ += output.bytes;
    }
  }
  if (output.end) {
    exchange_ = nullptr;
    if (chunked_) output_ += kLastChunk;
    finish_answer();
    return;
  }
  if (output_.empty()) {
    if (idle) arm_deadline();
  } else {
    write_more();
  }
}

// An answer that the service knows nothing of.
void Connection::send_own(const api::HttpResponse& response) {
  context_.service.http_counters().count(response.status);
  send_whole(response);
}

void Connection::send_whole(const api::HttpResponse& response) {
  keep_alive_ = keep_alive_ && !response.close && !draining_;
  output_ += response_head(response, BodyFraming::kLength, keep_alive_);
  if (!head_only_) output_ += response.body;
  finish_answer();
}

void Connection::send_head(const api::HttpResponse& head) {
  chunked_ = !http_1_0_;
  keep_alive_ = keep_alive_ && chunked_ && !draining_;
  output_ +=
      response_head(head, chunked_ ? BodyFraming::kChunked : BodyFraming::kUntilClose, keep_alive_);
}

void Connection::finish_answer() {
  answer_complete_ = true;
  write_more();
}

void Connection::write_more() {
  if (write_pending_ || phase_ == Phase::kClosed) return;
  if (n_written_ == writing_.size()) {
    writing_ = std::exchange(output_, {});
    n_written_ = 0;
  }
  if (writing_.empty()) return;
  write_pending_ = true;
  arm_deadline();
  const std::size_t n_bytes = std::min(writing_.size() - n_written_, kWriteBytes);
  stream_.write(
      asio::buffer(writing_.data() + n_written_, n_bytes),
      [self = shared_from_this(), n_bytes](const boost::system::error_code& error, std::size_t) {
        self->n_written_ += n_bytes;
        self->on_written(error);
      });
}

void Connection::on_written(const boost::system::error_code& error) {
  write_pending_ = false;
  if (phase_ == Phase::kClosed) return;
  if (error) {
    if (exchange_ != nullptr) std::exchange(exchange_, nullptr)->abandon();
    close();
    return;
  }
  if (n_written_ < writing_.size() || !output_.empty()) {
    write_more();
    return;
  }
  writing_ = {};
  n_written_ = 0;
  if (phase_ != Phase::kAnswering) {  // after 100 Continue
    arm_deadline();
    return;
  }
  if (!answer_complete_) {
    poll(false);
    if (!write_pending_) arm_deadline();
    return;
  }
  if (!keep_alive_ || draining_) {
    linger();
    return;
  }
  phase_ = Phase::kIdle;
  arm_deadline();
  advance();
  read_more();
}

void Connection::arm_deadline() {
  const HttpOptions& options = context_.options;
  std::chrono::milliseconds timeout = options.idle_timeout;
  switch (phase_) {
    case Phase::kHandshake: timeout = options.handshake_timeout; break;
    case Phase::kIdle: timeout = first_request_ ? options.header_timeout : timeout; break;
    case Phase::kHeader: timeout = options.header_timeout; break;
    case Phase::kBody: timeout = options.body_timeout; break;
    case Phase::kAnswering:
      timeout = write_pending_ ? options.write_timeout : options.ping_interval;
      break;
    case Phase::kLingering: timeout = kLingerTime; break;
    case Phase::kClosed: return;
  }
  deadline_.expires_after(timeout);
  deadline_.async_wait(
      [self = weak_from_this(), round = ++deadline_round_](const boost::system::error_code& error) {
        const auto connection = self.lock();
        if (!error && connection != nullptr && connection->deadline_round_ == round) {
          connection->on_deadline();
        }
      });
}

void Connection::on_deadline() {
  if (phase_ == Phase::kAnswering && !write_pending_) {
    if (exchange_ == nullptr) {
      arm_deadline();  // still on the prepare pool
    } else {
      poll(true);
    }
    return;
  }
  if ((phase_ == Phase::kHeader || phase_ == Phase::kBody) && !write_pending_) {
    keep_alive_ = false;
    request_unread_ = true;
    phase_ = Phase::kAnswering;
    send_own(api::protocol_error(408, "The request did not arrive in time."));
    return;
  }
  if (exchange_ != nullptr) std::exchange(exchange_, nullptr)->abandon();
  close();
}

// While the client may still be sending, closing at once would make the kernel reset the
// connection, and the client might never see the answer. Then only our side is shut, and the rest
// discarded.
void Connection::linger() {
  const bool nothing_to_discard = stopping_ || (!request_unread_ && input_.size() == 0);
  phase_ = Phase::kLingering;
  input_.consume(input_.size());
  arm_deadline();
  stream_.finish([self = shared_from_this(), nothing_to_discard] {
    if (self->phase_ == Phase::kClosed) return;
    if (nothing_to_discard) {
      self->close();
    } else {
      self->read_more();
    }
  });
}

void Connection::close() {
  if (phase_ == Phase::kClosed) return;
  phase_ = Phase::kClosed;
  ++deadline_round_;
  deadline_.cancel();
  boost::system::error_code ignored;
  stream_.socket().close(ignored);
}

}  // namespace graft
