// HttpServer: HTTP/1.1 over TCP, or over TLS, in front of an api::Service. Owns the io threads, the
// prepare pool and all connections. start() and drain() are for the main thread; the rest is
// thread-safe. The service, and everything it borrows, must outlive the server.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "api/service.h"
#include "base/result.h"
#include "http/http_options.h"

namespace graft {

class HttpServer {
 public:
  // Binds and listens; answers from then on. Errors: kUnavailable when the address cannot be used,
  // kInvalidArgument when the certificate or its key cannot.
  static Result<std::unique_ptr<HttpServer>> start(HttpOptions options, api::Service& service);

  // Stops at once; drain() before is the polite way.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  std::uint16_t port() const;
  std::size_t n_connections() const;

  // Stops accepting, closes idle connections, makes /health 503, and lets answers finish. What is
  // left after `timeout` ends with an error event. Returns when all connections are closed.
  void drain(std::chrono::milliseconds timeout);

 private:
  class Core;
  explicit HttpServer(std::unique_ptr<Core> core);

  std::unique_ptr<Core> core_;
};

}  // namespace graft
