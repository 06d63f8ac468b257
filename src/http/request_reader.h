// RequestReader: bytes of one connection -> requests, one after another. Checks what Beast's parser
// leaves open: Host, transfer codings, limits of a chunk's header and of trailers, which are read
// and dropped. Used by one strand.
#pragma once

#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <cstdint>
#include <memory>
#include <string>

#include "api/exchange.h"
#include "http/growing_body.h"
#include "http/http_options.h"

namespace graft {

class RequestReader {
 public:
  enum class Progress { kNeedMore, kComplete, kFailed };

  explicit RequestReader(const HttpOptions& options);

  // Consumes what belongs to the current request; what follows it stays in `buffer`. After
  // kNeedMore no more than a header's limit does.
  Progress feed(boost::beast::flat_buffer& buffer);

  // Of a request that is under way or complete.
  bool header_complete() const { return header_checked_; }
  bool wants_continue() const { return wants_continue_; }
  bool keep_alive() const { return keep_alive_; }
  bool is_http_1_0() const { return is_http_1_0_; }

  // The request without its body. Requires: header_complete().
  const api::HttpRequest& head() const { return head_; }
  // Requires: feed() returned kComplete. Starts over for the next request.
  api::HttpRequest take();

  // Requires: feed() returned kFailed.
  int error_status() const { return error_status_; }
  const std::string& error_message() const { return error_message_; }

 private:
  using Parser = boost::beast::http::request_parser<GrowingBody>;

  void start_over();
  Progress fail(int status, std::string message);
  Progress fail(const boost::beast::error_code& error);
  // What the standard asks of a header beyond its grammar.
  Progress check_header();
  void keep_head();

  const HttpOptions& options_;
  std::unique_ptr<Parser> parser_;
  std::size_t n_header_bytes_ = 0;
  api::HttpRequest head_;
  bool header_checked_ = false;
  bool wants_continue_ = false;
  bool keep_alive_ = true;
  bool is_http_1_0_ = false;
  int error_status_ = 400;
  std::string error_message_;
};

}  // namespace graft
