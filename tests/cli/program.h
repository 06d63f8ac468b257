// Runs the real graft binary as a child process, with its output in files. For tests; one thread.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace graft {

inline std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

inline void write_text(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

// A directory of its own, removed with all that is in it.
class ScratchDirectory {
 public:
  ScratchDirectory() {
    std::string path = (std::filesystem::temp_directory_path() / "graft-XXXXXX").string();
    if (mkdtemp(path.data()) == nullptr) std::abort();
    path_ = path;
  }
  ~ScratchDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

class Program {
 public:
  explicit Program(std::vector<std::string> arguments, const std::string& input = {}) {
    arguments.insert(arguments.begin(), GRAFT_BINARY);
    write_text(directory_.path() / "in", input);
    pid_ = fork();
    if (pid_ != 0) return;
    redirect("in", O_RDONLY, STDIN_FILENO);
    redirect("out", O_WRONLY | O_CREAT, STDOUT_FILENO);
    redirect("err", O_WRONLY | O_CREAT, STDERR_FILENO);
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    execv(argv[0], argv.data());
    _exit(126);
  }
  ~Program() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  std::string out() const { return read_text(directory_.path() / "out"); }
  std::string err() const { return read_text(directory_.path() / "err"); }
  void signal(int number) const { ::kill(pid_, number); }
  // Waits until standard error holds `text` `n` times.
  bool wait_for_err(const std::string& text, int n = 1) const {
    return until([&] {
      const std::string all = err();
      int found = 0;
      for (std::size_t at = 0; (at = all.find(text, at)) != std::string::npos; ++at) ++found;
      return found >= n;
    });
  }

  // The exit status; -1 when the process was killed by a signal or does not end within a minute.
  int wait() {
    int status = 0;
    if (!until([&] { return waitpid(pid_, &status, WNOHANG) == pid_; })) return -1;
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  // Of a serving program: the port of the ready line; 0 when none comes.
  std::uint16_t wait_for_port() const {
    std::string text;
    until([&] {
      const bool ended = has_ended();
      text = out();
      return ended || text.find('\n') != std::string::npos;
    });
    if (!text.starts_with("ready: http")) return 0;
    const std::size_t colon = text.rfind(':', text.find("  model "));
    return static_cast<std::uint16_t>(std::atoi(text.c_str() + colon + 1));
  }

 private:
  // Leaves the process to be waited for.
  bool has_ended() const {
    siginfo_t info{};
    return waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
           info.si_pid != 0;
  }

  void redirect(const char* name, int flags, int target) const {
    const int fd = ::open((directory_.path() / name).c_str(), flags | O_CLOEXEC, 0600);
    if (fd < 0 || dup2(fd, target) < 0) _exit(126);
  }

  template <typename Condition>
  static bool until(Condition condition) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (!condition()) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return true;
  }

  ScratchDirectory directory_;
  pid_t pid_ = -1;
};

}  // namespace graft
