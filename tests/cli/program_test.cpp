// The real binary on the counting model: what it prints, answers and returns, also when its files
// or flags are wrong.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/program.h"
#include "http/testing/raw_client.h"
#include "support/test_files.h"

namespace graft {
namespace {

using Json = nlohmann::json;

std::string model() { return source_file("tests/synthetic/counting.gguf"); }
std::string adapter(const std::string& name) {
  return source_file("tests/synthetic/adapters/" + name);
}

std::vector<std::string> serve_arguments(const std::vector<std::string>& more = {}) {
  std::vector<std::string> arguments = {"serve", model(), "--threads", "1", "--port", "0"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

std::vector<std::string> serve_with_modules() {
  return serve_arguments({"--module", "step2=" + adapter("step2"), "--module",
                          "upper=" + adapter("upper"), "--module", "back=" + adapter("back"),
                          "--served-model-name", "counter"});
}

RawResponse post(std::uint16_t port, const std::string& path, const Json& body) {
  RawClient client(port);
  EXPECT_TRUE(client.send(post_request(path, body.dump())));
  return client.read_response();
}

Json completion(const std::string& model, const std::string& prompt) {
  return {{"model", model}, {"prompt", prompt}, {"temperature", 0}, {"max_tokens", 40}};
}

std::string text_of(const RawResponse& response) {
  const Json json = Json::parse(response.body, nullptr, false);
  return json.is_discarded() ? response.body : json["choices"][0]["text"].get<std::string>();
}

std::size_t n_lines(const std::string& text) {
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

// One clear line on standard error that has all of `parts`, nothing on standard output, status 1.
void expect_failure(const std::vector<std::string>& arguments,
                    const std::vector<std::string>& parts) {
  Program program(arguments);
  EXPECT_EQ(program.wait(), 1) << program.err();
  const std::string text = program.err();
  EXPECT_EQ(program.out(), "");
  const std::size_t at = text.find("graft: ");
  ASSERT_NE(at, std::string::npos) << text;
  EXPECT_EQ(n_lines(text.substr(at)), 1U) << text;
  for (const std::string& part : parts) {
    EXPECT_NE(text.find(part, at), std::string::npos) << part << " is missing in: " << text;
  }
}

TEST(Serve, AnswersEveryKindOfRequestAndStopsCleanly) {
  Program program(serve_with_modules());
  const std::uint16_t port = program.wait_for_port();
  ASSERT_NE(port, 0) << program.err();
  EXPECT_EQ(program.out(), "ready: http://127.0.0.1:" + std::to_string(port) +
                               "  model counter (counting.gguf)  modules step2 upper back\n");

  EXPECT_EQ(text_of(post(port, "/v1/completions", completion("base", "t"))), "uvwxyz");
  EXPECT_EQ(text_of(post(port, "/v1/completions", completion("counter", "t"))), "uvwxyz");
  EXPECT_EQ(text_of(post(port, "/v1/completions", completion("counting", "t"))), "uvwxyz");
  EXPECT_EQ(text_of(post(port, "/v1/completions", completion("step2", "t"))), "vxz");
  EXPECT_EQ(text_of(post(port, "/v1/completions", completion("back", "d"))), "cba");
  Json both = completion("base", "t");
  both["modules"] = {{{"name", "step2"}}, {{"name", "upper"}, {"scale", 1.0}}};
  const RawResponse shaped = post(port, "/v1/completions", both);
  EXPECT_EQ(text_of(shaped), "VXZ");
  EXPECT_NE(shaped.head.find("x-graft-modules: step2@"), std::string::npos) << shaped.head;

  program.signal(SIGTERM);
  EXPECT_EQ(program.wait(), 0) << program.err();
}

TEST(Serve, ChatsPlainAndStreamed) {
  Program program(serve_with_modules());
  const std::uint16_t port = program.wait_for_port();
  ASSERT_NE(port, 0) << program.err();
  Json chat = {
      {"model", "upper"}, {"messages", {{{"role", "user"}, {"content", "w"}}}}, {"temperature", 0}};
  const RawResponse plain = post(port, "/v1/chat/completions", chat);
  EXPECT_EQ(plain.status, 200);
  EXPECT_NE(plain.body.find(R"("content":"XYZ")"), std::string::npos) << plain.body;
  chat["stream"] = true;
  const RawResponse streamed = post(port, "/v1/chat/completions", chat);
  EXPECT_TRUE(streamed.body.ends_with("data: [DONE]\n\n")) << streamed.body;
  program.signal(SIGINT);
  EXPECT_EQ(program.wait(), 0);
}

TEST(Serve, UnknownModulesAreNotFoundWithNearNames) {
  Program program(serve_with_modules());
  const std::uint16_t port = program.wait_for_port();
  ASSERT_NE(port, 0) << program.err();
  const RawResponse response = post(port, "/v1/completions", completion("step3", "t"));
  EXPECT_EQ(response.status, 404);
  EXPECT_NE(response.body.find("'step2'"), std::string::npos) << response.body;
}

TEST(Serve, DefaultMaxTokensLimitsChatAnswers) {
  Program program(serve_arguments({"--default-max-tokens", "3"}));
  const std::uint16_t port = program.wait_for_port();
  ASSERT_NE(port, 0) << program.err();
  const Json chat = {{"messages", {{{"role", "user"}, {"content", "a"}}}}, {"temperature", 0}};
  const RawResponse response = post(port, "/v1/chat/completions", chat);
  EXPECT_NE(response.body.find(R"("content":"bcd")"), std::string::npos) << response.body;
  EXPECT_NE(response.body.find(R"("finish_reason":"length")"), std::string::npos);
}

TEST(Serve, ARunningStreamFinishesAfterTheSignal) {
  Program program(serve_arguments({"--ctx", "4096"}));
  const std::uint16_t port = program.wait_for_port();
  ASSERT_NE(port, 0) << program.err();
  Json body = completion("base", "5");
  body["stream"] = true;
  body["max_tokens"] = 3000;  // digits go round for ever
  RawClient client(port);
  ASSERT_TRUE(client.send(post_request("/v1/completions", body.dump())));
  ASSERT_TRUE(client.wait_for("data: "));
  program.signal(SIGTERM);
  EXPECT_TRUE(client.read_response().body.ends_with("data: [DONE]\n\n"));
  EXPECT_EQ(program.wait(), 0) << program.err();
}

TEST(Serve, TheShutdownTimeoutEndsWhatIsLeft) {
  Program program(serve_arguments({"--shutdown-timeout", "0"}));
  const std::uint16_t port = program.wait_for_port();
  ASSERT_NE(port, 0) << program.err();
  RawClient idle(port);
  ASSERT_TRUE(idle.connected());
  program.signal(SIGTERM);
  EXPECT_EQ(program.wait(), 0) << program.err();
}

TEST(Serve, ASecondSignalEndsAtOnce) {
  Program program(serve_arguments({"--ctx", "4096", "--shutdown-timeout", "3600"}));
  const std::uint16_t port = program.wait_for_port();
  ASSERT_NE(port, 0) << program.err();
  // Half a request keeps the drain waiting.
  RawClient client(port);
  ASSERT_TRUE(
      client.send("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n"
                  "Content-Type: application/json\r\nExpect: 100-continue\r\n\r\n"));
  ASSERT_TRUE(client.wait_for("100 Continue"));  // the server has begun to read it
  program.signal(SIGTERM);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  program.signal(SIGTERM);
  EXPECT_EQ(program.wait(), 128 + SIGTERM);
}

// Whatever a client writes, a line of the log is one JSON object, and holds no prompt.
TEST(Serve, LogsOneLinePerRequest) {
  for (const bool with_prompts : {false, true}) {
    std::vector<std::string> flags = {"--log-format", "json", "--module",
                                      "step2=" + adapter("step2")};
    if (with_prompts) flags.push_back("--log-prompts");
    Program program(serve_arguments(flags));
    const std::uint16_t port = program.wait_for_port();
    ASSERT_NE(port, 0) << program.err();
    RawClient client(port);
    ASSERT_TRUE(client.send(
        post_request("/v1/completions?secret=1", completion("step2", "tsecret").dump(),
                     "x-request-id: abc\"1\r\n"
                     "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\n")));
    EXPECT_EQ(client.read_response().status, 200);
    EXPECT_EQ(post(port, "/v1/completions", completion("secret", "t")).status, 404);
    RawClient watcher(port);
    ASSERT_TRUE(watcher.send(get_request("/health")));
    EXPECT_EQ(watcher.read_response().status, 200);
    program.signal(SIGTERM);
    EXPECT_EQ(program.wait(), 0);

    std::vector<Json> requests;
    std::istringstream lines(program.err());
    for (std::string line; std::getline(lines, line);) {
      if (!line.starts_with("{")) continue;  // progress while loading
      const Json object = Json::parse(line, nullptr, false);
      ASSERT_TRUE(object.is_object()) << line;
      if (object.value("message", "") == "request") requests.push_back(object);
    }
    ASSERT_EQ(requests.size(), 2U) << program.err();  // /health is not worth a line
    EXPECT_EQ(requests[0]["request_id"], "abc\"1");
    EXPECT_EQ(requests[0]["trace_id"], "4bf92f3577b34da6a3ce929d0e0e4736");
    EXPECT_EQ(requests[0]["path"], "/v1/completions");
    EXPECT_EQ(requests[0]["status"], 200);
    EXPECT_EQ(requests[0]["model"], "step2");
    EXPECT_TRUE(requests[0]["modules"].get<std::string>().starts_with("step2@"));
    EXPECT_GT(requests[0]["prompt_tokens"], 0);
    EXPECT_GT(requests[0]["generated_tokens"], 0);
    EXPECT_GT(requests[0]["total_ms"], 0);
    EXPECT_EQ(requests[1]["status"], 404);
    EXPECT_EQ(program.err().find("secret") != std::string::npos, with_prompts) << program.err();
  }
}

TEST(Serve, AMetricsPortOfItsOwn) {
  Program program(serve_arguments({"--metrics-port", "0"}));
  const std::uint16_t port = program.wait_for_port();
  ASSERT_NE(port, 0) << program.err();
  const std::string key = "metrics: port ";
  const std::size_t at = program.err().find(key);
  ASSERT_NE(at, std::string::npos) << program.err();
  const auto monitor =
      static_cast<std::uint16_t>(std::atoi(program.err().c_str() + at + key.size()));
  EXPECT_EQ(text_of(post(port, "/v1/completions", completion("base", "t"))), "uvwxyz");
  for (const std::uint16_t one : {port, monitor}) {
    RawClient client(one);
    ASSERT_TRUE(client.send(get_request("/metrics")));
    const RawResponse response = client.read_response();
    EXPECT_EQ(response.status, 200);
    EXPECT_NE(
        response.body.find("\ngraft_module_requests_total{module=\"base\",outcome=\"stop\"} 1\n"),
        std::string::npos)
        << response.body;
    EXPECT_NE(response.body.find("\ngraft_prepare_seconds_count 1\n"), std::string::npos);
    EXPECT_NE(response.body.find("num_gpu_blocks=\"256\""), std::string::npos) << response.body;
  }
  EXPECT_EQ(post(monitor, "/v1/completions", completion("base", "t")).status, 404);
  program.signal(SIGTERM);
  EXPECT_EQ(program.wait(), 0);
}

TEST(Serve, DamagedFilesGiveOneClearLine) {
  const ScratchDirectory scratch;
  const std::string whole = read_text(model());
  for (const std::size_t n_bytes : {std::size_t{0}, std::size_t{100}, whole.size() / 2}) {
    const std::string path = (scratch.path() / ("cut" + std::to_string(n_bytes))).string();
    write_text(path, whole.substr(0, n_bytes));
    expect_failure({"serve", path, "--threads", "1", "--port", "0"}, {path});
  }
  expect_failure({"serve", "/nowhere/model.gguf", "--port", "0"}, {"/nowhere/model.gguf"});
  expect_failure({"serve", scratch.path().string(), "--port", "0"}, {scratch.path().string()});

  const std::filesystem::path cut = scratch.path() / "cut-adapter";
  std::filesystem::create_directory(cut);
  std::filesystem::copy(adapter("step2") + "/adapter_config.json", cut);
  const std::string weights = read_text(adapter("step2") + "/adapter_model.safetensors");
  write_text(cut / "adapter_model.safetensors", weights.substr(0, weights.size() - 100));
  expect_failure(serve_arguments({"--module", "cut=" + cut.string()}), {"'cut'", cut.string()});
}

TEST(Serve, ModulesThatCannotBeServedGiveOneClearLine) {
  expect_failure(serve_arguments({"--module", "gone=/nowhere/adapter"}),
                 {"'gone'", "/nowhere/adapter"});
  expect_failure(serve_arguments({"--module", "other=" + source_file("tests/golden/adapters/"
                                                                     "llama_qk")}),
                 {"'other'", "llama_qk"});
  expect_failure(serve_arguments({"--module", "dora=" + source_file("tests/golden/unsupported/"
                                                                    "dora")}),
                 {"'dora'", "DoRA is not supported yet"});
  expect_failure(serve_arguments({"--module", "base=" + adapter("step2")}), {"'base'"});
}

TEST(Serve, APortInUseGivesOneClearLine) {
  Program first(serve_arguments());
  const std::uint16_t port = first.wait_for_port();
  ASSERT_NE(port, 0) << first.err();
  expect_failure({"serve", model(), "--threads", "1", "--port", std::to_string(port)},
                 {"cannot listen on 127.0.0.1:" + std::to_string(port)});
  // It is said before the model is looked at.
  expect_failure({"serve", "/nowhere/model.gguf", "--port", std::to_string(port)},
                 {"cannot listen on 127.0.0.1:" + std::to_string(port)});
}

TEST(CommandLine, WrongUsageEndsWithTwo) {
  const std::vector<std::vector<std::string>> wrong = {
      {},
      {"sing"},
      {"serve"},
      {"serve", model(), "--port", "65536"},
      {"serve", model(), "--ctx", "many"},
      {"chat", model(), "--no-such-flag"},
      {"serve", model(), "--host", "0.0.0.0"},
      {"serve", model(), "--module", "no-path"},
      {"serve", model(), "--max-seqs", "129"},
      {"module"},
      {"module", "inspect"},
      {"chat", model(), "--temperature", "nan"},
  };
  for (const auto& arguments : wrong) {
    Program program(arguments);
    EXPECT_EQ(program.wait(), 2) << (arguments.empty() ? "" : arguments.back());
    EXPECT_EQ(program.out(), "");
    EXPECT_NE(program.err(), "");
  }
}

TEST(CommandLine, SaysWhatItIs) {
  Program version({"--version"});
  EXPECT_EQ(version.wait(), 0);
  EXPECT_EQ(version.out(), "graft " GRAFT_VERSION "\n");
  Program licences({"--licenses"});
  EXPECT_EQ(licences.wait(), 0);
  EXPECT_NE(licences.out().find("llama.cpp and ggml"), std::string::npos);
}

TEST(Module, InspectDescribesServableAndRefusedOnes) {
  Program upper({"module", "inspect", adapter("upper"), "--json"});
  ASSERT_EQ(upper.wait(), 0) << upper.err();
  const Json json = Json::parse(upper.out());
  EXPECT_EQ(json["ranks"], Json({26}));
  EXPECT_EQ(json["targets"], Json({"lm_head"}));
  EXPECT_EQ(json["tensors"].size(), 2U);
  EXPECT_TRUE(json["refusal"].is_null());

  Program dora({"module", "inspect", source_file("tests/golden/unsupported/dora")});
  EXPECT_EQ(dora.wait(), 0);
  EXPECT_NE(dora.out().find("no: DoRA is not supported yet"), std::string::npos) << dora.out();
  expect_failure({"module", "inspect", "/nowhere"}, {"/nowhere"});
}

TEST(Module, ProbeMeasuresAndExplains) {
  Program strong({"module", "probe", model(), adapter("step2"), "-t", "1", "--sites"});
  ASSERT_EQ(strong.wait(), 0) << strong.err();
  EXPECT_NE(strong.out().find("blk.0.attn_output.weight"), std::string::npos) << strong.out();
  EXPECT_EQ(strong.out().find("no effect"), std::string::npos) << strong.out();
  Program silent({"module", "probe", model(), adapter("step2"), "-t", "1", "--scale", "0"});
  ASSERT_EQ(silent.wait(), 0) << silent.err();
  EXPECT_NE(silent.out().find("no effect"), std::string::npos) << silent.out();
  EXPECT_NE(silent.out().find("scale is 0"), std::string::npos) << silent.out();
}

TEST(Doctor, FindsThatCompanyChangesNothing) {
  Program doctor({"doctor", model(), "-t", "1", "--module", adapter("back")});
  EXPECT_EQ(doctor.wait(), 0) << doctor.err();
  EXPECT_NE(doctor.out().find("2 nodes computed by Graft, 0 left to ggml"), std::string::npos);
  EXPECT_EQ(doctor.out().find("differ"), std::string::npos) << doctor.out();
  EXPECT_NE(doctor.out().find("moves a logit by up to"), std::string::npos);
}

// F32 weights keep the promise with the flag alone, and fail doctor's check of it if it does not.
TEST(Doctor, DeterministicExtendsThePromiseToEveryType) {
  Program doctor({"doctor", source_file("tests/golden/models/llama.gguf"), "-t", "2", "--ctx",
                  "1024", "--deterministic"});
  EXPECT_EQ(doctor.wait(), 0) << doctor.err();
  EXPECT_NE(doctor.out().find("identical in every bit"), std::string::npos) << doctor.out();
  EXPECT_EQ(doctor.out().find("differ"), std::string::npos) << doctor.out();
}

TEST(Device, AGpuThatIsNotThereGivesOneClearLine) {
  if (GRAFT_HAS_CUDA) GTEST_SKIP() << "this build may find one";
  expect_failure({"doctor", model(), "--device", "gpu"}, {"GPU", "GRAFT_CUDA"});
  expect_failure({"serve", model(), "--device", "gpu"}, {"GPU", "GRAFT_CUDA"});
}

TEST(Bench, PrintsOneTable) {
  Program bench({"bench", model(), "-t", "1", "-m", "a=" + adapter("step2"), "-m",
                 "b=" + adapter("upper"), "--streams", "4", "--prompt-tokens", "16", "-n", "16"});
  EXPECT_EQ(bench.wait(), 0) << bench.err();
  EXPECT_NE(bench.out().find("2 modules, mixed"), std::string::npos) << bench.out();
}

TEST(Bench, ServeMeasuresARunningServer) {
  Program server(serve_with_modules());
  const std::uint16_t port = server.wait_for_port();
  ASSERT_NE(port, 0) << server.err();
  const std::string url = "http://127.0.0.1:" + std::to_string(port);
  Program json({"bench", "serve", url, "-m", "step2", "-m", "upper", "--streams", "4", "--requests",
                "12", "--prompt-length", "20", "-n", "8", "--json"});
  ASSERT_EQ(json.wait(), 0) << json.out() << json.err();
  const Json numbers = Json::parse(json.out());
  EXPECT_EQ(numbers["requests"], 12);
  EXPECT_EQ(numbers["failed"], 0);
  EXPECT_EQ(numbers["generated_tokens"], 96);
  EXPECT_GT(numbers["prompt_tokens"], 12 * 20);
  EXPECT_GT(numbers["tokens_per_second"], 0);
  EXPECT_GT(numbers["first_token_ms"]["p99"], 0);

  Program text({"bench", "serve", url, "--chat", "--rate", "200", "--requests", "5", "-n", "4"});
  EXPECT_EQ(text.wait(), 0) << text.err();
  EXPECT_NE(text.out().find("5 requests, 0 failed"), std::string::npos) << text.out();
  EXPECT_NE(text.out().find("between tokens"), std::string::npos) << text.out();

  Program wrong({"bench", "serve", url, "-m", "nobody", "--requests", "2", "--streams", "1"});
  EXPECT_EQ(wrong.wait(), 1);
  EXPECT_NE(wrong.out().find("2 x status 404"), std::string::npos) << wrong.out();
}

TEST(Chat, AnswersOnceAndConverses) {
  Program once({"chat", model(), "-t", "1", "-m", "step2=" + adapter("step2") + ":1.0", "-p", "t",
                "--temperature", "0"});
  ASSERT_EQ(once.wait(), 0) << once.err();
  EXPECT_EQ(once.out(), "vxz\n");
  EXPECT_NE(once.err().find("step2@"), std::string::npos) << once.err();
  Program talk({"chat", model(), "-t", "1", "--temperature", "0"}, "x\n/reset\nw\n/quit\n");
  ASSERT_EQ(talk.wait(), 0) << talk.err();
  EXPECT_EQ(talk.out(), "yz\nxyz\n");
  Program too_long({"chat", model(), "-t", "1", "--temperature", "0", "--ctx", "256"},
                   std::string(1000, 'a') + "\nx\n");
  ASSERT_EQ(too_long.wait(), 0) << too_long.err();
  EXPECT_EQ(too_long.out(), "yz\n");
  EXPECT_NE(too_long.err().find("graft: "), std::string::npos);
}

}  // namespace
}  // namespace graft
