#include "cli/network_flags.h"

#include <arpa/inet.h>

#include <algorithm>
#include <string>
#include <vector>

#include "cli/flag_checks.h"

namespace graft::cli {
namespace {

constexpr std::size_t kMaxKeyBytes = 1024;

bool is_loopback(const std::string& host) {
  if (host == "localhost") return true;
  in_addr v4{};
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  in6_addr v6{};
  return inet_pton(AF_INET6, host.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

void add_address_flags(CLI::App& app, ServeCommand& command) {
  const std::string group = "Network";
  app.add_option("--host", command.http.host, "Address to listen on. Default 127.0.0.1.")
      ->type_name("ADDRESS")
      ->group(group);
  add_whole(app, "--port,-p", command.http.port, {0, 65535},
            "Port to listen on; 0 takes any free one, which the ready line names. Default 8080.")
      ->group(group);
  app.add_flag("--allow-remote", command.allow_remote,
               "Allow a --host that other machines can reach without API keys: whoever reaches the "
               "port may use the model.")
      ->group(group);
  app.add_option("--ssl-certfile", command.http.certificate_file,
                 "Speak TLS, with the certificate (and its chain) in this PEM file.")
      ->type_name("FILE")
      ->group(group);
  app.add_option("--ssl-keyfile", command.http.key_file,
                 "The certificate's private key, PEM. Default: the certificate's file.")
      ->type_name("FILE")
      ->group(group);
  add_whole(app, "--io-threads", command.http.n_io_threads, {1, 64},
            "Threads that read and write sockets. Default 1.")
      ->group(group);
}

void add_key_flags(CLI::App& app, ServeCommand& command) {
  const std::string group = "API keys";
  app.add_option(
         "--api-key", command.keys.keys,
         "A key that clients must send; repeatable. Other users of the machine can see it in "
         "the list of processes: better in GRAFT_API_KEY, or as a hash in --api-keys-file.")
      ->type_name("KEY")
      ->allow_extra_args(false)
      ->envname("GRAFT_API_KEY")
      ->group(group);
  app.add_option("--admin-key", command.keys.admin_keys,
                 "A key that may also change what is served; repeatable. Environment: "
                 "GRAFT_ADMIN_KEY.")
      ->type_name("KEY")
      ->allow_extra_args(false)
      ->envname("GRAFT_ADMIN_KEY")
      ->group(group);
  app.add_option(
         "--api-keys-file", command.keys.file,
         "Hashes of keys with tenant, role, modules and limits, one JSON object a line; 'graft "
         "keys new' writes it. SIGHUP has it read again.")
      ->type_name("FILE")
      ->group(group);
}

void add_limit_flags(CLI::App& app, HttpOptions& http) {
  const std::string group = "Limits";
  add_whole(app, "--max-connections", http.max_connections, {1, 65536},
            "Open connections; more are turned away with 503. Default 1024.")
      ->group(group);
  add_whole(app, "--max-header-bytes", http.max_header_bytes, {1024, 1 << 20},
            "Longest header of a request; a longer one is 431. Default 32768.")
      ->group(group);
  add_whole(app, "--max-body-bytes", http.max_body_bytes, {1024, 1 << 26},
            "Longest body of a request; a longer one is 413. Default 8388608.")
      ->group(group);
  add_whole(app, "--max-preparing", http.max_queued_preparations, {1, 65536},
            "Requests that wait for being parsed and tokenised; more are 429. Default 256.")
      ->group(group);
}

void add_timeout_flags(CLI::App& app, ServeCommand& command) {
  const std::string group = "Timeouts";
  HttpOptions& http = command.http;
  add_seconds(app, "--handshake-timeout", http.handshake_timeout, "For TLS to begin. Default 5.")
      ->group(group);
  add_seconds(app, "--header-timeout", http.header_timeout,
              "For a request's header, from its first byte. Default 10.")
      ->group(group);
  add_seconds(app, "--body-timeout", http.body_timeout, "For a request's body. Default 30.")
      ->group(group);
  add_seconds(app, "--idle-timeout", http.idle_timeout,
              "For the next request on an open connection. Default 75.")
      ->group(group);
  add_seconds(app, "--write-timeout", http.write_timeout,
              "For a client to take what is sent, at most 256 KiB at a time. Default 10.")
      ->group(group);
  add_seconds(app, "--ping-interval", http.ping_interval,
              "Silence after which a stream says something. Default 10.")
      ->group(group);
  app.add_option_function<std::int32_t>(
         "--shutdown-timeout",
         [&command](std::int32_t value) { command.shutdown_timeout = std::chrono::seconds(value); },
         "For running answers to finish after SIGTERM or SIGINT. Default 30.")
      ->check(in_range(0, 86400, true))
      ->type_name("SECONDS")
      ->group(group);
}

Status check_keys(const std::vector<std::string>& keys, const std::string& flag) {
  for (const std::string& key : keys) {
    const bool is_visible =
        std::all_of(key.begin(), key.end(), [](char c) { return c > 0x20 && c < 0x7F; });
    if (key.empty() || key.size() > kMaxKeyBytes || !is_visible) {
      return invalid_argument(flag + ": a key has 1 to " + std::to_string(kMaxKeyBytes) +
                              " visible ASCII characters");
    }
  }
  return {};
}

}  // namespace

void add_network_flags(CLI::App& app, ServeCommand& command) {
  add_address_flags(app, command);
  add_key_flags(app, command);
  add_limit_flags(app, command.http);
  add_timeout_flags(app, command);
}

Status finish_network_flags(ServeCommand& command) {
  GRAFT_RETURN_IF_ERROR(check_keys(command.keys.keys, "--api-key"));
  GRAFT_RETURN_IF_ERROR(check_keys(command.keys.admin_keys, "--admin-key"));
  HttpOptions& http = command.http;
  if (!command.allow_remote && !command.keys.closes_inference() && !is_loopback(http.host)) {
    return invalid_argument("--host " + http.host +
                            " can be reached from other machines, and no API key is set; give "
                            "--api-key or --api-keys-file, or say with --allow-remote that "
                            "everybody may use the model");
  }
  if (http.certificate_file.empty() && !http.key_file.empty()) {
    return invalid_argument("--ssl-keyfile needs --ssl-certfile");
  }
  if (http.key_file.empty()) http.key_file = http.certificate_file;
  return {};
}

void add_new_key_flags(CLI::App& app, NewKeyCommand& command) {
  api::ApiKey& key = command.key;
  app.add_option("FILE", command.file, "The file for --api-keys-file; made if it is not there.")
      ->required()
      ->type_name("");
  app.add_option("NAME", key.name, "A name for the key, as logs will show it.")
      ->required()
      ->type_name("");
  app.add_option("--tenant", key.tenant,
                 "Whose cached prompts it shares. Default: the name, so nobody else's.")
      ->type_name("NAME");
  app.add_flag("--admin", key.is_admin, "It may also change what is served.");
  app.add_option("--module", key.modules,
                 "A module it may use, or 'namespace/*'; repeatable. Default: all.")
      ->type_name("NAME")
      ->allow_extra_args(false);
  add_whole(app, "--max-concurrent", key.limits.max_concurrent, {1, 100000},
            "Requests at once. Default: no limit.");
  add_whole(app, "--requests-per-minute", key.limits.requests_per_minute, {1, 1e12},
            "Default: no limit.");
  add_whole(app, "--tokens-per-minute", key.limits.tokens_per_minute, {1, 1e12},
            "Of prompts and answers. Default: no limit.");
}

}  // namespace graft::cli
