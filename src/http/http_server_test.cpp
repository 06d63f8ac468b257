#include "http/http_server.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "base/testing/sanitized.h"
#include "http/testing/server_fixture.h"

namespace graft {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

class HttpServerTest : public ServerFixture {};

TEST_F(HttpServerTest, AnswersAndKeepsTheConnection) {
  start();
  RawClient one = client();
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(one.send(post_request(kChat, kPlainBody)));
    const RawResponse response = one.read_response();
    EXPECT_EQ(response.status, 200);
    EXPECT_NE(response.body.find("Hello world"), std::string::npos) << response.body;
    EXPECT_NE(response.head.find("connection: keep-alive"), std::string::npos);
  }
}

TEST_F(HttpServerTest, StreamsInChunks) {
  start();
  RawClient one = client();
  ASSERT_TRUE(one.send(post_request(kChat, kStreamBody)));
  const RawResponse response = one.read_response();
  EXPECT_EQ(response.status, 200);
  EXPECT_TRUE(response.complete);
  EXPECT_NE(response.head.find("content-type: text/event-stream"), std::string::npos);
  EXPECT_TRUE(response.body.ends_with("data: [DONE]\n\n")) << response.body;
  ASSERT_TRUE(one.send(get_request("/health")));
  EXPECT_EQ(one.read_response().status, 200);
}

TEST_F(HttpServerTest, Http10StreamsUntilClose) {
  start();
  RawClient one = client();
  ASSERT_TRUE(one.send("POST /v1/chat/completions HTTP/1.0\r\nContent-Length: " +
                       std::to_string(kStreamBody.size()) + "\r\n\r\n" + kStreamBody));
  const RawResponse response = one.read_response();
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.head.find("chunked"), std::string::npos);
  EXPECT_TRUE(response.body.ends_with("data: [DONE]\n\n")) << response.body;
}

TEST_F(HttpServerTest, PipelinedRequestsAreAnsweredInOrder) {
  start();
  RawClient one = client();
  ASSERT_TRUE(one.send(get_request("/version") + post_request(kChat, kPlainBody) +
                       get_request("/health") + get_request("/nowhere")));
  EXPECT_NE(one.read_response().body.find("version"), std::string::npos);
  EXPECT_NE(one.read_response().body.find("chat.completion"), std::string::npos);
  EXPECT_NE(one.read_response().body.find("ok"), std::string::npos);
  EXPECT_EQ(one.read_response().status, 404);
}

TEST_F(HttpServerTest, RequestsArriveByteByByte) {
  start();
  RawClient one = client();
  for (const char c : post_request(kChat, kPlainBody)) ASSERT_TRUE(one.send({&c, 1}));
  EXPECT_EQ(one.read_response().status, 200);
}

TEST_F(HttpServerTest, ChunkedBodiesAreRead) {
  start();
  RawClient one = client();
  const std::string head =
      "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
  ASSERT_TRUE(one.send(head + "5\r\n" + kPlainBody.substr(0, 5) + "\r\n"));
  char size[16];
  std::snprintf(size, sizeof size, "%zx", kPlainBody.size() - 5);
  ASSERT_TRUE(one.send(std::string(size) + "\r\n" + kPlainBody.substr(5) + "\r\n0\r\n\r\n"));
  EXPECT_EQ(one.read_response().status, 200);
}

TEST_F(HttpServerTest, Expect100IsAnswered) {
  start();
  RawClient one = client();
  ASSERT_TRUE(one.send("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: " +
                       std::to_string(kPlainBody.size()) + "\r\nExpect: 100-continue\r\n\r\n"));
  ASSERT_TRUE(one.wait_for("HTTP/1.1 100 Continue\r\n\r\n"));
  one.read_response();
  ASSERT_TRUE(one.send(kPlainBody));
  EXPECT_EQ(one.read_response().status, 200);
}

TEST_F(HttpServerTest, WhatIsRefusedAnywayIsRefusedBeforeItsBody) {
  start();
  const std::string length = " HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n";
  const auto status = [&](const std::string& request) {
    RawClient one = client();
    EXPECT_TRUE(one.send(request + "\r\n{"));
    const RawResponse response = one.read_response();
    EXPECT_NE(response.head.find("connection: close"), std::string::npos);
    EXPECT_NE(response.head.find("x-request-id: "), std::string::npos);
    return response.status;
  };
  EXPECT_EQ(status("POST /nowhere" + length), 404);
  EXPECT_EQ(status("POST /health" + length), 405);
  keys_.set(std::make_shared<const api::KeyRing>(
      api::KeyRing::create({}, /*is_closed=*/true, {}).value()));
  EXPECT_EQ(status("POST /v1/completions" + length), 401);
  EXPECT_EQ(status("POST /v1/completions" + length + "Expect: 100-continue\r\n"), 401);
  EXPECT_EQ(status("POST /v1/completions" + length + "Authorization: Bearer k\r\n"), 401);
  // A body that is there with its header gets the same, and may be followed by another request.
  RawClient one = client();
  ASSERT_TRUE(one.send(post_request(kChat, kPlainBody) + get_request("/health")));
  EXPECT_EQ(one.read_response().status, 401);
  EXPECT_EQ(one.read_response().status, 200);
}

TEST_F(HttpServerTest, BeforeThereIsAModelHealthSaysSo) {
  api::Service loading;
  server_ = HttpServer::start(options_, loading).value();
  RawClient one = client();
  for (const char* path : {"/health", "/v1/models"}) {
    ASSERT_TRUE(one.send(get_request(path)));
    const RawResponse response = one.read_response();
    EXPECT_EQ(response.status, 503);
    EXPECT_NE(response.head.find("retry-after: 1"), std::string::npos);
  }
  loading.open({generation_, registry_, prompts_, api::test_facts()});
  loading.set_state(api::Service::State::kReady);
  ASSERT_TRUE(one.send(post_request(kChat, kPlainBody)));
  EXPECT_EQ(one.read_response().status, 200);
  server_.reset();
}

TEST_F(HttpServerTest, HeadHasNoBody) {
  start();
  RawClient one = client();
  ASSERT_TRUE(one.send("HEAD /health HTTP/1.1\r\nHost: x\r\n\r\n"));
  ASSERT_TRUE(one.wait_for("\r\n\r\n"));
  EXPECT_TRUE(one.pending().ends_with("\r\n\r\n"));
  EXPECT_TRUE(one.pending().starts_with("HTTP/1.1 200 OK"));
}

TEST_F(HttpServerTest, FullPreparePoolIs429) {
  options_.max_queued_preparations = 0;
  start();
  RawClient one = client();
  ASSERT_TRUE(one.send(post_request(kChat, kStreamBody)));
  const RawResponse response = one.read_response();
  EXPECT_EQ(response.status, 429);
  EXPECT_NE(response.head.find("retry-after: 1"), std::string::npos);
  ASSERT_TRUE(one.send(get_request("/health")));
  EXPECT_EQ(one.read_response().status, 200);
}

struct BadRequest {
  const char* name;
  std::string bytes;
  int status;
};

TEST_F(HttpServerTest, BadHttpIsRefusedAndTheConnectionCloses) {
  options_.max_body_bytes = 1000;
  start();
  const std::string post = "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n";
  const BadRequest cases[] = {
      {"garbage", "\x01\x02\x03\r\n\r\n", 400},
      {"tls", std::string("\x16\x03\x01\x02\x00\x01\x00", 7) + "\r\n\r\n", 400},
      {"http2 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400},
      {"no host", "GET /health HTTP/1.1\r\n\r\n", 400},
      {"two hosts", "GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400},
      {"negative length", post + "Content-Length: -1\r\n\r\n", 400},
      {"word length", post + "Content-Length: many\r\n\r\n", 400},
      {"huge length", post + "Content-Length: 99999999999999999999999\r\n\r\n", 400},
      {"two lengths", post + "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", 400},
      {"length and chunked",
       post + "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
      {"unknown coding", post + "Transfer-Encoding: gzip\r\n\r\n", 501},
      {"bad chunk", post + "Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400},
      {"declared too large", post + "Content-Length: 1001\r\n\r\n", 413},
      {"chunks too large",
       post + "Transfer-Encoding: chunked\r\n\r\n3e9\r\n" + std::string(1001, 'a'), 413},
      {"expectation", post + "Content-Length: 2\r\nExpect: tea\r\n\r\n{}", 417},
      {"large header", "GET /health HTTP/1.1\r\nHost: x\r\nX: " + std::string(40000, 'a'), 431},
      {"many headers",
       [] {
         std::string bytes = "GET /health HTTP/1.1\r\nHost: x\r\n";
         for (int i = 0; i < 5000; ++i) bytes += "X-" + std::to_string(i) + ": y\r\n";
         return bytes + "\r\n";
       }(),
       431},
      {"long target", "GET /" + std::string(70000, 'a') + " HTTP/1.1\r\n", 431},
      {"long target before a long header",
       "GET /" + std::string(20000, 'a') + " HTTP/1.1\r\nX: " + std::string(20000, 'a') +
           "\r\nHost: x\r\n\r\n",
       431},
      {"host in the trailer",
       "POST /v1/chat/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
       "2\r\n{}\r\n0\r\nHost: x\r\n\r\n",
       400},
  };
  for (const BadRequest& bad : cases) {
    RawClient one = client();
    one.send(bad.bytes);
    const RawResponse response = one.read_response();
    EXPECT_EQ(response.status, bad.status) << bad.name << ": " << response.head;
    EXPECT_NE(response.body.find(R"({"error":{"message":)"), std::string::npos) << bad.name;
    EXPECT_NE(response.head.find("connection: close"), std::string::npos) << bad.name;
    EXPECT_TRUE(one.at_end()) << bad.name;
  }
  const auto n_bad = std::size(cases);
  EXPECT_EQ(n_answers(400) + n_answers(413) + n_answers(417) + n_answers(431) + n_answers(501),
            static_cast<std::int64_t>(n_bad));
  RawClient good = client();
  good.send(post_request(kChat, kPlainBody));
  EXPECT_EQ(good.read_response().status, 200);
}

TEST_F(HttpServerTest, TooLargeBodyInFlightStillGetsItsAnswer) {
  start();
  RawClient one = client();
  const std::string body(std::size_t{9} << 20, ' ');
  std::thread sender([&] { one.send(post_request(kChat, body)); });
  const RawResponse response = one.read_response();
  EXPECT_EQ(response.status, 413);
  sender.join();
}

TEST_F(HttpServerTest, DisconnectCancelsWithinMilliseconds) {
  start();
  for (const bool silent : {false, true}) {
    for (const int how : {0, 1, 2}) {
      api::Script script;
      script.endless = !silent;
      script.silent = silent;
      script.step = milliseconds(5);
      generation_.set_script(script);
      RawClient one = client();
      ASSERT_TRUE(one.send(post_request(kChat, kStreamBody)));
      while (generation_.n_running() == 0) std::this_thread::sleep_for(milliseconds(1));
      if (!silent) {
        ASSERT_TRUE(one.wait_for("Hel"));
      }
      const auto begin = Clock::now();
      if (how == 0) one.close();
      if (how == 1) one.half_close();
      if (how == 2) one.reset();
      ASSERT_TRUE(generation_.wait_until_idle());
      EXPECT_LT(Clock::now() - begin, kSlowness * milliseconds(200));
    }
  }
  EXPECT_TRUE(wait_for_connections(0));
}

TEST_F(HttpServerTest, SlowReaderIsCutOff) {
  api::Script script;
  script.endless = true;
  script.pieces = {std::string(2000, 'x')};
  generation_.set_script(script);
  options_.write_timeout = milliseconds(60'000);
  start();
  RawClient one(server_->port(), 4096);
  ASSERT_TRUE(one.send(post_request(kChat, kStreamBody)));
  while (generation_.n_running() == 0) std::this_thread::sleep_for(milliseconds(1));
  // It never reads: the socket's buffers fill, then the inbox overflows, and the work stops.
  EXPECT_TRUE(generation_.wait_until_idle());
}

TEST_F(HttpServerTest, WriteTimeoutClosesTheConnection) {
  options_.write_timeout = milliseconds(100);
  api::Script script;
  script.pieces = {std::string(std::size_t{8} << 20, 'x')};
  generation_.set_script(script);
  start();
  RawClient one(server_->port(), 4096);
  ASSERT_TRUE(one.send(post_request(kChat, kPlainBody)));
  EXPECT_TRUE(wait_for_connections(1));
  EXPECT_TRUE(wait_for_connections(0));
}

TEST_F(HttpServerTest, TimeoutsByPhase) {
  options_.header_timeout = milliseconds(100);
  options_.body_timeout = milliseconds(100);
  options_.idle_timeout = milliseconds(100);
  start();
  RawClient silent = client();
  EXPECT_TRUE(silent.at_end());
  RawClient header = client();
  header.send("GET /health HTTP/1.1\r\nHo");
  EXPECT_EQ(header.read_response().status, 408);
  RawClient body = client();
  body.send("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\n{");
  EXPECT_EQ(body.read_response().status, 408);
  EXPECT_EQ(n_answers(408), 2);
  RawClient idle = client();
  idle.send(get_request("/health"));
  EXPECT_EQ(idle.read_response().status, 200);
  EXPECT_TRUE(idle.at_end());
}

TEST_F(HttpServerTest, SilenceInTheQueueIsFilled) {
  options_.ping_interval = milliseconds(50);
  api::Script script;
  script.silent = true;
  generation_.set_script(script);
  start();
  RawClient one = client();
  ASSERT_TRUE(one.send(post_request(kChat, kStreamBody)));
  EXPECT_TRUE(one.wait_for("200 OK"));
  EXPECT_TRUE(one.wait_for(": waiting\n\n"));
}

TEST_F(HttpServerTest, ConnectionsAboveTheLimitGet503) {
  options_.max_connections = 3;
  start();
  std::vector<RawClient> held;
  for (int i = 0; i < 3; ++i) {
    held.push_back(client());
    held.back().send(get_request("/health"));
    EXPECT_EQ(held.back().read_response().status, 200);
  }
  RawClient extra = client();
  EXPECT_EQ(extra.read_response().status, 503);
  held.clear();
  EXPECT_TRUE(wait_for_connections(0));
  RawClient again = client();
  again.send(get_request("/health"));
  EXPECT_EQ(again.read_response().status, 200);
}

TEST_F(HttpServerTest, TwoHundredRudeClientsLeaveNothingBehind) {
  options_.header_timeout = milliseconds(2000);
  options_.n_io_threads = 2;
  start();
  api::Script script;
  script.endless = true;
  script.step = milliseconds(2);
  generation_.set_script(script);
  std::vector<RawClient> rude;
  for (int i = 0; i < 200; ++i) {
    rude.push_back(client());
    switch (i % 5) {
      case 0: break;                                // says nothing
      case 1: rude.back().send("GET /hea"); break;  // stops half way
      case 2:
        rude.back().send(
            "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"
            "Content-Length: 100000\r\n\r\n{\"messages\"");
        break;
      default: rude.back().send(post_request(kChat, kStreamBody)); break;  // will vanish
    }
  }
  RawClient polite = client();
  script.endless = false;
  generation_.set_script(script);
  polite.send(post_request(kChat, kStreamBody));
  const RawResponse response = polite.read_response();
  EXPECT_EQ(response.status, 200);
  EXPECT_TRUE(response.body.ends_with("data: [DONE]\n\n"));
  for (std::size_t i = 0; i < rude.size(); ++i) {
    if (i % 2 == 0) {
      rude[i].reset();
    } else {
      rude[i].close();
    }
  }
  polite.close();
  EXPECT_TRUE(generation_.wait_until_idle());
  EXPECT_TRUE(wait_for_connections(0));
}

TEST_F(HttpServerTest, MemoryReturnsAfterHostileBodies) {
  start();
  const std::string megabyte(std::size_t{1} << 20, '[');
  std::string values = R"({"prompt":[0)";
  for (int i = 0; i < 1'000'000; ++i) values += ",1";
  const std::string bodies[] = {megabyte, values + "]}",
                                R"({"prompt":")" + std::string(std::size_t{7} << 20, 'x') + "\"}",
                                R"({"x":[)" + std::string(std::size_t{4} << 20, ' ') + "]}"};
  const auto round = [&] {
    for (const std::string& body : bodies) {
      RawClient one = client();
      ASSERT_TRUE(one.send(post_request("/v1/completions", body)));
      EXPECT_EQ(one.read_response().status, 400);
    }
  };
  round();
  round();
  const std::size_t before = resident_bytes();
  for (int i = 0; i < 10; ++i) round();
  if (!kSanitized) {
    EXPECT_LT(resident_bytes(), before + (std::size_t{128} << 20));
  }
}

TEST_F(HttpServerTest, DrainLetsStreamsFinish) {
  api::Script script;
  script.step = milliseconds(100);
  generation_.set_script(script);
  start();
  RawClient idle = client();
  idle.send(get_request("/health"));
  EXPECT_EQ(idle.read_response().status, 200);
  RawClient stream = client();
  stream.send(post_request(kChat, kStreamBody));
  ASSERT_TRUE(stream.wait_for("Hel"));
  std::thread drainer([&] { server_->drain(milliseconds(10'000)); });
  EXPECT_TRUE(idle.at_end());
  const RawResponse response = stream.read_response();
  EXPECT_TRUE(response.body.ends_with("data: [DONE]\n\n"));
  EXPECT_NE(response.body.find("world"), std::string::npos);
  EXPECT_EQ(response.body.find("error"), std::string::npos);
  stream.close();
  drainer.join();
  EXPECT_EQ(server_->n_connections(), 0U);
  RawClient late(server_->port());
  EXPECT_FALSE(late.connected());
}

TEST_F(HttpServerTest, DrainEndsLongStreamsWithAnError) {
  api::Script script;
  script.endless = true;
  script.step = milliseconds(5);
  generation_.set_script(script);
  start();
  RawClient stream = client();
  stream.send(post_request(kChat, kStreamBody));
  ASSERT_TRUE(stream.wait_for("Hel"));
  RawClient waiting = client();
  waiting.send(post_request(kChat, kPlainBody));
  while (generation_.n_running() < 2) std::this_thread::sleep_for(milliseconds(1));
  std::thread drainer([&] { server_->drain(milliseconds(100)); });
  const RawResponse response = stream.read_response();
  EXPECT_NE(response.body.find(R"(data: {"error":)"), std::string::npos);
  EXPECT_TRUE(response.body.ends_with("data: [DONE]\n\n"));
  EXPECT_EQ(waiting.read_response().status, 503);
  stream.close();
  waiting.close();
  drainer.join();
  EXPECT_TRUE(generation_.wait_until_idle());
}

TEST_F(HttpServerTest, ServerGoesWithStreamsOpen) {
  api::Script script;
  script.endless = true;
  generation_.set_script(script);
  start();
  std::vector<RawClient> streams;
  for (int i = 0; i < 8; ++i) {
    streams.push_back(client());
    streams.back().send(post_request(kChat, kStreamBody));
    ASSERT_TRUE(streams.back().wait_for("Hel"));
  }
  server_.reset();
  EXPECT_TRUE(generation_.wait_until_idle());
}

TEST_F(HttpServerTest, PortInUseIsAnError) {
  start();
  HttpOptions second = options_;
  second.port = server_->port();
  const auto result = HttpServer::start(second, service_);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::kUnavailable);
}

}  // namespace
}  // namespace graft
