#include "http/client/load_stream.h"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/write.hpp>
#include <utility>

namespace graft {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::asio::ip::tcp;
using boost::system::error_code;

constexpr std::size_t kReadBytes = std::size_t{16} << 10;
constexpr std::size_t kMaxHeaderBytes = std::size_t{64} << 10;

std::string one_line(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  }
  text.resize(std::min<std::size_t>(text.size(), 200));
  return text;
}

}  // namespace

LoadStream::LoadStream(asio::io_context& io, const Endpoints& endpoints, LoadStreamOwner& owner)
    : socket_(io), endpoints_(endpoints), owner_(owner), bytes_(kReadBytes) {}

void LoadStream::start(std::string request, LoadAnswer& answer) {
  request_ = std::move(request);
  answer_ = &answer;
  sent_at_ = LoadClock::now();
  parser_ = std::make_unique<AnswerParser>();
  parser_->eager(true);
  parser_->header_limit(kMaxHeaderBytes);
  parser_->body_limit(boost::none);
  input_.clear();
  ++round_;
  if (socket_.is_open()) {
    reused_ = true;
    write();
  } else {
    connect();
  }
}

void LoadStream::connect() {
  reused_ = false;
  asio::async_connect(socket_, endpoints_,
                      [this, round = round_](const error_code& error, const tcp::endpoint&) {
                        if (round == round_) on_connected(error);
                      });
}

void LoadStream::on_connected(const error_code& error) {
  if (error) return finish("cannot connect: " + error.message());
  error_code ignored;
  socket_.set_option(tcp::no_delay(true), ignored);
  write();
}

// An answer may come before all is written, so a failed write is left to the read.
void LoadStream::write() {
  writing_ = true;
  asio::async_write(socket_, asio::buffer(request_),
                    in_this_round([this](const error_code&, std::size_t) { writing_ = false; }));
  read();
}

void LoadStream::read() {
  socket_.async_read_some(asio::buffer(bytes_),
                          in_this_round([this](const error_code& error, std::size_t n_bytes) {
                            on_read(error, n_bytes);
                          }));
}

void LoadStream::on_read(const error_code& error, std::size_t n_bytes) {
  if (error) return on_end(error);
  parser_->get().body().set_time(LoadClock::now());
  asio::buffer_copy(input_.prepare(n_bytes), asio::buffer(bytes_, n_bytes));
  input_.commit(n_bytes);
  while (input_.size() > 0 && !parser_->is_done()) {
    error_code fault;
    const std::size_t n_used = parser_->put(input_.data(), fault);
    input_.consume(n_used);
    if (fault && fault != http::error::need_more)
      return finish("no HTTP answer: " + fault.message());
    if (fault == http::error::need_more || n_used == 0) break;
  }
  if (!parser_->is_done()) return read();
  finish(stream_failure());
}

// The connection is at its end, which may be the end of the answer.
void LoadStream::on_end(const error_code& error) {
  if (reused_ && !parser_->got_some()) {
    error_code ignored;
    socket_.close(ignored);
    ++round_;
    return connect();
  }
  if (error == asio::error::eof && parser_->is_header_done()) {
    error_code fault;
    parser_->put_eof(fault);
    if (!fault) return finish(stream_failure());
  }
  finish("the connection ended early: " + error.message());
}

// What is wrong with a whole answer; "" when nothing is.
std::string LoadStream::stream_failure() const {
  const EventScanner& events = parser_->get().body();
  if (const unsigned status = parser_->get().result_int(); status != 200) {
    return "status " + std::to_string(status) + ": " + one_line(events.beginning());
  }
  if (!events.error_event().empty()) return "error event: " + one_line(events.error_event());
  if (!events.done()) return "the stream ended without [DONE]";
  return {};
}

void LoadStream::fail(const std::string& reason) {
  if (busy()) finish(reason);
}

void LoadStream::finish(std::string failure) {
  ++round_;
  LoadAnswer& answer = *std::exchange(answer_, nullptr);
  answer.end = LoadClock::now();
  const bool complete = parser_->is_done();
  if (parser_->is_header_done()) answer.status = static_cast<int>(parser_->get().result_int());
  answer.failure = std::move(failure);
  answer.text_times = parser_->get().body().text_times();
  answer.usage_event = parser_->get().body().usage_event();
  if (!complete || writing_ || !parser_->keep_alive()) {
    error_code ignored;
    socket_.close(ignored);
  }
  owner_.on_finished(*this);
}

}  // namespace graft
