// Runs a program as a user would and keeps what it said.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "scratch.h"

namespace arb::test {

struct Said {
  int status = -1;  // exit status; -signal when a signal ended it
  std::string out;
  std::string err;
};

struct CommandOptions {
  std::map<std::string, std::string> environment;  // added to ours
  std::uintmax_t interrupt_at_bytes = 0;           // SIGINT once standard output has so many; 0: never
  std::chrono::milliseconds patience = std::chrono::seconds(60);  // SIGKILL after it
};

inline Said run_command(const std::vector<std::string>& arguments, const CommandOptions& options = {}) {
  const Scratch scratch;
  const std::string out = (scratch.path() / "out").string();
  const std::string err = (scratch.path() / "err").string();
  std::vector<std::string> copies = arguments;
  std::vector<char*> argv;
  for (std::string& text : copies) argv.push_back(text.data());
  argv.push_back(nullptr);
  const pid_t child = ::fork();
  if (child < 0) throw std::runtime_error("fork");
  if (child == 0) {
    const int null = ::open("/dev/null", O_RDONLY);
    const int out_fd = ::open(out.c_str(), O_CREAT | O_WRONLY, 0644);
    const int err_fd = ::open(err.c_str(), O_CREAT | O_WRONLY, 0644);
    ::dup2(null, 0);
    ::dup2(out_fd, 1);
    ::dup2(err_fd, 2);
    for (const auto& [name, value] : options.environment) ::setenv(name.c_str(), value.c_str(), 1);
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  const auto begin = std::chrono::steady_clock::now();
  bool interrupted = options.interrupt_at_bytes == 0;
  int status = 0;
  while (::waitpid(child, &status, WNOHANG) == 0) {
    const auto elapsed = std::chrono::steady_clock::now() - begin;
    std::error_code missing;
    if (!interrupted && std::filesystem::file_size(out, missing) >= options.interrupt_at_bytes && !missing) {
      ::kill(child, SIGINT);
      interrupted = true;
    }
    if (elapsed > options.patience) ::kill(child, SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status), read_file(out), read_file(err)};
}

// Lines of `text`.
inline std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    lines.push_back(text.substr(begin, end - begin));
    if (end == std::string::npos) break;
    begin = end + 1;
  }
  return lines;
}

}  // namespace arb::test
