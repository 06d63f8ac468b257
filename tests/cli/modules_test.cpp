// Modules while serving, with the real binary on the counting model: routes, confinement, autoload,
// and loads beside running streams.
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "cli/program.h"
#include "http/testing/raw_client.h"
#include "support/test_files.h"

namespace graft {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

RawResponse talk(std::uint16_t port, const std::string& request) {
  RawClient client(port);
  EXPECT_TRUE(client.send(request));
  return client.read_response();
}

class ModulesTest : public testing::Test {
 protected:
  ModulesTest() {
    for (const char* name : {"step2", "back", "upper"}) put(name, name);
    fs::create_directories(root() / "team");
    put("team/task", "step2");
  }

  fs::path root() const { return directory_.path() / "modules"; }
  void put(const std::string& name, const std::string& adapter) const {
    fs::remove_all(directory_.path() / "fresh");
    fs::copy(source_file("tests/synthetic/adapters/" + adapter), directory_.path() / "fresh");
    fs::create_directories(root());
    fs::remove_all(root() / name);
    fs::rename(directory_.path() / "fresh", root() / name);
  }

  void serve(const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments = {
        "serve",         source_file("tests/synthetic/counting.gguf"),
        "--threads",     "1",
        "--port",        "0",
        "--modules-dir", root().string()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    program_ = std::make_unique<Program>(arguments);
    port_ = program_->wait_for_port();
    ASSERT_NE(port_, 0) << program_->err();
  }
  void stop() {
    program_->signal(SIGTERM);
    EXPECT_EQ(program_->wait(), 0) << program_->err();
  }

  RawResponse post(const std::string& path, const Json& body,
                   const std::string& headers = {}) const {
    return talk(port_, post_request(path, body.dump(), headers));
  }
  RawResponse load(const std::string& name, const std::string& path, bool in_place = false) const {
    return post("/v1/load_lora_adapter",
                {{"lora_name", name}, {"lora_path", path}, {"load_inplace", in_place}});
  }
  RawResponse unload(const std::string& name) const {
    return post("/v1/unload_lora_adapter", {{"lora_name", name}});
  }
  std::string complete(const std::string& path, Json body, const std::string& headers = {}) const {
    body["temperature"] = 0;
    if (!body.contains("max_tokens")) body["max_tokens"] = 40;
    const RawResponse response = post(path, body, headers);
    const Json json = Json::parse(response.body, nullptr, false);
    if (response.status != 200) return std::to_string(response.status);
    return json["choices"][0]["text"].get<std::string>();
  }
  std::string ask(const std::string& model, const std::string& prompt) const {
    return complete("/v1/completions", {{"model", model}, {"prompt", prompt}});
  }

  ScratchDirectory directory_;
  std::unique_ptr<Program> program_;
  std::uint16_t port_ = 0;
};

TEST_F(ModulesTest, LoadReplaceListAndUnload) {
  serve({"--served-model-name", "counter"});
  EXPECT_EQ(ask("m", "d"), "404");
  EXPECT_EQ(load("m", "step2").body, "Success: LoRA adapter 'm' added successfully.");
  EXPECT_EQ(ask("m", "t"), "vxz");
  EXPECT_EQ(load("m", "back").status, 400);
  EXPECT_EQ(load("m", (root() / "back").string(), true).status, 200);
  EXPECT_EQ(ask("m", "d"), "cba");
  EXPECT_EQ(load("team/task", "team/task").status, 200);
  const Json models = Json::parse(talk(port_, get_request("/v1/models")).body)["data"];
  ASSERT_EQ(models.size(), 5U) << models;  // three names of the base
  EXPECT_EQ(models[0]["id"], "counter");
  EXPECT_TRUE(models[0]["parent"].is_null());
  EXPECT_EQ(models[3]["id"], "m");
  EXPECT_EQ(models[3]["parent"], "counter");
  EXPECT_EQ(models[3]["root"], (root() / "back").string());
  EXPECT_EQ(models[4]["id"], "team/task");
  for (const char* key : {"created", "max_model_len", "permission", "owned_by"}) {
    EXPECT_TRUE(models[4].contains(key)) << key;
  }
  EXPECT_EQ(talk(port_, get_request("/v1/models/team/task")).status, 200);
  EXPECT_EQ(unload("m").body, "Success: LoRA adapter 'm' removed successfully.");
  EXPECT_EQ(unload("m").status, 404);
  EXPECT_EQ(ask("m", "d"), "404");
  const Json adapters = Json::parse(talk(port_, get_request("/lora-adapters")).body);
  ASSERT_EQ(adapters.size(), 1U);
  EXPECT_EQ(adapters[0]["id"], 1);
  EXPECT_EQ(complete("/v1/completions", {{"prompt", "t"}, {"lora", {{{"id", 1}, {"scale", 1.0}}}}}),
            "vxz");
  stop();
}

TEST_F(ModulesTest, WhateverLiesOutsideLooksAbsent) {
  fs::create_directory_symlink(root() / "step2", root() / "link");
  fs::copy(source_file("tests/synthetic/adapters/step2"), directory_.path() / "outside");
  fs::create_directories(root() / "half");
  fs::create_symlink(root() / "step2/adapter_config.json", root() / "half/adapter_config.json");
  ASSERT_EQ(mkfifo((root() / "pipe.gguf").c_str(), 0600), 0);
  serve({"--autoload"});
  const std::string absent = load("x", "nowhere").body;
  const auto without_path = [](std::string body, const std::string& path) {
    for (std::size_t at = 0; (at = body.find(path)) != std::string::npos;) {
      body.erase(at, path.size());
    }
    return body;
  };
  const std::string outside = (directory_.path() / "outside").string();
  for (const std::string& path : {std::string("../outside"), outside, std::string("link"),
                                  std::string("pipe.gguf"), std::string("step2/../../outside")}) {
    const RawResponse response = load("x", path);
    EXPECT_EQ(response.status, 404) << path;
    EXPECT_EQ(without_path(response.body, path), without_path(absent, "nowhere"));
  }
  EXPECT_EQ(load("x", "half").status, 400) << "a directory without a config of its own";
  for (const char* name : {"link", "pipe", "..", "../outside", "half", "team"}) {
    EXPECT_EQ(ask(name, "t"), "404") << name;
  }
  EXPECT_EQ(ask("base", "t"), "uvwxyz");
  stop();
}

TEST_F(ModulesTest, SixteenRequestsForAModuleThatIsNotThere) {
  serve({"--autoload"});
  std::atomic<int> n_right{0};
  {
    std::vector<std::jthread> clients;
    for (int i = 0; i < 16; ++i) {
      clients.emplace_back([&] { n_right += ask("team/task", "t") == "vxz" ? 1 : 0; });
    }
  }
  EXPECT_EQ(n_right, 16);
  EXPECT_EQ(complete("/m/back/v1/completions", {{"prompt", "d"}}), "cba");
  EXPECT_EQ(complete("/v1/completions", {{"prompt", "t"}}, "x-graft-module: step2, upper\r\n"),
            "VXZ");
  EXPECT_EQ(ask("nowhere", "t"), "404");
  const std::string log = program_->err();
  std::size_t n_loads = 0;
  for (std::size_t at = 0; (at = log.find("'team/task' loaded", at)) != std::string::npos; ++at) {
    ++n_loads;
  }
  EXPECT_EQ(n_loads, 1U) << log;
  stop();
}

TEST_F(ModulesTest, LoadsBesideStreamsFailNone) {
  serve({"--ctx", "8192"});
  ASSERT_EQ(load("m", "step2").status, 200);
  Json body = {{"model", "m"},      {"prompt", "5"},      {"temperature", 0},
               {"max_tokens", 700}, {"ignore_eos", true}, {"stream", true}};
  std::vector<std::unique_ptr<RawClient>> streams;
  for (int i = 0; i < 4; ++i) {
    body["model"] = i % 2 == 0 ? "m" : "base";
    streams.push_back(std::make_unique<RawClient>(port_));
    ASSERT_TRUE(streams.back()->send(post_request("/v1/completions", body.dump())));
    ASSERT_TRUE(streams.back()->wait_for("data: "));
  }
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(load("m", i % 2 == 0 ? "back" : "step2", true).status, 200);
    EXPECT_EQ(load("other", "upper").status, 200);
    EXPECT_EQ(unload("other").status, 200);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  std::set<std::string> texts;
  for (const auto& stream : streams) {
    const std::string answer = stream->read_response().body;
    EXPECT_TRUE(answer.ends_with("data: [DONE]\n\n"));
    std::string text;
    for (std::size_t at = 0; (at = answer.find("data: {", at)) != std::string::npos; ++at) {
      const Json event = Json::parse(answer.substr(at + 6, answer.find("\n\n", at) - at - 6));
      for (const Json& choice : event["choices"]) text += choice.value("text", "");
    }
    EXPECT_EQ(text.size(), 700U);
    texts.insert(text);
  }
  EXPECT_EQ(texts.size(), 2U) << "both streams of a kind say the same";
  for (const std::string& text : texts) EXPECT_TRUE(text.starts_with("79") || text[0] == '6');
  EXPECT_EQ(ask("m", "t"), "vxz") << "the last version";
  stop();
}

TEST_F(ModulesTest, LimitsAndUnknownFlags) {
  serve({"--max-modules", "1", "--max-lora-rank", "64", "--gpu-memory-utilization", "0.9",
         "--max-module", "3", "--max-model-len", "512"});
  EXPECT_NE(program_->err().find("--gpu-memory-utilization is not known"), std::string::npos);
  EXPECT_NE(program_->err().find("there is --max-modules"), std::string::npos) << program_->err();
  EXPECT_EQ(load("a", "step2").status, 200);
  const RawResponse full = load("b", "back");
  EXPECT_EQ(full.status, 400);
  EXPECT_NE(full.body.find("--max-modules"), std::string::npos) << full.body;
  const Json models = Json::parse(talk(port_, get_request("/v1/models")).body)["data"];
  EXPECT_EQ(models[0]["max_model_len"], 512);
  stop();
}

TEST_F(ModulesTest, OffWithoutADirectory) {
  Program program({"serve", source_file("tests/synthetic/counting.gguf"), "--threads", "1",
                   "--port", "0", "--lora-modules", "a=" + (root() / "step2").string(),
                   R"({"name":"b","path":")" + (root() / "back").string() + "\"}"});
  port_ = program.wait_for_port();
  ASSERT_NE(port_, 0) << program.err();
  EXPECT_EQ(load("m", "step2").status, 404);
  EXPECT_EQ(unload("a").status, 404);
  EXPECT_EQ(ask("a", "t"), "vxz");
  EXPECT_EQ(ask("b", "d"), "cba");
}

}  // namespace
}  // namespace graft
