// LoadStream: one connection of a load generator. Sends a request, follows its answer, and tells
// its owner when that has ended; then it may be given the next. Connects when needed. A kept
// connection that the server closed before the first byte of an answer is opened anew, once.
// Used by one thread; the owner outlives it.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <memory>
#include <string>
#include <vector>

#include "http/client/answer_parser.h"
#include "http/client/load_client.h"

namespace graft {

class LoadStream;

class LoadStreamOwner {
 public:
  virtual ~LoadStreamOwner() = default;
  virtual void on_finished(LoadStream& stream) = 0;
};

class LoadStream {
 public:
  using Endpoints = boost::asio::ip::tcp::resolver::results_type;

  LoadStream(boost::asio::io_context& io, const Endpoints& endpoints, LoadStreamOwner& owner);

  // Requires: nothing is under way. `answer` gets the outcome and outlives it.
  void start(std::string request, LoadAnswer& answer);
  // Ends what is under way, if anything is.
  void fail(const std::string& reason);
  bool busy() const { return answer_ != nullptr; }
  LoadClock::time_point sent_at() const { return sent_at_; }

 private:
  void connect();
  void on_connected(const boost::system::error_code& error);
  void write();
  void read();
  void on_read(const boost::system::error_code& error, std::size_t n_bytes);
  void on_end(const boost::system::error_code& error);
  void finish(std::string failure);
  std::string stream_failure() const;

  // A handler of an earlier connection or request has nothing to say.
  template <typename Function>
  auto in_this_round(Function function) {
    return [this, round = round_, function](const boost::system::error_code& error,
                                            std::size_t n_bytes) {
      if (round == round_) function(error, n_bytes);
    };
  }

  boost::asio::ip::tcp::socket socket_;
  const Endpoints& endpoints_;
  LoadStreamOwner& owner_;
  std::string request_;
  LoadAnswer* answer_ = nullptr;
  LoadClock::time_point sent_at_;
  std::unique_ptr<AnswerParser> parser_;
  boost::beast::flat_buffer input_;  // a header whose end has not come
  std::vector<char> bytes_;
  bool reused_ = false;   // the connection has answered before
  bool writing_ = false;  // the request is not yet all sent
  unsigned round_ = 0;
};

}  // namespace graft
