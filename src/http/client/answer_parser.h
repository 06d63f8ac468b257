// AnswerParser: Beast's response parser with an EventScanner as the body, so that the bytes of a
// streamed answer go by without being kept. Used by one thread.
#pragma once

#include <boost/asio/buffer.hpp>
#include <boost/beast/core/buffers_range.hpp>
#include <boost/beast/core/error.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/optional.hpp>
#include <cstdint>

#include "http/client/event_scanner.h"

namespace graft {

struct ScannedBody {
  using value_type = EventScanner;

  // The names and signatures are Beast's concept BodyReader.
  class reader {  // NOLINT(readability-identifier-naming)
   public:
    template <bool kIsRequest, class Fields>
    reader(boost::beast::http::header<kIsRequest, Fields>&, value_type& body) : body_(body) {}

    void init(const boost::optional<std::uint64_t>&, boost::beast::error_code& error) {
      error = {};
    }

    template <class Buffers>
    std::size_t put(const Buffers& buffers, boost::beast::error_code& error) {
      error = {};
      std::size_t n_bytes = 0;
      for (const auto buffer : boost::beast::buffers_range_ref(buffers)) {
        body_.feed({static_cast<const char*>(buffer.data()), buffer.size()});
        n_bytes += buffer.size();
      }
      return n_bytes;
    }

    void finish(boost::beast::error_code& error) { error = {}; }

   private:
    value_type& body_;
  };
};

using AnswerParser = boost::beast::http::response_parser<ScannedBody>;

}  // namespace graft
