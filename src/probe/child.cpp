#include "probe/child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <exception>
#include <thread>
#include <utility>

#include "descriptor.h"
#include "text.h"

namespace arb::probe {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t most_bytes = 1 << 20;
constexpr std::chrono::milliseconds kill_patience{500};

// Reads what is there; false at the end.
bool drain(const Descriptor& from, std::string& to) {
  std::array<char, 16384> buffer{};
  const ssize_t got = ::read(from.get(), buffer.data(), buffer.size());
  if (got < 0) return errno == EAGAIN || errno == EINTR;
  if (got == 0) return false;
  if (to.size() < most_bytes) to.append(buffer.data(), static_cast<std::size_t>(got));
  return true;
}

ChildSaid run(const ChildOptions& options) {
  ChildSaid said;
  std::array<int, 2> pipe_out{};
  std::array<int, 2> pipe_err{};
  if (::pipe2(pipe_out.data(), O_CLOEXEC) != 0) return said;
  Descriptor out(pipe_out[0]);
  Descriptor child_out(pipe_out[1]);
  if (::pipe2(pipe_err.data(), O_CLOEXEC) != 0) return said;
  Descriptor err(pipe_err[0]);
  Descriptor child_err(pipe_err[1]);
  const Descriptor null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  ::fcntl(out.get(), F_SETFL, O_NONBLOCK);
  ::fcntl(err.get(), F_SETFL, O_NONBLOCK);

  // All that allocates comes before fork.
  std::vector<std::string> arguments = {options.program.string()};
  arguments.insert(arguments.end(), options.arguments.begin(), options.arguments.end());
  std::vector<std::string> variables;
  for (char** entry = ::environ; *entry != nullptr; ++entry) {
    const std::string_view variable = *entry;
    if (!options.environment.contains(std::string(variable.substr(0, variable.find('=')))))
      variables.emplace_back(variable);
  }
  for (const auto& [name, value] : options.environment)
    variables.push_back(fmt::format("{}={}", name, value));
  std::vector<char*> argv;
  for (std::string& text : arguments) argv.push_back(text.data());
  argv.push_back(nullptr);
  std::vector<char*> envp;
  for (std::string& text : variables) envp.push_back(text.data());
  envp.push_back(nullptr);
  const std::string program = options.program.string();
  const std::string no_program = program + " cannot be run\n";
  const pid_t parent = ::getpid();

  const Clock::time_point begin = Clock::now();
  const pid_t child = ::fork();
  if (child < 0) return said;
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(127);
    ::setpgid(0, 0);
    ::dup2(null.get(), STDIN_FILENO);
    ::dup2(child_out.get(), STDOUT_FILENO);
    ::dup2(child_err.get(), STDERR_FILENO);
    ::execve(program.c_str(), argv.data(), envp.data());
    [[maybe_unused]] const ssize_t told = ::write(STDERR_FILENO, no_program.data(), no_program.size());
    ::_exit(127);
  }
  ::setpgid(child, child);
  child_out.reset();
  child_err.reset();
  said.started = true;
  bool out_open = true;
  bool err_open = true;
  siginfo_t info{};
  const Clock::time_point until = begin + options.deadline;
  while (true) {
    const Clock::time_point now = Clock::now();
    info = {};
    if (::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
        info.si_pid == child) {
      said.in_time = true;
      break;
    }
    if (now >= until) break;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - now).count();
    std::array<pollfd, 2> entries = {pollfd{.fd = out_open ? out.get() : -1, .events = POLLIN, .revents = 0},
                                     pollfd{.fd = err_open ? err.get() : -1, .events = POLLIN, .revents = 0}};
    ::poll(entries.data(), entries.size(), static_cast<int>(std::min<std::int64_t>(left, 20)));
    if (entries[0].revents != 0) out_open = drain(out, said.out);
    if (entries[1].revents != 0) err_open = drain(err, said.err);
  }
  ::kill(-child, SIGKILL);
  // One that is stuck in the kernel (a wedged driver, a dead file server) cannot be killed; it is left behind.
  int status = 0;
  const Clock::time_point gone_by = Clock::now() + kill_patience;
  while (!said.lost) {
    const pid_t ended = ::waitpid(child, &status, WNOHANG);
    if (ended == child || (ended < 0 && errno != EINTR)) break;
    said.lost = Clock::now() >= gone_by;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  for (int round = 0; round < 128 && out_open; ++round) {
    const std::size_t before = said.out.size();
    out_open = drain(out, said.out) && said.out.size() != before;
  }
  for (int round = 0; round < 128 && err_open; ++round) {
    const std::size_t before = said.err.size();
    err_open = drain(err, said.err) && said.err.size() != before;
  }
  if (!said.lost) said.status = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  said.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  return said;
}

}  // namespace

std::string ChildSaid::problem() const {
  if (!started) return "no process could be started";
  if (lost) return fmt::format("it did not end within {:.0f} s and cannot be killed", seconds);
  if (!in_time) return fmt::format("it did not end within {:.0f} s and was killed", seconds);
  if (status == 0) return {};
  std::string end = fmt::format("it ended with status {}", status);
  if (status < 0) {
    const char* const name = ::sigdescr_np(-status);
    end = fmt::format("it was killed by signal {} ({})", -status, name == nullptr ? "unknown" : name);
  }
  std::string_view words = err;
  while (!words.empty() && (words.back() == '\n' || words.back() == ' ')) words.remove_suffix(1);
  const std::size_t line = words.rfind('\n');
  if (line != std::string_view::npos) words.remove_prefix(line + 1);
  return words.empty() ? end : fmt::format("{}: {}", end, one_line(words, 200));
}

ChildSaid run_child(const ChildOptions& options) noexcept {
  try {
    return run(options);
  } catch (const std::exception&) {
    return {};
  }
}

}  // namespace arb::probe
