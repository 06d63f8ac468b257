// Runs every tests/cases/*.test against a real HttpServer with a scripted engine behind it. The
// format of the files is described in case_file.h.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "api/testing/scripted_generation.h"
#include "cases/case_file.h"
#include "http/http_server.h"
#include "http/testing/raw_client.h"

namespace graft {
namespace {

using nlohmann::json;

// Whether `actual` holds at least what `expected` says: objects may have more keys, arrays may not
// have more elements; the string "*" stands for anything that is there.
bool holds(const json& actual, const json& expected) {
  if (expected.is_string() && expected == "*") return true;
  if (expected.is_object()) {
    if (!actual.is_object()) return false;
    return std::all_of(expected.items().begin(), expected.items().end(), [&](const auto& item) {
      return actual.contains(item.key()) && holds(actual[item.key()], item.value());
    });
  }
  if (expected.is_array()) {
    if (!actual.is_array() || actual.size() != expected.size()) return false;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      if (!holds(actual[i], expected[i])) return false;
    }
    return true;
  }
  return actual == expected;
}

class CaseRun {
 public:
  CaseRun()
      : registry_(api::test_registry()),
        service_({generation_, registry_, prompts_, api::test_facts()}) {
    service_.set_state(api::Service::State::kReady);
    HttpOptions options;
    options.port = 0;
    server_ = HttpServer::start(options, service_).value();
    client_ = std::make_unique<RawClient>(server_->port());
  }

  void run(const TestCase& test) {
    for (const CaseLine& line : test.lines) {
      SCOPED_TRACE("line " + std::to_string(line.number) + ": " + line.word + " " + line.rest);
      if (is_request_line(line)) continue;
      send_if_needed();
      check(line);
    }
  }

 private:
  bool is_request_line(const CaseLine& line) {
    if (line.word == "script") {
      set_script(line.rest);
    } else if (line.word == "send") {
      sent_ = false;
      method_ = line.rest.substr(0, line.rest.find(' '));
      path_ = line.rest.substr(line.rest.find(' ') + 1);
      headers_.clear();
      body_.clear();
    } else if (line.word == "header") {
      headers_ += line.rest + "\r\n";
    } else if (line.word == "body") {
      body_ += line.rest;
    } else {
      return false;
    }
    return true;
  }

  void set_script(const std::string& text) {
    const json script = json::parse(text);
    api::Script made;
    if (script.contains("pieces")) made.pieces = script["pieces"].get<std::vector<std::string>>();
    made.fail_after = script.value("fail_after", -1);
    made.stop_string = script.value("stop_string", "");
    if (script.contains("refuse")) {
      made.refuse = Error{
          script["refuse"] == "full" ? ErrorCode::kResourceExhausted : ErrorCode::kUnavailable,
          "refused", ""};
    }
    generation_.set_script(made);
  }

  void send_if_needed() {
    if (std::exchange(sent_, true)) return;
    std::string request = method_ + " " + path_ + " HTTP/1.1\r\nHost: test\r\n" + headers_;
    if (!body_.empty()) {
      if (headers_.find("content-type:") == std::string::npos) {
        request += "content-type: application/json\r\n";
      }
      request += "content-length: " + std::to_string(body_.size()) + "\r\n";
    }
    ASSERT_TRUE(client_->send(request + "\r\n" + body_));
    response_ = client_->read_response();
    ASSERT_TRUE(response_.complete);
    event_at_ = 0;
  }

  void check(const CaseLine& line) {
    if (line.word == "status") {
      EXPECT_EQ(std::to_string(response_.status), line.rest) << response_.body;
    } else if (line.word == "has") {
      EXPECT_NE(response_.head.find("\r\n" + line.rest + "\r\n"), std::string::npos)
          << response_.head;
    } else if (line.word == "lacks") {
      EXPECT_EQ(response_.head.find("\r\n" + line.rest + ":"), std::string::npos) << response_.head;
    } else if (line.word == "json") {
      const json body = json::parse(response_.body, nullptr, false);
      EXPECT_TRUE(holds(body, json::parse(line.rest))) << response_.body;
    } else if (line.word == "event") {
      check_event("data: ", json::parse(line.rest));
    } else if (line.word == "named") {
      const std::size_t space = line.rest.find(' ');
      const std::string name = line.rest.substr(0, space);
      json expected = json::parse(line.rest.substr(space + 1));
      expected["type"] = name;
      check_event("event: " + name + "\ndata: ", expected);
    } else if (line.word == "done") {
      EXPECT_TRUE(response_.body.ends_with("\n\ndata: [DONE]\n\n")) << response_.body;
    } else if (line.word == "error") {
      check_error(line.rest);
    } else {
      ADD_FAILURE() << "unknown word in the case file";
    }
  }

  // `head`: what stands before the JSON of the event.
  void check_event(const std::string& head, const json& expected) {
    while (event_at_ < response_.body.size()) {
      const std::size_t end = response_.body.find("\n\n", event_at_);
      ASSERT_NE(end, std::string::npos);
      const std::string event = response_.body.substr(event_at_, end - event_at_);
      event_at_ = end + 2;
      if (!event.starts_with(head + "{")) continue;
      if (holds(json::parse(event.substr(head.size())), expected)) return;
    }
    ADD_FAILURE() << "no such event in the rest of: " << response_.body;
  }

  void check_error(const std::string& text) {
    const std::string param = text.substr(0, text.find(' '));
    const std::string code = text.substr(text.find(' ') + 1);
    const json body = json::parse(response_.body, nullptr, false);
    ASSERT_TRUE(body.is_object() && body.contains("error")) << response_.body;
    const json& error = body["error"];
    EXPECT_FALSE(error.value("message", "").empty());
    EXPECT_FALSE(error.value("type", "").empty());
    EXPECT_EQ(error["param"], param == "-" ? json(nullptr) : json(param)) << response_.body;
    EXPECT_EQ(error["code"], code == "-" ? json(nullptr) : json(code)) << response_.body;
  }

  api::ScriptedGeneration generation_;
  api::FakePromptBuilder prompts_;
  Snapshot<RegistrySnapshot> registry_;
  api::Service service_;
  std::unique_ptr<HttpServer> server_;
  std::unique_ptr<RawClient> client_;
  std::string method_;
  std::string path_;
  std::string headers_;
  std::string body_;
  bool sent_ = true;
  RawResponse response_;
  std::size_t event_at_ = 0;
};

TEST(Cases, AllFilesPass) {
  int n_cases = 0;
  std::vector<std::filesystem::path> files;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(GRAFT_SOURCE_DIR) + "/tests/cases")) {
    if (entry.path().extension() == ".test") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  for (const auto& file : files) {
    for (const TestCase& test : read_case_file(file.string())) {
      SCOPED_TRACE(file.filename().string() + ": " + test.name);
      CaseRun().run(test);
      ++n_cases;
    }
  }
  EXPECT_GT(n_cases, 30);
}

TEST(Cases, TheRunnerSeesDifferences) {
  EXPECT_TRUE(
      holds(json::parse(R"({"a":[1,{"b":2,"c":3}]})"), json::parse(R"({"a":[1,{"b":2}]})")));
  EXPECT_TRUE(holds(json::parse(R"({"a":5})"), json::parse(R"({"a":"*"})")));
  EXPECT_FALSE(holds(json::parse(R"({"a":[1,2]})"), json::parse(R"({"a":[1]})")));
  EXPECT_FALSE(holds(json::parse(R"({"a":1})"), json::parse(R"({"b":1})")));
  EXPECT_FALSE(holds(json::parse(R"({"a":1})"), json::parse(R"({"a":"1"})")));
  EXPECT_FALSE(holds(json::parse(R"({"a":1})"), json::parse(R"({"a":null})")));
}

}  // namespace
}  // namespace graft
