#include "http/request_reader.h"

#include <boost/beast/http/error.hpp>
#include <boost/beast/http/field.hpp>
#include <boost/beast/http/rfc7230.hpp>
#include <chrono>
#include <string_view>
#include <utility>

namespace graft {
namespace {

namespace http = boost::beast::http;

std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + ('a' - 'A'));
  }
  return lower;
}

std::string_view view(boost::beast::string_view text) { return {text.data(), text.size()}; }

}  // namespace

RequestReader::RequestReader(const HttpOptions& options) : options_(options) { start_over(); }

void RequestReader::start_over() {
  parser_ = std::make_unique<Parser>();
  parser_->header_limit(options_.max_header_bytes);
  parser_->body_limit(options_.max_body_bytes);
  // A call ends with the header at the latest: trailers do not pass for a part of it.
  parser_->eager(false);
  n_header_bytes_ = 0;
  header_checked_ = false;
  wants_continue_ = false;
}

RequestReader::Progress RequestReader::fail(int status, std::string message) {
  error_status_ = status;
  error_message_ = std::move(message);
  return Progress::kFailed;
}

RequestReader::Progress RequestReader::fail(const boost::beast::error_code& error) {
  if (error == http::error::header_limit) {
    return fail(431, "The request's header, or its trailer, is larger than " +
                         std::to_string(options_.max_header_bytes) + " bytes.");
  }
  if (error == http::error::body_limit) {
    return fail(413, "The request's body is larger than " +
                         std::to_string(options_.max_body_bytes) + " bytes.");
  }
  if (error == http::error::buffer_overflow) {
    return fail(503, "There is no memory for the request's body.");
  }
  return fail(400, "The request is not valid HTTP/1.1.");
}

RequestReader::Progress RequestReader::feed(boost::beast::flat_buffer& buffer) {
  const auto too_large = boost::beast::error_code(http::error::header_limit);
  while (buffer.size() > 0 && !parser_->is_done()) {
    boost::beast::error_code error;
    const std::size_t n_used = parser_->put(buffer.data(), error);
    buffer.consume(n_used);
    if (error && error != http::error::need_more) return fail(error);
    if (!header_checked_) {
      n_header_bytes_ += n_used;
      if (n_header_bytes_ > options_.max_header_bytes) return fail(too_large);
      if (parser_->is_header_done() && check_header() == Progress::kFailed) {
        return Progress::kFailed;
      }
    }
    if (error == http::error::need_more || n_used == 0) break;
  }
  if (parser_->is_done()) return Progress::kComplete;
  // What the parser leaves is a part of a header, of a chunk's header or of a trailer.
  if (buffer.size() > options_.max_header_bytes) return fail(too_large);
  return Progress::kNeedMore;
}

RequestReader::Progress RequestReader::check_header() {
  header_checked_ = true;
  const auto& message = parser_->get();
  is_http_1_0_ = message.version() < 11;
  keep_alive_ = message.keep_alive();
  const auto n_hosts = message.count(http::field::host);
  if (n_hosts > 1 || (n_hosts == 0 && !is_http_1_0_)) {
    return fail(400, "The request must have exactly one Host header.");
  }
  // A coding that the parser does not know would hide where the body ends.
  if (message.count(http::field::transfer_encoding) > 0 &&
      lower_case(view(message[http::field::transfer_encoding])) != "chunked") {
    return fail(501, "The only transfer coding that is understood is chunked.");
  }
  const std::string_view expect = view(message[http::field::expect]);
  if (!expect.empty()) {
    if (lower_case(expect) != "100-continue") return fail(417, "The expectation is not known.");
    wants_continue_ = !is_http_1_0_ && !parser_->is_done();
  }
  keep_head();
  return Progress::kNeedMore;
}

void RequestReader::keep_head() {
  const auto& message = parser_->get();
  head_ = {};
  head_.method = std::string(view(message.method_string()));
  head_.target = std::string(view(message.target()));
  for (const auto& field : message) {
    head_.headers.emplace_back(lower_case(view(field.name_string())), view(field.value()));
  }
}

api::HttpRequest RequestReader::take() {
  api::HttpRequest request = std::move(head_);
  request.body = std::move(parser_->get().body());
  request.received_at = std::chrono::steady_clock::now();
  start_over();
  return request;
}

}  // namespace graft
