#include "http/http_server.h"

#include <sys/resource.h>

#include <algorithm>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <exception>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "api/errors.h"
#include "base/log.h"
#include "http/connection.h"
#include "http/connection_list.h"
#include "http/prepare_pool.h"
#include "http/response_text.h"
#include "http/tls_context.h"
#include "http/wake_list.h"

namespace graft {
namespace {

namespace asio = boost::asio;
using boost::asio::ip::tcp;

constexpr std::chrono::milliseconds kAcceptBackOff{100};
constexpr std::chrono::milliseconds kStopTime{2000};

// The default of 1,024 descriptors would cap connections far below what a server can hold.
void raise_descriptor_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) {
    log_warning("the limit on open files could not be raised");
  }
}

}  // namespace

class HttpServer::Core {
 public:
  Core(HttpOptions options, api::Service& service)
      : options_(std::move(options)),
        service_(service),
        io_(std::max(1, options_.n_io_threads)),
        wake_list_(std::make_shared<WakeList>(io_)),
        accept_strand_(asio::make_strand(io_)),
        acceptor_(accept_strand_),
        back_off_(accept_strand_),
        work_(asio::make_work_guard(io_)) {}

  ~Core() {
    stop_accepting();
    for (const auto& connection : connections_.all()) connection->stop();
    connections_.wait_until_empty(kStopTime);
    pool_.reset();
    wake_list_->close();
    work_.reset();
    io_.stop();
    threads_.clear();
  }

  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  Status listen();
  void run();
  std::uint16_t port() const { return port_; }
  std::size_t n_connections() const { return connections_.size(); }
  void drain(std::chrono::milliseconds timeout);

 private:
  void accept();
  void on_accept(const boost::system::error_code& error, tcp::socket socket);
  void turn_away(tcp::socket socket) const;
  void stop_accepting();

  const HttpOptions options_;
  api::Service& service_;
  std::unique_ptr<asio::ssl::context> tls_;  // null: plain
  // The connections' destructors use the list, and the io_context destroys what handlers still
  // hold.
  ConnectionList connections_;
  std::optional<ConnectionContext> context_;
  asio::io_context io_;
  std::shared_ptr<WakeList> wake_list_;
  asio::strand<asio::io_context::executor_type> accept_strand_;
  tcp::acceptor acceptor_;
  asio::steady_timer back_off_;
  bool out_of_descriptors_ = false;  // of the accept strand
  std::optional<PreparePool> pool_;
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  std::uint16_t port_ = 0;
  std::vector<std::jthread> threads_;
};

Status HttpServer::Core::listen() {
  if (options_.uses_tls()) {
    GRAFT_ASSIGN_OR_RETURN(tls_, make_tls_context(options_.certificate_file, options_.key_file));
  }
  const std::string where = options_.host + ":" + std::to_string(options_.port);
  const auto fail = [&where](const boost::system::error_code& error) {
    return Error{ErrorCode::kUnavailable, "cannot listen on " + where + ": " + error.message(), {}};
  };
  boost::system::error_code error;
  tcp::resolver resolver(io_);
  const auto found =
      resolver.resolve(options_.host, std::to_string(options_.port), tcp::resolver::passive, error);
  if (error) return fail(error);
  const tcp::endpoint endpoint = found.begin()->endpoint();
  acceptor_.open(endpoint.protocol(), error);
  if (error) return fail(error);
  acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
  if (error) return fail(error);
  acceptor_.bind(endpoint, error);
  if (error) return fail(error);
  acceptor_.listen(asio::socket_base::max_listen_connections, error);
  if (error) return fail(error);
  port_ = acceptor_.local_endpoint(error).port();
  if (error) return fail(error);
  return {};
}

void HttpServer::Core::run() {
  pool_.emplace(std::max(1, options_.n_prepare_threads), options_.max_queued_preparations);
  context_.emplace(
      ConnectionContext{options_, service_, *pool_, connections_, wake_list_, tls_.get()});
  asio::post(accept_strand_, [this] { accept(); });
  for (int i = 0; i < std::max(1, options_.n_io_threads); ++i) {
    threads_.emplace_back([this] {
      while (!io_.stopped()) {
        try {
          io_.run();
        } catch (const std::exception& error) {
          // Memory ran out in one connection's step; the others go on.
          log_error(std::string("an io thread recovered from: ") + error.what());
        }
      }
    });
  }
}

void HttpServer::Core::accept() {
  acceptor_.async_accept(asio::make_strand(io_),
                         [this](const boost::system::error_code& error, tcp::socket socket) {
                           on_accept(error, std::move(socket));
                         });
}

void HttpServer::Core::on_accept(const boost::system::error_code& error, tcp::socket socket) {
  if (!acceptor_.is_open()) return;
  if (error) {
    // Out of descriptors or memory: trying again at once would spin.
    if (!std::exchange(out_of_descriptors_, true)) {
      log_warning("accepting a connection failed, trying again until it works: " + error.message());
    }
    back_off_.expires_after(kAcceptBackOff);
    back_off_.async_wait([this](const boost::system::error_code& cancelled) {
      if (!cancelled && acceptor_.is_open()) accept();
    });
    return;
  }
  out_of_descriptors_ = false;
  if (connections_.size() >= options_.max_connections) {
    turn_away(std::move(socket));
  } else {
    const auto connection = std::make_shared<Connection>(std::move(socket), *context_);
    connections_.add(connection);
    connection->start();
    // drain() sets the state, then looks at the list; here it is the other way round.
    if (service_.state() == api::Service::State::kDraining) connection->drain();
  }
  accept();
}

void HttpServer::Core::turn_away(tcp::socket socket) const {
  const api::HttpResponse response = api::protocol_error(
      503, "The server has its " + std::to_string(options_.max_connections) + " connections.");
  const std::string bytes = response_head(response, BodyFraming::kLength, false) + response.body;
  if (tls_ != nullptr) return;  // closing says it: a handshake is what the limit is to save
  boost::system::error_code ignored;
  socket.non_blocking(true, ignored);
  socket.write_some(asio::buffer(bytes), ignored);
  socket.shutdown(tcp::socket::shutdown_send, ignored);
}

void HttpServer::Core::stop_accepting() {
  asio::post(accept_strand_, [this] {
    boost::system::error_code ignored;
    acceptor_.close(ignored);
    back_off_.cancel();
  });
}

void HttpServer::Core::drain(std::chrono::milliseconds timeout) {
  service_.set_state(api::Service::State::kDraining);
  stop_accepting();
  for (const auto& connection : connections_.all()) connection->drain();
  if (connections_.wait_until_empty(timeout)) return;
  for (const auto& connection : connections_.all()) connection->stop();
  connections_.wait_until_empty(kStopTime);
}

HttpServer::HttpServer(std::unique_ptr<Core> core) : core_(std::move(core)) {}
HttpServer::~HttpServer() = default;

Result<std::unique_ptr<HttpServer>> HttpServer::start(HttpOptions options, api::Service& service) {
  raise_descriptor_limit();
  auto core = std::make_unique<Core>(std::move(options), service);
  GRAFT_RETURN_IF_ERROR(core->listen());
  core->run();
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(core)));
}

std::uint16_t HttpServer::port() const { return core_->port(); }
std::size_t HttpServer::n_connections() const { return core_->n_connections(); }
void HttpServer::drain(std::chrono::milliseconds timeout) { core_->drain(timeout); }

}  // namespace graft
