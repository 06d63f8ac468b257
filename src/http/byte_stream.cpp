#include "http/byte_stream.h"

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <boost/asio/ssl/error.hpp>
#include <boost/asio/write.hpp>
#include <utility>

namespace graft {

namespace asio = boost::asio;
using boost::asio::ip::tcp;

ByteStream::ByteStream(tcp::socket socket, asio::ssl::context* tls) : socket_(std::move(socket)) {
  if (tls != nullptr) tls_ = std::make_unique<asio::ssl::stream<tcp::socket&>>(socket_, *tls);
}

void ByteStream::handshake(std::function<void(const ErrorCode&)> done) {
  tls_->async_handshake(asio::ssl::stream_base::server, std::move(done));
}

bool ByteStream::is_plain_http(const ErrorCode& handshake_error) {
  return handshake_error.category() == asio::error::get_ssl_category() &&
         ERR_GET_REASON(static_cast<unsigned long>(handshake_error.value())) == SSL_R_HTTP_REQUEST;
}

void ByteStream::read_some(asio::mutable_buffer buffer, Transferred done) {
  if (tls_ == nullptr || finished_) {
    socket_.async_read_some(buffer, std::move(done));
    return;
  }
  tls_->async_read_some(
      buffer, [this, buffer, done = std::move(done)](const ErrorCode& error, std::size_t n_bytes) {
        // After finish() TLS reads no more; what the client still sends is taken as it comes.
        if (error && finished_ && socket_.is_open()) {
          socket_.async_read_some(buffer, done);
        } else {
          done(error, n_bytes);
        }
      });
}

void ByteStream::write(asio::const_buffer buffer, Transferred done) {
  if (tls_ == nullptr) {
    asio::async_write(socket_, buffer, std::move(done));
  } else {
    asio::async_write(*tls_, buffer, std::move(done));
  }
}

void ByteStream::finish(std::function<void()> done) {
  finished_ = true;
  if (tls_ == nullptr) {
    ErrorCode ignored;
    socket_.shutdown(tcp::socket::shutdown_send, ignored);
    done();
    return;
  }
  // As if the client had said goodbye: else the shutdown would wait for it to.
  SSL_set_shutdown(tls_->native_handle(), SSL_RECEIVED_SHUTDOWN);
  tls_->async_shutdown([this, done = std::move(done)](const ErrorCode&) {
    ErrorCode ignored;
    socket_.shutdown(tcp::socket::shutdown_send, ignored);
    done();
  });
}

}  // namespace graft
