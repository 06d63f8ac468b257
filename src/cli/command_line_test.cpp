#include "cli/command_line.h"

#include <gtest/gtest.h>

#include "cli/flags.h"
#include "cli/module_flags.h"

namespace graft::cli {
namespace {

using Words = std::vector<std::string>;

template <typename T>
T parsed(const Words& words) {
  Command command = parse_command_line(words);
  if (const auto* said = std::get_if<SayCommand>(&command)) ADD_FAILURE() << said->text;
  const T* wanted = std::get_if<T>(&command);
  EXPECT_NE(wanted, nullptr);
  return wanted == nullptr ? T{} : *wanted;
}

void expect_usage(const Words& words, const std::string& part) {
  const Command command = parse_command_line(words);
  const auto* said = std::get_if<SayCommand>(&command);
  ASSERT_NE(said, nullptr) << "accepted, though wrong: " << part;
  EXPECT_EQ(said->exit_code, kExitUsage);
  EXPECT_NE(said->text.find(part), std::string::npos) << said->text;
}

TEST(CommandLine, ServeHasDefaults) {
  const auto serve = parsed<ServeCommand>({"serve", "m.gguf"});
  EXPECT_EQ(serve.model.path, "m.gguf");
  EXPECT_EQ(serve.http.host, "127.0.0.1");
  EXPECT_EQ(serve.http.port, 8080);
  EXPECT_EQ(serve.model.engine.n_ctx, 4096);
  EXPECT_EQ(serve.model.engine.max_seqs, 16);
  EXPECT_EQ(serve.model.engine.n_threads, 0);
  EXPECT_EQ(serve.model.precision, Precision::kFile);
  EXPECT_EQ(serve.model.log.level, LogLevel::kInfo);
  EXPECT_EQ(serve.default_max_tokens, -1);
  EXPECT_TRUE(serve.model.use_mmap);
  EXPECT_FALSE(serve.allow_remote);
}

TEST(CommandLine, ServeTakesAllFlags) {
  const auto serve = parsed<ServeCommand>({"serve",
                                           "--module",
                                           "a=x",
                                           "m.gguf",
                                           "--module",
                                           "b/c=y=z",
                                           "--host",
                                           "::1",
                                           "--port",
                                           "0",
                                           "--ctx",
                                           "8192",
                                           "--max-seqs",
                                           "4",
                                           "--batch",
                                           "64",
                                           "--threads",
                                           "2",
                                           "--served-model-name",
                                           "n1",
                                           "--served-model-name",
                                           "n2",
                                           "--cache-type",
                                           "q8_0",
                                           "--module-precision",
                                           "f16",
                                           "--log-json",
                                           "--log-level",
                                           "debug",
                                           "--shutdown-timeout",
                                           "5",
                                           "--default-max-tokens",
                                           "100",
                                           "--no-mmap",
                                           "--max-waiting",
                                           "7"});
  EXPECT_EQ(serve.model.path, "m.gguf");
  ASSERT_EQ(serve.model.modules.size(), 2U);
  EXPECT_EQ(serve.model.modules[0].source.name, "a");
  EXPECT_EQ(serve.model.modules[1].source.name, "b/c");
  EXPECT_EQ(serve.model.modules[1].source.path, "y=z");
  EXPECT_EQ(serve.http.host, "::1");
  EXPECT_EQ(serve.http.port, 0);
  EXPECT_EQ(serve.model.engine.n_ctx, 8192);
  EXPECT_EQ(serve.model.engine.max_seqs, 4);
  EXPECT_EQ(serve.model.engine.n_batch, 64);
  EXPECT_EQ(serve.model.engine.n_threads, 2);
  EXPECT_EQ(serve.served_names, (Words{"n1", "n2"}));
  EXPECT_EQ(serve.model.engine.kv_type, KvType::kQ8_0);
  EXPECT_EQ(serve.model.precision, Precision::kF16);
  EXPECT_TRUE(serve.model.log.json);
  EXPECT_EQ(serve.model.log.level, LogLevel::kDebug);
  EXPECT_EQ(serve.shutdown_timeout, std::chrono::seconds(5));
  EXPECT_EQ(serve.default_max_tokens, 100);
  EXPECT_FALSE(serve.model.use_mmap);
  EXPECT_EQ(serve.max_waiting, 7);
}

TEST(CommandLine, ValuesOutOfRangeNameTheFlagAndTheLimit) {
  expect_usage({"serve", "m", "--port", "65536"}, "65535");
  expect_usage({"serve", "m", "--port", "-1"}, "--port");
  expect_usage({"serve", "m", "--port", "80x"}, "80x");
  expect_usage({"serve", "m", "--ctx", "255"}, "256");
  expect_usage({"serve", "m", "--ctx", "99999999999999999999"}, "--ctx");
  expect_usage({"serve", "m", "--threads", "0"}, "--threads");
  expect_usage({"serve", "m", "--max-seqs", "129"}, "128");
  expect_usage({"serve", "m", "--batch", "8"}, "--max-seqs");
  expect_usage({"serve", "m", "--cache-type", "q4_0"}, "q8_0");
  expect_usage({"serve", "m", "--module-precision", "f8"}, "file, f16, q8_0");
  expect_usage({"serve", "m", "--log-level", "loud"}, "debug");
  expect_usage({"serve", "m", "--default-max-tokens", "0"}, "--default-max-tokens");
  expect_usage({"chat", "m", "--temperature", "nan"}, "--temperature");
  expect_usage({"chat", "m", "--temperature", "2.5"}, "2");
  expect_usage({"chat", "m", "--top-p", "0"}, "--top-p");
  expect_usage({"chat", "m", "--seed", "4294967296"}, "--seed");
  expect_usage({"bench", "m", "--streams", "0"}, "--streams");
}

TEST(CommandLine, WrongUsageIsNamed) {
  expect_usage({}, "Usage: graft");
  expect_usage({"serve"}, "MODEL");
  expect_usage({"sing"}, "sing");
  expect_usage({"chat", "m", "--nope"}, "--nope");
  expect_usage({"serve", "m", "extra"}, "extra");
  expect_usage({"module"}, "--help");
  expect_usage({"module", "probe", "m"}, "PATH");
  expect_usage({"serve", "m", "--module", "a"}, "NAME=PATH");
  expect_usage({"serve", "m", "--module", "a="}, "NAME=PATH");
  expect_usage({"serve", "m", "--module", "A=x"}, "module name");
  expect_usage({"serve", "m", "--module", "a=x", "--module", "a=y"}, "two modules");
  expect_usage({"serve", "m", "--module", "a=x", "--served-model-name", "a"}, "both");
}

TEST(CommandLine, ServeTakesVllmsFlags) {
  const auto serve = parsed<ServeCommand>(
      {"serve", "m.gguf", "--served-model-name", "n1", "n2", "--enable-lora", "--max-loras", "4",
       "--max-lora-rank", "64", "--max-cpu-loras=8", "--lora-modules", "a=x",
       R"({"name":"team/b","path":"/mnt/lora/b","base_model_name":"n1"})", "--max-model-len",
       "8192", "--shutdown-timeout", "5"});
  EXPECT_EQ(serve.served_names, (Words{"n1", "n2"}));
  ASSERT_EQ(serve.model.modules.size(), 2U);
  EXPECT_EQ(serve.model.modules[0].source.path, "x");
  EXPECT_EQ(serve.model.modules[1].source.name, "team/b");
  EXPECT_EQ(serve.model.modules[1].source.path, "/mnt/lora/b");
  EXPECT_EQ(serve.module_limits.max_rank, 64);
  EXPECT_EQ(serve.model.engine.n_seq_tokens, 8192);
  EXPECT_EQ(serve.model.engine.n_ctx, 8192) << "room for the longest request";
  EXPECT_TRUE(serve.warnings.empty());
  expect_usage({"serve", "m", "--lora-modules", "a=x", "a=y"}, "two modules");
  expect_usage({"serve", "m", "--module", "a=x", "--lora-modules", "a=y"}, "two modules");
  expect_usage({"serve", "m", "--lora-modules", "{"}, "JSON");
  expect_usage({"serve", "m", "--lora-modules", R"({"name":"a"})"}, "path");
  expect_usage({"serve", "m", "--lora-modules", R"({"name":"A","path":"x"})"}, "module name");
  expect_usage({"serve", "m", "--ctx", "1024", "--max-model-len", "2048"}, "--ctx");
  expect_usage({"serve", "m", "--max-lora-rank", "0"}, "--max-lora-rank");
}

TEST(CommandLine, ServeIgnoresUnknownFlagsWithAWarning) {
  const auto serve = parsed<ServeCommand>({"serve", "m", "--gpu-memory-utilization", "0.9",
                                           "--dtype=auto", "--enforce-eager", "--seed", "-1",
                                           "--modul-precision", "f16", "--port", "9"});
  ASSERT_EQ(serve.warnings.size(), 5U);
  EXPECT_NE(serve.warnings[0].find("--gpu-memory-utilization"), std::string::npos);
  EXPECT_NE(serve.warnings[1].find("--dtype is"), std::string::npos);
  EXPECT_NE(serve.warnings[4].find("there is --module-precision"), std::string::npos);
  EXPECT_EQ(serve.http.port, 9) << "what follows is read";
  expect_usage({"serve", "m", "-x"}, "-x");
  expect_usage({"serve", "m", "--port", "x"}, "--port");
}

TEST(CommandLine, ServeTakesModuleFlags) {
  const auto serve =
      parsed<ServeCommand>({"serve", "m", "--modules-dir", "d", "--autoload", "--default-scales",
                            "--max-modules", "7", "--module-memory", "3", "--module-loaders", "4"});
  EXPECT_EQ(serve.modules_dir, "d");
  EXPECT_TRUE(serve.autoload);
  EXPECT_TRUE(serve.default_scales);
  EXPECT_EQ(serve.module_limits.max_modules, 7);
  EXPECT_EQ(serve.module_limits.max_bytes, 3U << 20);
  EXPECT_EQ(serve.n_loaders, 4);
  expect_usage({"serve", "m", "--autoload"}, "--modules-dir");
}

TEST(CommandLine, OnlyLoopbackWithoutPermission) {
  for (const char* host : {"0.0.0.0", "::", "192.168.1.1", "example.org", "128.0.0.1", ""}) {
    expect_usage({"serve", "m", "--host", host}, "--allow-remote");
  }
  for (const char* host : {"127.0.0.1", "127.8.8.8", "localhost", "::1"}) {
    EXPECT_EQ(parsed<ServeCommand>({"serve", "m", "--host", host}).http.host, host);
  }
  EXPECT_TRUE(
      parsed<ServeCommand>({"serve", "m", "--host", "0.0.0.0", "--allow-remote"}).allow_remote);
}

TEST(CommandLine, KeysAllowRemoteAddresses) {
  for (const Words& key : {Words{"--api-key", "k"}, Words{"--api-keys-file", "f"}}) {
    Words words = {"serve", "m", "--host", "0.0.0.0"};
    words.insert(words.end(), key.begin(), key.end());
    EXPECT_EQ(parsed<ServeCommand>(words).http.host, "0.0.0.0");
  }
  // With an admin key alone, everybody could still use the model.
  expect_usage({"serve", "m", "--host", "0.0.0.0", "--admin-key", "k"}, "--allow-remote");
}

TEST(CommandLine, NetworkFlags) {
  const auto serve = parsed<ServeCommand>(
      {"serve",           "m",   "--api-key",           "a",    "--api-key",        "b",
       "--admin-key",     "c",   "--api-keys-file",     "f",    "--ssl-certfile",   "cert",
       "--ssl-keyfile",   "key", "--max-header-bytes",  "2048", "--max-body-bytes", "4096",
       "--max-preparing", "9",   "--handshake-timeout", "0.5",  "--header-timeout", "1",
       "--body-timeout",  "2",   "--idle-timeout",      "3",    "--write-timeout",  "4",
       "--ping-interval", "5.25"});
  EXPECT_EQ(serve.keys.keys, (Words{"a", "b"}));
  EXPECT_EQ(serve.keys.admin_keys, (Words{"c"}));
  EXPECT_EQ(serve.keys.file, "f");
  EXPECT_EQ(serve.http.certificate_file, "cert");
  EXPECT_EQ(serve.http.key_file, "key");
  EXPECT_EQ(serve.http.max_header_bytes, 2048U);
  EXPECT_EQ(serve.http.max_body_bytes, 4096U);
  EXPECT_EQ(serve.http.max_queued_preparations, 9U);
  EXPECT_EQ(serve.http.handshake_timeout, std::chrono::milliseconds(500));
  EXPECT_EQ(serve.http.header_timeout, std::chrono::seconds(1));
  EXPECT_EQ(serve.http.body_timeout, std::chrono::seconds(2));
  EXPECT_EQ(serve.http.idle_timeout, std::chrono::seconds(3));
  EXPECT_EQ(serve.http.write_timeout, std::chrono::seconds(4));
  EXPECT_EQ(serve.http.ping_interval, std::chrono::milliseconds(5250));
  EXPECT_EQ(parsed<ServeCommand>({"serve", "m", "--ssl-certfile", "both"}).http.key_file, "both");
  EXPECT_FALSE(parsed<ServeCommand>({"serve", "m"}).http.uses_tls());
  expect_usage({"serve", "m", "--ssl-keyfile", "key"}, "--ssl-certfile");
  expect_usage({"serve", "m", "--api-key", ""}, "--api-key");
  expect_usage({"serve", "m", "--api-key", "a b"}, "--api-key");
  expect_usage({"serve", "m", "--header-timeout", "0"}, "--header-timeout");
  expect_usage({"serve", "m", "--max-body-bytes", "1e12"}, "--max-body-bytes");
}

TEST(CommandLine, NewKeys) {
  const auto made = parsed<NewKeyCommand>(
      {"keys", "new", "f", "alice", "--tenant", "t", "--admin", "--module", "a", "--module", "b/*",
       "--max-concurrent", "4", "--requests-per-minute", "5", "--tokens-per-minute", "6"});
  EXPECT_EQ(made.file, "f");
  EXPECT_EQ(made.key.name, "alice");
  EXPECT_EQ(made.key.tenant, "t");
  EXPECT_TRUE(made.key.is_admin);
  EXPECT_EQ(made.key.modules, (Words{"a", "b/*"}));
  EXPECT_EQ(made.key.limits.max_concurrent, 4);
  EXPECT_EQ(made.key.limits.requests_per_minute, 5);
  EXPECT_EQ(made.key.limits.tokens_per_minute, 6);
  const auto plain = parsed<NewKeyCommand>({"keys", "new", "f", "bob"});
  EXPECT_EQ(plain.key.tenant, "bob");
  EXPECT_FALSE(plain.key.modules.has_value());
  expect_usage({"keys", "new", "f", "a b"}, "'name'");
  expect_usage({"keys", "new", "f", "a", "--module", "*"}, "'modules'");
  expect_usage({"keys", "new", "f"}, "NAME");
  expect_usage({"keys"}, "--help");
}

TEST(CommandLine, ChatTakesScales) {
  const auto chat =
      parsed<ChatCommand>({"chat",     "m",   "-m", "a=dir/x:0.5", "-m",      "b=c:/y", "-m",
                           "d=z:-1e1", "-p",  "hi", "--system",    "s",       "--seed", "7",
                           "--stop",   "END", "-n", "9",           "--top-k", "40"});
  ASSERT_EQ(chat.model.modules.size(), 3U);
  EXPECT_EQ(chat.model.modules[0].source.path, "dir/x");
  EXPECT_EQ(chat.model.modules[0].scale, 0.5F);
  EXPECT_EQ(chat.model.modules[1].source.path, "c:/y");
  EXPECT_EQ(chat.model.modules[1].scale, 1.0F);
  EXPECT_EQ(chat.model.modules[2].scale, -10.0F);
  EXPECT_EQ(chat.prompt, "hi");
  EXPECT_EQ(chat.system, "s");
  EXPECT_EQ(chat.sampling.seed, 7U);
  EXPECT_EQ(chat.sampling.top_k, 40);
  EXPECT_EQ(chat.stop.strings, (Words{"END"}));
  EXPECT_EQ(chat.stop.max_tokens, 9);
  expect_usage({"chat", "m", "-m", "a=x:101"}, "scale");
  // Serving has no scale in the flag: a colon belongs to the path.
  EXPECT_EQ(parsed<ServeCommand>({"serve", "m", "--module", "a=x:2"}).model.modules[0].source.path,
            "x:2");
}

TEST(CommandLine, OtherSubcommands) {
  EXPECT_TRUE(parsed<InspectCommand>({"module", "inspect", "p", "--json"}).json);
  const auto probe = parsed<ProbeCommand>(
      {"module", "probe", "m", "p", "--prompt", "a", "--prompt", "b", "--scale", "0.5"});
  EXPECT_EQ(probe.model.modules.at(0).source.path, "p");
  EXPECT_EQ(probe.prompts, (Words{"a", "b"}));
  EXPECT_EQ(probe.scale, 0.5F);
  EXPECT_EQ(parsed<DoctorCommand>({"doctor", "m"}).model.modules.size(), 0U);
  EXPECT_EQ(parsed<DoctorCommand>({"doctor", "m", "--module", "p"}).model.modules.size(), 1U);
  const auto bench = parsed<BenchCommand>({"bench", "m", "--streams", "3", "-n", "5"});
  EXPECT_EQ(bench.n_streams, 3);
  EXPECT_EQ(bench.model.engine.max_seqs, 3);
  EXPECT_EQ(bench.n_max_tokens, 5);
}

TEST(CommandLine, ServeIsWatchedAsAsked) {
  const auto plain = parsed<ServeCommand>({"serve", "m"});
  EXPECT_FALSE(plain.metrics_port.has_value());
  EXPECT_FALSE(plain.log_prompts);
  EXPECT_FALSE(plain.model.log.json);
  const auto watched = parsed<ServeCommand>({"serve", "m", "--metrics-port", "0", "--log-format",
                                             "json", "--log-prompts", "--old-vllm-metrics"});
  EXPECT_EQ(watched.metrics_port, 0);
  EXPECT_TRUE(watched.model.log.json);
  EXPECT_TRUE(watched.log_prompts);
  EXPECT_TRUE(watched.old_gpu_names);
  expect_usage({"serve", "m", "--log-format", "xml"}, "text, json");
  expect_usage({"serve", "m", "--metrics-port", "65536"}, "65535");
}

TEST(CommandLine, BenchServeStandsBesideBench) {
  const auto plain = parsed<BenchServeCommand>({"bench", "serve", "http://localhost"});
  EXPECT_EQ(plain.host, "localhost");
  EXPECT_EQ(plain.port, 80);
  EXPECT_EQ(plain.base_path, "");
  EXPECT_EQ(plain.n_requests, 8);
  EXPECT_TRUE(plain.ignore_eos);
  const auto full = parsed<BenchServeCommand>({"bench",
                                               "serve",
                                               "http://[::1]:8080/m/x/",
                                               "-m",
                                               "a",
                                               "-m",
                                               "b",
                                               "--rate",
                                               "2.5",
                                               "--requests",
                                               "100",
                                               "--arrival",
                                               "fixed",
                                               "--seed",
                                               "7",
                                               "--chat",
                                               "--stop-at-eos",
                                               "--streams",
                                               "32",
                                               "-n",
                                               "9",
                                               "--fields",
                                               R"({"top_p":0.9})"});
  EXPECT_EQ(full.host, "::1");
  EXPECT_EQ(full.port, 8080);
  EXPECT_EQ(full.base_path, "/m/x");
  EXPECT_EQ(full.models, (Words{"a", "b"}));
  EXPECT_EQ(full.rate, 2.5);
  EXPECT_FALSE(full.poisson);
  EXPECT_FALSE(full.ignore_eos);
  EXPECT_EQ(full.n_requests, 100);
  EXPECT_EQ(full.n_streams, 32);
  EXPECT_EQ(parsed<BenchCommand>({"bench", "./serve"}).model.path, "./serve");

  expect_usage({"bench"}, "MODEL");
  expect_usage({"bench", "serve"}, "URL");
  expect_usage({"bench", "serve", "https://x"}, "http://");
  expect_usage({"bench", "serve", "http://x:0"}, "1 to 65535");
  expect_usage({"bench", "serve", "http://x:99999"}, "1 to 65535");
  expect_usage({"bench", "serve", "http://"}, "host");
  expect_usage({"bench", "serve", "http://x?y"}, "http://HOST");
  expect_usage({"bench", "serve", "http://x y"}, "http://HOST");
  expect_usage({"bench", "serve", "http://x", "--fields", "[1]"}, "--fields");
  expect_usage({"bench", "serve", "http://x", "--common-prefix", "96"}, "--common-prefix");
  expect_usage({"bench", "serve", "http://x", "--chat", "--prompt-unit", "tokens"}, "tokens");
  expect_usage({"bench", "serve", "http://x", "-m", "a", "--lora-id", "1"}, "--lora-id");
  expect_usage({"bench", "serve", "http://x", "--api-key", "a\nb"}, "--api-key");
}

TEST(CommandLine, EveryHelpPageIsComplete) {
  const std::vector<Words> pages = {{},
                                    {"serve"},
                                    {"chat"},
                                    {"module"},
                                    {"module", "inspect"},
                                    {"module", "probe"},
                                    {"doctor"},
                                    {"bench"},
                                    {"bench", "serve"},
                                    {"keys"},
                                    {"keys", "new"}};
  for (Words words : pages) {
    words.push_back("--help");
    const Command command = parse_command_line(words);
    const auto* said = std::get_if<SayCommand>(&command);
    ASSERT_NE(said, nullptr);
    EXPECT_EQ(said->exit_code, kExitOk);
    EXPECT_TRUE(said->text.starts_with("Usage: graft")) << said->text;
    EXPECT_EQ(said->text.find("\n\n\n"), std::string::npos) << said->text;
    std::size_t begin = 0;
    for (std::size_t end = 0; (end = said->text.find('\n', begin)) != std::string::npos;) {
      EXPECT_LE(end - begin, 100U) << said->text.substr(begin, end - begin);
      begin = end + 1;
    }
  }
}

}  // namespace
}  // namespace graft::cli
