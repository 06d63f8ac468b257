// Connection: one client on one socket. Reads requests, has them answered, writes the answers.
//
// Everything runs on the connection's strand, except on_wake(), drain() and stop(), which any
// thread may call. One read is always pending, also while an answer is under way: end of file or an
// error then means that the client has gone, and the work is abandoned at once. A write carries all
// that is ready; while it is under way nothing more is taken from the exchange. One deadline at a
// time: the TLS handshake, waiting for a request, its header, its body, a write, or silence in a
// stream.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "api/service.h"
#include "http/byte_stream.h"
#include "http/connection_list.h"
#include "http/http_options.h"
#include "http/prepare_pool.h"
#include "http/request_reader.h"
#include "http/response_text.h"
#include "http/wake_list.h"

namespace graft {

// What all connections of a server share; outlives them.
struct ConnectionContext {
  const HttpOptions& options;
  api::Service& service;
  PreparePool& pool;
  ConnectionList& connections;
  std::shared_ptr<WakeList> wake_list;
  boost::asio::ssl::context* tls = nullptr;  // null: no TLS
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  // Requires: the socket's executor is a strand.
  Connection(boost::asio::ip::tcp::socket socket, const ConnectionContext& context);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  void start();
  void on_wake();
  // Ends when the answer under way is complete; at once when there is none.
  void drain();
  // Ends the answer under way with an error.
  void stop();

 private:
  enum class Phase {
    kHandshake,  // of TLS
    kIdle,       // between requests
    kHeader,
    kBody,
    kAnswering,  // a request is being prepared or answered
    kLingering,  // our side is shut; what the client still sends is discarded
    kClosed,
  };

  void begin_handshake();
  void on_handshake(const boost::system::error_code& error);
  void begin_reading();
  void read_more();
  void on_read(const boost::system::error_code& error, std::size_t n_bytes);
  void on_gone();
  void advance();
  bool refuse_early();
  void begin_answer();
  void prepare(api::HttpRequest request);
  void on_answer(api::Answer answer);
  void poll(bool idle);
  void send_own(const api::HttpResponse& response);
  void send_whole(const api::HttpResponse& response);
  void send_head(const api::HttpResponse& head);
  void finish_answer();
  void write_more();
  void on_written(const boost::system::error_code& error);
  void arm_deadline();
  void on_deadline();
  void linger();
  void close();

  bool at_rest() const {
    return phase_ == Phase::kHandshake || phase_ == Phase::kIdle || phase_ == Phase::kHeader;
  }

  ByteStream stream_;
  boost::asio::steady_timer deadline_;
  const ConnectionContext& context_;
  std::shared_ptr<ConnectionWaker> waker_;

  Phase phase_ = Phase::kIdle;
  // Reads land here first: the input may be consumed while a read is pending.
  std::vector<char> read_buffer_;
  boost::beast::flat_buffer input_;
  RequestReader reader_;
  bool read_pending_ = false;
  std::size_t n_discarded_bytes_ = 0;

  std::shared_ptr<api::Exchange> exchange_;
  bool first_request_ = true;
  bool keep_alive_ = true;  // of the request being answered
  bool http_1_0_ = false;
  bool head_only_ = false;        // HEAD: the answer to GET without its body
  bool chunked_ = false;          // the streamed body is in chunks, else until close
  bool answer_complete_ = false;  // all of it is in output_ or on its way
  bool request_unread_ = false;   // it was answered before its end
  bool draining_ = false;
  bool stopping_ = false;

  std::string output_;         // ready to be written
  std::string writing_;        // being written
  std::size_t n_written_ = 0;  // of writing_
  bool write_pending_ = false;
  std::uint64_t deadline_round_ = 0;  // tells a late timer from the present one
};

}  // namespace graft
