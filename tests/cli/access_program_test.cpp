// The real binary with API keys and TLS: what it answers to whom, and what it says at the start.
#include <nlohmann/json.hpp>

#include "cli/program.h"
#include "http/testing/raw_client.h"
#include "http/testing/test_certificate.h"
#include "http/testing/tls_client.h"
#include "support/test_files.h"

namespace graft {
namespace {

std::vector<std::string> serve(const std::vector<std::string>& more) {
  std::vector<std::string> arguments = {
      "serve",     source_file("tests/synthetic/counting.gguf"),
      "--threads", "1",
      "--port",    "0",
      "--module",  "step2=" + source_file("tests/synthetic/adapters/step2")};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

int status_of(std::uint16_t port, const std::string& path, const std::string& key) {
  RawClient client(port);
  EXPECT_TRUE(client.send("GET " + path + " HTTP/1.1\r\nHost: x\r\n" +
                          (key.empty() ? "" : "Authorization: Bearer " + key + "\r\n") + "\r\n"));
  return client.read_response().status;
}

// A new key for NAME in the file, as a person would make it.
std::string make_key(const std::string& file, std::vector<std::string> more) {
  more.insert(more.begin(), {"keys", "new", file});
  Program program(more);
  EXPECT_EQ(program.wait(), 0) << program.err();
  std::string key = program.out();
  EXPECT_TRUE(key.starts_with("gk-") && key.ends_with('\n') && key.size() == 36) << key;
  key.pop_back();
  return key;
}

void expect_start_failure(const std::vector<std::string>& more, const std::string& part) {
  Program program(serve(more));
  EXPECT_EQ(program.wait(), 1) << program.err();
  EXPECT_EQ(program.out(), "");
  EXPECT_NE(program.err().find(part), std::string::npos) << program.err();
}

TEST(Keys, AreMadeServedAndReadAgain) {
  const ScratchDirectory scratch;
  const std::string file = (scratch.path() / "keys.jsonl").string();
  const std::string alice = make_key(file, {"alice", "--module", "other"});
  EXPECT_EQ(std::filesystem::status(file).permissions(),
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  EXPECT_EQ(read_text(file).find(alice), std::string::npos);  // the hash alone is kept

  Program program(serve({"--api-keys-file", file}));
  const std::uint16_t port = program.wait_for_port();
  ASSERT_NE(port, 0) << program.err();
  EXPECT_EQ(status_of(port, "/health", ""), 200);
  EXPECT_EQ(status_of(port, "/v1/models", ""), 401);
  EXPECT_EQ(status_of(port, "/v1/models", alice), 200);
  EXPECT_EQ(status_of(port, "/v1/models/base", alice), 200);
  EXPECT_EQ(status_of(port, "/v1/models/step2", alice), 404);

  const std::string bob = make_key(file, {"bob"});
  EXPECT_EQ(status_of(port, "/v1/models", bob), 401);
  program.signal(SIGHUP);
  ASSERT_TRUE(program.wait_for_err("API keys read again: 2")) << program.err();
  EXPECT_EQ(status_of(port, "/v1/models/step2", bob), 200);

  // A file that is broken changes nothing.
  const std::string whole = read_text(file);
  write_text(file, whole + "{\"name\":\n");
  program.signal(SIGHUP);
  ASSERT_TRUE(program.wait_for_err("the API keys stay as they are")) << program.err();
  EXPECT_NE(program.err().find(file + ", line 3"), std::string::npos) << program.err();
  EXPECT_EQ(status_of(port, "/v1/models", bob), 200);
  // Without bob's line, bob is out.
  write_text(file, whole.substr(0, whole.find('\n') + 1));
  program.signal(SIGHUP);
  ASSERT_TRUE(program.wait_for_err("API keys read again: 1"));
  EXPECT_EQ(status_of(port, "/v1/models", bob), 401);
  EXPECT_EQ(status_of(port, "/v1/models", alice), 200);
  program.signal(SIGTERM);
  EXPECT_EQ(program.wait(), 0);
}

TEST(Keys, NewRefusesANameThatIsThere) {
  const ScratchDirectory scratch;
  const std::string file = (scratch.path() / "keys.jsonl").string();
  write_text(file, "# no line end");
  make_key(file, {"alice"});
  Program again({"keys", "new", file, "alice"});
  EXPECT_EQ(again.wait(), 1);
  EXPECT_NE(again.err().find("two API keys are named 'alice'"), std::string::npos) << again.err();
  Program nowhere({"keys", "new", "/nowhere/keys.jsonl", "alice"});
  EXPECT_EQ(nowhere.wait(), 1);
  EXPECT_NE(nowhere.err().find("/nowhere/keys.jsonl"), std::string::npos) << nowhere.err();
}

TEST(Keys, OfTheCommandLineAllowOtherAddresses) {
  Program program(serve({"--host", "0.0.0.0", "--api-key", "one", "--api-key", "two"}));
  const std::uint16_t port = program.wait_for_port();
  ASSERT_NE(port, 0) << program.err();
  EXPECT_EQ(status_of(port, "/v1/models", ""), 401);
  EXPECT_EQ(status_of(port, "/v1/models", "one"), 200);
  EXPECT_EQ(status_of(port, "/v1/models", "two"), 200);
  EXPECT_EQ(program.err().find("one\n"), std::string::npos);
  program.signal(SIGTERM);
  EXPECT_EQ(program.wait(), 0);
}

TEST(Keys, AFileThatCannotBeUsedEndsTheStart) {
  const ScratchDirectory scratch;
  const std::string file = (scratch.path() / "keys.jsonl").string();
  expect_start_failure({"--api-keys-file", file}, file);
  write_text(file, "{}\n");
  expect_start_failure({"--api-keys-file", file}, file + ", line 1: 'name' is missing");
}

TEST(Tls, IsServedWhenAskedFor) {
  const TestCertificate certificate;
  Program program(serve(
      {"--ssl-certfile", certificate.certificate_file(), "--ssl-keyfile", certificate.key_file()}));
  const std::uint16_t port = program.wait_for_port();
  ASSERT_NE(port, 0) << program.err();
  EXPECT_TRUE(program.out().starts_with("ready: https://127.0.0.1:")) << program.out();
  TlsClient client(port);
  ASSERT_TRUE(client.connected());
  ASSERT_TRUE(client.send(post_request(
      "/v1/completions",
      R"({"model":"step2","prompt":"t","temperature":0,"max_tokens":40,"stream":true})",
      "Connection: close\r\n")));
  EXPECT_TRUE(client.read_to_clean_end());
  EXPECT_NE(client.received().find("data: [DONE]"), std::string::npos) << client.received();
  program.signal(SIGTERM);
  EXPECT_EQ(program.wait(), 0);
}

TEST(Tls, FilesThatCannotBeUsedEndTheStart) {
  const TestCertificate certificate;
  const TestCertificate other;
  expect_start_failure({"--ssl-certfile", "/nowhere.pem"}, "'/nowhere.pem'");
  expect_start_failure(
      {"--ssl-certfile", certificate.certificate_file(), "--ssl-keyfile", other.key_file()},
      "does not belong to the certificate");
}

}  // namespace
}  // namespace graft
