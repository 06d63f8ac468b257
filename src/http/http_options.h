// HttpOptions: the limits and timeouts of the HTTP server. Plain values.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

namespace graft {

struct HttpOptions {
  std::string host = "127.0.0.1";
  std::uint16_t port = 8080;  // 0 = any free one
  // PEM files; both or none. With them the server speaks TLS only.
  std::string certificate_file = {};
  std::string key_file = {};
  int n_io_threads = 1;
  int n_prepare_threads = 1;
  std::size_t max_connections = 1024;
  std::size_t max_queued_preparations = 256;  // requests that wait for the prepare pool
  std::uint32_t max_header_bytes = 32U << 10;
  std::uint64_t max_body_bytes = std::uint64_t{8} << 20;
  std::size_t max_pipelined_bytes = std::size_t{64} << 10;  // kept while an answer is under way
  std::chrono::milliseconds handshake_timeout{5'000};       // of TLS
  std::chrono::milliseconds header_timeout{10'000};         // from a request's first byte
  std::chrono::milliseconds body_timeout{30'000};
  std::chrono::milliseconds idle_timeout{75'000};   // between requests
  std::chrono::milliseconds write_timeout{10'000};  // a piece of at most 256 KiB
  std::chrono::milliseconds ping_interval{10'000};  // silence after which a stream says something

  bool uses_tls() const { return !certificate_file.empty(); }
};

}  // namespace graft
