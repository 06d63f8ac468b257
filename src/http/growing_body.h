// GrowingBody: a body type for Beast's parser that takes memory as bytes arrive. Beast's own string
// body reserves whatever Content-Length declares, before the first byte. The parser's body limit
// bounds it. Used by one strand.
#pragma once

#include <boost/asio/buffer.hpp>
#include <boost/beast/core/buffers_range.hpp>
#include <boost/beast/core/error.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/optional.hpp>
#include <cstdint>
#include <new>
#include <string>

namespace graft {

struct GrowingBody {
  using value_type = std::string;

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
      try {
        for (const auto buffer : boost::beast::buffers_range_ref(buffers)) {
          body_.append(static_cast<const char*>(buffer.data()), buffer.size());
          n_bytes += buffer.size();
        }
      } catch (const std::bad_alloc&) {
        error = boost::beast::http::error::buffer_overflow;
      }
      return n_bytes;
    }

    void finish(boost::beast::error_code& error) { error = {}; }

   private:
    value_type& body_;
  };
};

}  // namespace graft
