// A connection's bytes: whatever they are, and however they are cut, the reader gives the same
// requests, keeps its limits, and ends.
#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "api/routes.h"
#include "http/request_reader.h"

namespace {

using graft::RequestReader;
using Bytes = std::span<const std::uint8_t>;

void require(bool condition) {
  if (!condition) std::abort();
}

graft::HttpOptions small_limits() {
  graft::HttpOptions options;
  options.max_header_bytes = 1024;
  options.max_body_bytes = 4096;
  return options;
}

struct Seen {
  std::vector<graft::api::HttpRequest> requests;
  int error_status = 0;  // 0 = none
};

void check(const graft::api::HttpRequest& request, const graft::HttpOptions& options) {
  require(request.body.size() <= options.max_body_bytes);
  std::size_t n_header_bytes = request.method.size() + request.target.size();
  for (const auto& [name, value] : request.headers) {
    n_header_bytes += name.size() + value.size();
    for (const char c : name) require(c < 'A' || c > 'Z');
    require(value.find_first_of("\r\n") == std::string::npos);
  }
  require(n_header_bytes <= options.max_header_bytes);
  graft::api::find_route(request.method, request.target);
}

// Feeds the bytes in pieces of at most `n_piece` bytes, as a connection would.
Seen read_all(Bytes bytes, std::size_t n_piece, const graft::HttpOptions& options) {
  Seen seen;
  RequestReader reader(options);
  boost::beast::flat_buffer buffer;
  while (!bytes.empty()) {
    const Bytes piece = bytes.first(std::min(n_piece, bytes.size()));
    bytes = bytes.subspan(piece.size());
    boost::asio::buffer_copy(buffer.prepare(piece.size()),
                             boost::asio::buffer(piece.data(), piece.size()));
    buffer.commit(piece.size());
    while (buffer.size() > 0) {
      const RequestReader::Progress progress = reader.feed(buffer);
      if (progress == RequestReader::Progress::kNeedMore) break;
      if (progress == RequestReader::Progress::kFailed) {
        seen.error_status = reader.error_status();
        require(seen.error_status >= 400 && seen.error_status <= 599);
        require(!reader.error_message().empty());
        return seen;
      }
      seen.requests.push_back(reader.take());
      check(seen.requests.back(), options);
    }
    require(buffer.size() <= options.max_header_bytes + n_piece);
  }
  return seen;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const Bytes bytes(data, size);
  const graft::HttpOptions options = small_limits();
  const Seen whole = read_all(bytes, size + 1, options);
  const Seen pieces = read_all(bytes, 7, options);
  // Where a limit strikes may depend on how the bytes come; what was read before does not.
  const std::size_t n = std::min(whole.requests.size(), pieces.requests.size());
  for (std::size_t i = 0; i < n; ++i) {
    require(whole.requests[i].method == pieces.requests[i].method);
    require(whole.requests[i].target == pieces.requests[i].target);
    require(whole.requests[i].headers == pieces.requests[i].headers);
    require(whole.requests[i].body == pieces.requests[i].body);
  }
  if (whole.error_status == 0 && pieces.error_status == 0) {
    require(whole.requests.size() == pieces.requests.size());
  }
  return 0;
}
