// RawClient: a TCP client for tests that sends exactly the bytes it is told to, and can be rude:
// slow, half-closed, vanishing. One thread.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

namespace graft {

struct RawResponse {
  int status = 0;    // 0 = nothing that looks like a response came
  std::string head;  // status line and headers, lower case
  std::string body;  // chunks joined
  bool complete = false;
};

class RawClient {
 public:
  explicit RawClient(std::uint16_t port, int receive_buffer_bytes = 0) {
    fd_ = ::socket(AF_INET, SOCK_STREAM, 0);
    if (receive_buffer_bytes > 0) {
      ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer_bytes, sizeof receive_buffer_bytes);
    }
    timeval timeout{20, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  ~RawClient() { close(); }
  RawClient(RawClient&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)),
        connected_(other.connected_),
        pending_(std::move(other.pending_)) {}
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  bool connected() const { return connected_; }

  bool send(std::string_view bytes) const {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
    return true;
  }

  void half_close() const { ::shutdown(fd_, SHUT_WR); }
  void close() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }
  // The peer gets a reset instead of an orderly end.
  void reset() {
    linger hard{1, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    close();
  }

  // More bytes into the buffer; false at the end or on error.
  bool read_some() {
    char bytes[16384];
    const ssize_t n = ::recv(fd_, bytes, sizeof bytes, 0);
    if (n <= 0) return false;
    pending_.append(bytes, static_cast<std::size_t>(n));
    return true;
  }

  // Reads until `text` has come; what was read stays for later calls.
  bool wait_for(std::string_view text) {
    while (pending_.find(text) == std::string::npos) {
      if (!read_some()) return false;
    }
    return true;
  }

  // True when the peer has closed and nothing was left.
  bool at_end() { return pending_.empty() && !read_some(); }
  const std::string& pending() const { return pending_; }

  // The next response, whole.
  RawResponse read_response() {
    RawResponse response;
    std::size_t end = 0;
    while ((end = pending_.find("\r\n\r\n")) == std::string::npos) {
      if (!read_some()) return response;
    }
    response.head = pending_.substr(0, end + 2);
    for (char& c : response.head) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
    pending_.erase(0, end + 4);
    response.status = std::atoi(response.head.substr(9, 3).c_str());
    if (response.status < 200) {  // 100 Continue has no body
      response.complete = true;
      return response;
    }
    if (response.head.find("\r\ntransfer-encoding: chunked\r\n") != std::string::npos) {
      response.complete = read_chunks(response.body);
      return response;
    }
    const std::string key = "\r\ncontent-length: ";
    const std::size_t at = response.head.find(key);
    if (at == std::string::npos) {
      while (read_some()) {
      }
      response.body = std::exchange(pending_, {});
      response.complete = true;
      return response;
    }
    const auto length = std::strtoull(response.head.c_str() + at + key.size(), nullptr, 10);
    while (pending_.size() < length) {
      if (!read_some()) return response;
    }
    response.body = pending_.substr(0, length);
    pending_.erase(0, length);
    response.complete = true;
    return response;
  }

 private:
  bool read_chunks(std::string& body) {
    for (;;) {
      std::size_t end = 0;
      while ((end = pending_.find("\r\n")) == std::string::npos) {
        if (!read_some()) return false;
      }
      const auto length = std::strtoull(pending_.c_str(), nullptr, 16);
      while (pending_.size() < end + 2 + length + 2) {
        if (!read_some()) return false;
      }
      body += pending_.substr(end + 2, length);
      pending_.erase(0, end + 2 + length + 2);
      if (length == 0) return true;
    }
  }

  int fd_ = -1;
  bool connected_ = false;
  std::string pending_;
};

// A request with a JSON body.
inline std::string post_request(const std::string& path, const std::string& body,
                                const std::string& more_headers = {}) {
  return "POST " + path + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" +
         "Content-Length: " + std::to_string(body.size()) + "\r\n" + more_headers + "\r\n" + body;
}
inline std::string get_request(const std::string& path) {
  return "GET " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n";
}

}  // namespace graft
