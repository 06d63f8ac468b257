// Faults that were published for other servers, where they concern the HTTP layer: each test names
// the advisory whose failure it repeats here.
#include <gtest/gtest.h>

#include "base/testing/sanitized.h"
#include "http/testing/server_fixture.h"

namespace graft {
namespace {

class HttpAdvisories : public ServerFixture {};

// CVE-2025-48956 (vLLM): a giant header took all memory.
TEST_F(HttpAdvisories, Cve202548956GiantHeaders) {
  start();
  const std::string megabytes(std::size_t{64} << 20, 'a');
  RawClient warm = client();
  ASSERT_TRUE(warm.send(get_request("/health")));
  EXPECT_EQ(warm.read_response().status, 200);
  const std::size_t before = resident_bytes();
  for (const std::string& start_of_header :
       {std::string("GET /health HTTP/1.1\r\nHost: x\r\nX: "), std::string("GET /"),
        std::string("GET /health HTTP/1.1\r\n")}) {
    RawClient one = client();
    // The server stops reading long before the end, so sending fails at some point.
    one.send(start_of_header);
    one.send(megabytes);
    const RawResponse response = one.read_response();
    EXPECT_EQ(response.status, 431);
  }
  if (!kSanitized) {
    EXPECT_LT(resident_bytes(), before + (std::size_t{8} << 20));
  }
  ASSERT_TRUE(warm.send(get_request("/health")));
  EXPECT_EQ(warm.read_response().status, 200);
}

// The same after the header, where a chunk's extension and the trailer are headers in all but name.
TEST_F(HttpAdvisories, EndlessTrailers) {
  start();
  const std::string megabytes(std::size_t{16} << 20, 'a');
  const std::size_t before = resident_bytes();
  for (const std::string& start_of_trailer :
       {std::string("0\r\nX: "), std::string("0\r\nX: y\r\n"), std::string("0;x="),
        std::string("2;x="), std::string("2\r\n{}\r\n2;x=")}) {
    RawClient one = client();
    one.send("POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
    one.send(start_of_trailer);
    one.send(megabytes);
    EXPECT_EQ(one.read_response().status, 431) << start_of_trailer;
  }
  if (!kSanitized) {
    EXPECT_LT(resident_bytes(), before + (std::size_t{8} << 20));
  }
}

// The same with bodies, declared and in chunks, that only a limit ends.
TEST_F(HttpAdvisories, Cve202548956GiantBodies) {
  start();
  RawClient declared = client();
  declared.send(
      "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 18446744073709551615\r\n\r\n");
  EXPECT_EQ(declared.read_response().status, 413);
  RawClient chunk = client();
  chunk.send(
      "POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
      "fffffffffffffff0\r\n");
  EXPECT_EQ(chunk.read_response().status, 413);
}

}  // namespace
}  // namespace graft
