// TlsClient: a TLS client for tests, blocking, over OpenSSL. Certificates are not checked. One
// thread.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace graft {

class TlsClient {
 public:
  // `max_version`: TLS1_2_VERSION and so on; 0 = the newest.
  explicit TlsClient(std::uint16_t port, int max_version = 0)
      : context_(SSL_CTX_new(TLS_client_method()), SSL_CTX_free),
        fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    timeval timeout{20, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) return;
    SSL_CTX_set_security_level(context_.get(), 0);
    SSL_CTX_set_min_proto_version(context_.get(), TLS1_VERSION);
    SSL_CTX_set_max_proto_version(context_.get(), max_version);
    ssl_.reset(SSL_new(context_.get()));
    SSL_set_fd(ssl_.get(), fd_);
    connected_ = SSL_connect(ssl_.get()) == 1;
  }
  ~TlsClient() {
    ssl_.reset();
    ::close(fd_);
  }
  TlsClient(const TlsClient&) = delete;
  TlsClient& operator=(const TlsClient&) = delete;

  bool connected() const { return connected_; }
  std::string version() const { return SSL_get_version(ssl_.get()); }

  bool send(std::string_view bytes) {
    return SSL_write(ssl_.get(), bytes.data(), static_cast<int>(bytes.size())) ==
           static_cast<int>(bytes.size());
  }
  // Reads until `text` has come; false when the end comes first.
  bool wait_for(std::string_view text) {
    while (received_.find(text) == std::string::npos) {
      if (!read_some()) return false;
    }
    return true;
  }
  // Reads to the end. True when the server said goodbye as TLS asks it to.
  bool read_to_clean_end() {
    while (read_some()) {
    }
    return SSL_get_shutdown(ssl_.get()) == SSL_RECEIVED_SHUTDOWN;
  }
  const std::string& received() const { return received_; }
  void forget() { received_.clear(); }
  // The end of the connection itself, without a goodbye.
  void cut() { ::shutdown(fd_, SHUT_RDWR); }

 private:
  bool read_some() {
    char bytes[16384];
    const int n = SSL_read(ssl_.get(), bytes, sizeof bytes);
    if (n <= 0) return false;
    received_.append(bytes, static_cast<std::size_t>(n));
    return true;
  }

  std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context_;
  std::unique_ptr<SSL, decltype(&SSL_free)> ssl_{nullptr, SSL_free};
  int fd_;
  bool connected_ = false;
  std::string received_;
};

}  // namespace graft
