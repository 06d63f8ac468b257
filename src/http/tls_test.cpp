// The server over TLS: the same answers, and what goes wrong below them.
#include <gtest/gtest.h>

#include <future>

#include "http/testing/server_fixture.h"
#include "http/testing/test_certificate.h"
#include "http/testing/tls_client.h"

namespace graft {
namespace {

using std::chrono::milliseconds;

class TlsTest : public ServerFixture {
 protected:
  TlsTest() {
    options_.certificate_file = certificate_.certificate_file();
    options_.key_file = certificate_.key_file();
  }

  std::string start_error(const std::string& certificate_file, const std::string& key_file) {
    options_.certificate_file = certificate_file;
    options_.key_file = key_file;
    const auto server = HttpServer::start(options_, service_);
    if (server) return "started";
    EXPECT_EQ(server.error().code, ErrorCode::kInvalidArgument);
    return server.error().message;
  }

  TestCertificate certificate_;
};

std::string closing_request(const std::string& body) {
  return post_request(kChat, body, "Connection: close\r\n");
}

TEST_F(TlsTest, AnswersAndKeepsTheConnection) {
  start();
  TlsClient client(server_->port());
  ASSERT_TRUE(client.connected());
  EXPECT_EQ(client.version(), "TLSv1.3");
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(client.send(post_request(kChat, kPlainBody)));
    EXPECT_TRUE(client.wait_for("Hello world"));
    client.forget();
  }
  ASSERT_TRUE(client.send(closing_request(kStreamBody)));
  EXPECT_TRUE(client.read_to_clean_end());
  EXPECT_TRUE(client.received().ends_with("data: [DONE]\n\n\r\n0\r\n\r\n")) << client.received();
  EXPECT_TRUE(wait_for_connections(0));
}

TEST_F(TlsTest, LargeAnswersArriveWhole) {
  api::Script script;
  script.pieces = {std::string(std::size_t{3} << 20, 'x')};
  generation_.set_script(script);
  start();
  TlsClient client(server_->port());
  ASSERT_TRUE(client.send(closing_request(kPlainBody)));
  EXPECT_TRUE(client.read_to_clean_end());
  EXPECT_NE(client.received().find(script.pieces[0]), std::string::npos);
}

TEST_F(TlsTest, OldVersionsAreRefused) {
  start();
  EXPECT_TRUE(TlsClient(server_->port(), TLS1_2_VERSION).connected());
  EXPECT_FALSE(TlsClient(server_->port(), TLS1_1_VERSION).connected());
  EXPECT_FALSE(TlsClient(server_->port(), TLS1_VERSION).connected());
  EXPECT_TRUE(wait_for_connections(0));
}

TEST_F(TlsTest, PlainHttpGetsAnAnswerAndAnEnd) {
  start();
  RawClient plain = client();
  ASSERT_TRUE(plain.send(get_request("/health")));
  const RawResponse response = plain.read_response();
  EXPECT_EQ(response.status, 400);
  EXPECT_NE(response.body.find("https://"), std::string::npos);
  EXPECT_TRUE(plain.at_end());
  RawClient garbage = client();
  ASSERT_TRUE(garbage.send(std::string(100, '\xFF')));
  while (garbage.read_some()) {  // an alert, perhaps
  }
  EXPECT_TRUE(wait_for_connections(0));
}

TEST_F(TlsTest, HalfOpenHandshakesTimeOut) {
  options_.handshake_timeout = milliseconds(100);
  start();
  RawClient silent = client();
  RawClient begun = client();
  ASSERT_TRUE(begun.send(std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc", 9)));
  EXPECT_TRUE(silent.at_end());
  EXPECT_TRUE(begun.at_end());
  EXPECT_TRUE(wait_for_connections(0));
}

TEST_F(TlsTest, DisconnectCancels) {
  api::Script script;
  script.endless = true;
  script.step = milliseconds(2);
  generation_.set_script(script);
  start();
  for (int i = 0; i < 3; ++i) {
    TlsClient client(server_->port());
    ASSERT_TRUE(client.send(post_request(kChat, kStreamBody)));
    ASSERT_TRUE(client.wait_for("Hel"));
    client.cut();
    EXPECT_TRUE(generation_.wait_until_idle());
  }
  EXPECT_TRUE(wait_for_connections(0));
}

TEST_F(TlsTest, TooLargeBodyInFlightStillGetsItsAnswer) {
  options_.max_body_bytes = 100'000;
  start();
  TlsClient client(server_->port());
  ASSERT_TRUE(client.connected());
  client.send(post_request(kChat, std::string(150'000, ' ')));
  EXPECT_TRUE(client.wait_for("HTTP/1.1 413"));
}

TEST_F(TlsTest, HundredHandshakesBesideStreams) {
  api::Script script;
  script.pieces = std::vector<std::string>(200, "token ");
  script.step = milliseconds(2);
  generation_.set_script(script);
  start();
  std::vector<std::future<bool>> streams;
  for (int i = 0; i < 8; ++i) {
    streams.push_back(std::async(std::launch::async, [this] {
      TlsClient client(server_->port());
      return client.send(closing_request(kStreamBody)) && client.read_to_clean_end() &&
             client.received().find("data: [DONE]") != std::string::npos;
    }));
  }
  for (int i = 0; i < 100; ++i) {
    TlsClient client(server_->port());
    ASSERT_TRUE(client.connected());
    ASSERT_TRUE(client.send(get_request("/health")));
    EXPECT_TRUE(client.wait_for(R"({"status":"ok"})"));
  }
  for (auto& stream : streams) EXPECT_TRUE(stream.get());
  EXPECT_TRUE(wait_for_connections(0));
}

TEST_F(TlsTest, DrainEndsIdleConnectionsAndHandshakes) {
  start();
  TlsClient idle(server_->port());
  ASSERT_TRUE(idle.send(get_request("/health")));
  ASSERT_TRUE(idle.wait_for("ok"));
  RawClient half = client();
  ASSERT_TRUE(wait_for_connections(2));
  server_->drain(milliseconds(5000));
  EXPECT_EQ(server_->n_connections(), 0U);
}

TEST_F(TlsTest, WrongFilesAreClearErrors) {
  const TestCertificate other;
  const std::string& certificate = certificate_.certificate_file();
  const std::string& key = certificate_.key_file();
  EXPECT_EQ(start_error(certificate, other.key_file()),
            "the TLS key in '" + other.key_file() + "' does not belong to the certificate in '" +
                certificate + "'");
  const auto expect_named = [&](const std::string& message, const std::string& file) {
    EXPECT_NE(message.find("'" + file + "'"), std::string::npos) << message;
  };
  expect_named(start_error("/nowhere.pem", key), "/nowhere.pem");
  expect_named(start_error(certificate, "/nowhere.pem"), "/nowhere.pem");
  expect_named(start_error(key, key), key);  // no certificate in it
  expect_named(start_error(certificate, certificate), certificate);
  EXPECT_EQ(start_error(certificate, key), "started");
  // An expired one is the operator's affair; the log says so.
  const TestCertificate expired(-60);
  EXPECT_EQ(start_error(expired.certificate_file(), expired.key_file()), "started");
}

}  // namespace
}  // namespace graft
