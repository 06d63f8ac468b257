// ByteStream: a client's socket, plain or under TLS. At most one read and one write are under way
// at a time. Everything runs on the socket's strand, completions too; their functions keep the
// stream's owner alive.
#pragma once

#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <cstddef>
#include <functional>
#include <memory>

namespace graft {

class ByteStream {
 public:
  using ErrorCode = boost::system::error_code;
  using Transferred = std::function<void(const ErrorCode&, std::size_t)>;

  // `tls` null: plain. It outlives the stream.
  ByteStream(boost::asio::ip::tcp::socket socket, boost::asio::ssl::context* tls);
  ByteStream(const ByteStream&) = delete;
  ByteStream& operator=(const ByteStream&) = delete;

  bool is_tls() const { return tls_ != nullptr; }
  // For what concerns the connection itself: options, closing.
  boost::asio::ip::tcp::socket& socket() { return socket_; }
  auto get_executor() { return socket_.get_executor(); }

  // Requires: is_tls(), called once, before everything below.
  void handshake(std::function<void(const ErrorCode&)> done);
  // Whether a handshake failed because the client speaks HTTP without TLS.
  static bool is_plain_http(const ErrorCode& handshake_error);

  void read_some(boost::asio::mutable_buffer buffer, Transferred done);
  // All of the buffer.
  void write(boost::asio::const_buffer buffer, Transferred done);
  // Says that nothing more is sent. Requires: no write under way. What is read afterwards is only
  // good for being discarded.
  void finish(std::function<void()> done);

 private:
  boost::asio::ip::tcp::socket socket_;
  std::unique_ptr<boost::asio::ssl::stream<boost::asio::ip::tcp::socket&>> tls_;
  bool finished_ = false;
};

}  // namespace graft
