#include "worker_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <optional>
#include <system_error>
#include <utility>

#include "descriptor.h"
#include "errors.h"
#include "text.h"

namespace arb {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::size_t longest_reply_bytes = 64 << 20;
constexpr std::size_t longest_log_bytes = 16 << 20;
constexpr std::size_t kept_output_bytes = 4096;

[[noreturn]] void throw_errno(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

// A copy of the descriptor under a number that the child's own (0 to 3, and those given) cannot collide with.
Descriptor high_copy(int fd) {
  constexpr int first = 64;
  const int copy = ::fcntl(fd, F_DUPFD_CLOEXEC, first);
  if (copy < 0) throw_errno("fcntl");
  return Descriptor(copy);
}
Descriptor high(int fd) {
  const Descriptor low(fd);
  return high_copy(fd);
}

std::vector<std::string> child_environment(const std::map<std::string, std::string>& set) {
  std::vector<std::string> variables;
  for (char** entry = ::environ; *entry != nullptr; ++entry) {
    const std::string_view variable = *entry;
    if (set.contains(std::string(variable.substr(0, variable.find('='))))) continue;
    if (variable.starts_with("CUDA_MODULE_LOADING=") || variable.starts_with("CUDA_DEVICE_MAX_CONNECTIONS="))
      continue;
    variables.emplace_back(variable);
  }
  for (const auto& [name, value] : set) variables.push_back(fmt::format("{}={}", name, value));
  variables.emplace_back("CUDA_MODULE_LOADING=EAGER");
  variables.emplace_back("CUDA_DEVICE_MAX_CONNECTIONS=32");
  return variables;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> list;
  for (std::string& text : texts) list.push_back(text.data());
  list.push_back(nullptr);
  return list;
}

std::string seconds_text(milliseconds time) {
  return fmt::format("{:g} s", static_cast<double>(time.count()) / 1000);
}

std::string end_text(int status) {
  if (WIFEXITED(status)) return fmt::format("ended with status {}", WEXITSTATUS(status));
  const int signal = WTERMSIG(status);
  const char* name = ::sigdescr_np(signal);
  return fmt::format("was killed by signal {} ({})", signal, name != nullptr ? name : "unknown");
}

}  // namespace

std::vector<std::string> worker_arguments(const WorkerConfig& config) {
  return {"worker", "--config", to_wire(config)};
}

// The process, its socket and its captured output.
class WorkerProcess::Child {
 public:
  explicit Child(const WorkerLaunch& launch);
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() { kill_and_reap(); }

  // What an exchange ends with; a line is left in line().
  enum class Event : std::uint8_t { line, ended, too_long };
  // Begins to send `text` and to wait for a line.
  void begin(const std::string& text);
  // What to poll for, and what follows from what was found.
  static constexpr std::size_t watched = 2;
  [[nodiscard]] std::array<pollfd, watched> watch() const;
  std::optional<Event> react(const std::array<pollfd, watched>& entries);
  // Polls until every one of `children` has had its event, told to `on_event(index, event)`, which may throw.
  // False when the deadline passed first: `children` keeps those that wait. Throws Interrupted.
  template <class OnEvent>
  static bool watch_all(std::vector<std::pair<std::size_t, Child*>>& children, Clock::time_point deadline,
                        const Interrupt* interrupt, OnEvent on_event);
  // Lets the process end by itself until `until`, then kills it and its group. Returns its wait status; a
  // process that had to be killed gives nothing.
  std::optional<int> wait_end(Clock::time_point until);
  void kill_and_reap();

  [[nodiscard]] const std::string& line() const { return line_; }
  [[nodiscard]] const std::string& unfinished() const { return received_; }
  // The last line of output that is not blank.
  [[nodiscard]] std::string last_words() const;

 private:
  bool take_line();
  bool read_socket();  // false at its end
  void drain_output();
  bool has_ended();

  pid_t pid_ = -1;
  std::optional<int> status_;
  Descriptor socket_;
  Descriptor output_;
  std::string to_send_;
  std::size_t sent_ = 0;
  std::string received_;
  std::string line_;
  std::string kept_;
  std::ofstream log_;
  std::size_t logged_bytes_ = 0;
};

WorkerProcess::Child::Child(const WorkerLaunch& launch) {
  std::array<int, 2> sockets{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets.data()) != 0) throw_errno("socketpair");
  socket_ = high(sockets[0]);
  const Descriptor child_socket = high(sockets[1]);
  std::array<int, 2> pipes{};
  if (::pipe2(pipes.data(), O_CLOEXEC) != 0) throw_errno("pipe2");
  output_ = high(pipes[0]);
  const Descriptor child_output = high(pipes[1]);
  const Descriptor null = high(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  for (const Descriptor* ours : {&socket_, &output_}) {
    if (::fcntl(ours->get(), F_SETFL, O_NONBLOCK) != 0) throw_errno("fcntl");
  }
  std::vector<Descriptor> given;
  for (const int fd : launch.descriptors) given.push_back(high_copy(fd));
  if (!launch.log_file.empty()) log_.open(launch.log_file, std::ios::binary | std::ios::app);

  // Everything that allocates happens before fork: after it the child may call async-signal-safe functions
  // only.
  // A Python finds its packages by the name it was started with.
  const bool ourselves = launch.program == "/proc/self/exe";
  std::vector<std::string> arguments = {ourselves ? "arbench" : launch.program.string()};
  arguments.insert(arguments.end(), launch.arguments.begin(), launch.arguments.end());
  std::vector<std::string> environment = child_environment(launch.variables);
  const std::vector<char*> argv = pointers(arguments);
  const std::vector<char*> envp = pointers(environment);
  const std::string program = launch.program.string();
  sigset_t none;
  sigemptyset(&none);
  const pid_t parent = ::getpid();

  pid_ = ::fork();
  if (pid_ < 0) throw_errno("fork");
  if (pid_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(127);
    ::setpgid(0, 0);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    ::signal(SIGPIPE, SIG_DFL);
    ::dup2(null.get(), STDIN_FILENO);
    ::dup2(child_output.get(), STDOUT_FILENO);
    ::dup2(child_output.get(), STDERR_FILENO);
    int own_fd = worker_socket_fd;
    ::dup2(child_socket.get(), own_fd);
    for (const Descriptor& descriptor : given) ::dup2(descriptor.get(), ++own_fd);
    ::close_range(static_cast<unsigned>(own_fd) + 1, ~0U, CLOSE_RANGE_CLOEXEC);
    ::execve(program.c_str(), argv.data(), envp.data());
    constexpr std::string_view sentence = "cannot start the worker's program\n";
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, sentence.data(), sentence.size());
    ::_exit(127);
  }
  ::setpgid(pid_, pid_);  // also here: whoever comes first, the group exists before it may have to be killed
}

// Leaves the process a zombie, so that its number stays its own until the group is killed.
bool WorkerProcess::Child::has_ended() {
  if (status_) return true;
  siginfo_t info{};
  return ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid == pid_;
}

void WorkerProcess::Child::kill_and_reap() {
  if (pid_ < 0) return;
  ::kill(-pid_, SIGKILL);
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  status_ = status;
  drain_output();
  pid_ = -1;
}

void WorkerProcess::Child::drain_output() {
  std::array<char, 16384> buffer{};
  // Bounded, so that a worker that floods its stderr cannot keep the coordinator from its deadline.
  for (int round = 0; round < 16; ++round) {
    const ssize_t got = ::read(output_.get(), buffer.data(), buffer.size());
    if (got <= 0) {
      if (got == 0) output_.reset();
      return;
    }
    const auto bytes = static_cast<std::size_t>(got);
    kept_.append(buffer.data(), bytes);
    if (kept_.size() > kept_output_bytes) kept_.erase(0, kept_.size() - kept_output_bytes);
    if (log_.is_open() && logged_bytes_ < longest_log_bytes) {
      log_.write(buffer.data(), got);
      log_.flush();
      logged_bytes_ += bytes;
      if (logged_bytes_ >= longest_log_bytes) log_ << "\n[the log is cut here]\n" << std::flush;
    }
  }
}

bool WorkerProcess::Child::read_socket() {
  std::array<char, 65536> buffer{};
  while (true) {
    const ssize_t got = ::recv(socket_.get(), buffer.data(), buffer.size(), 0);
    if (got > 0) {
      received_.append(buffer.data(), static_cast<std::size_t>(got));
      if (received_.size() > longest_reply_bytes) return true;
      continue;
    }
    if (got < 0 && errno == EINTR) continue;
    return got < 0 && errno == EAGAIN;
  }
}

bool WorkerProcess::Child::take_line() {
  const std::size_t end = received_.find('\n');
  if (end == std::string::npos) return false;
  line_ = received_.substr(0, end);
  received_.erase(0, end + 1);
  return true;
}

void WorkerProcess::Child::begin(const std::string& text) {
  to_send_ = text;
  sent_ = 0;
}

std::array<pollfd, WorkerProcess::Child::watched> WorkerProcess::Child::watch() const {
  return {pollfd{.fd = socket_.get(),
                 .events = static_cast<short>(sent_ < to_send_.size() ? POLLIN | POLLOUT : POLLIN),
                 .revents = 0},
          pollfd{.fd = output_.get(), .events = POLLIN, .revents = 0}};
}

auto WorkerProcess::Child::react(const std::array<pollfd, watched>& entries) -> std::optional<Event> {
  if (entries[1].revents != 0) drain_output();
  bool ended = has_ended();
  if (sent_ < to_send_.size() && (entries[0].revents & POLLOUT) != 0) {
    const ssize_t wrote =
        ::send(socket_.get(), to_send_.data() + sent_, to_send_.size() - sent_, MSG_NOSIGNAL);
    if (wrote > 0) sent_ += static_cast<std::size_t>(wrote);
    if (wrote < 0 && errno != EAGAIN && errno != EINTR) ended = true;
  }
  // After its end once more: the answer may have come first.
  if ((entries[0].revents & (POLLIN | POLLHUP | POLLERR)) != 0 || ended) {
    if (!read_socket()) ended = true;
  }
  if (take_line()) return Event::line;
  if (received_.size() > longest_reply_bytes) return Event::too_long;
  if (ended) return Event::ended;
  return std::nullopt;
}

template <class OnEvent>
bool WorkerProcess::Child::watch_all(std::vector<std::pair<std::size_t, Child*>>& children,
                                     Clock::time_point deadline, const Interrupt* interrupt,
                                     OnEvent on_event) {
  while (!children.empty()) {
    const Clock::time_point now = Clock::now();
    if (now >= deadline) return false;
    // Short naps, because a worker may end while a grandchild keeps its socket open.
    const auto left = std::chrono::ceil<milliseconds>(deadline - now);
    const int nap_ms = static_cast<int>(std::min<std::int64_t>(left.count(), 100));
    std::vector<pollfd> entries;
    for (const auto& [index, child] : children) {
      for (const pollfd& entry : child->watch()) entries.push_back(entry);
    }
    entries.push_back({.fd = interrupt != nullptr ? interrupt->fd() : -1, .events = POLLIN, .revents = 0});
    const int ready = ::poll(entries.data(), entries.size(), nap_ms);
    if (ready < 0 && errno != EINTR) throw_errno("poll");
    if (entries.back().revents != 0) throw Interrupted();
    std::vector<std::pair<std::size_t, Child*>> waiting;
    for (std::size_t i = 0; i < children.size(); ++i) {
      const auto [index, child] = children[i];
      const auto event = child->react({entries[watched * i], entries[watched * i + 1]});
      if (event)
        on_event(index, *event);
      else
        waiting.push_back(children[i]);
    }
    children = std::move(waiting);
  }
  return true;
}

std::optional<int> WorkerProcess::Child::wait_end(Clock::time_point until) {
  while (!has_ended() && Clock::now() < until) {
    pollfd entry{.fd = output_.get(), .events = POLLIN, .revents = 0};
    ::poll(&entry, 1, 5);
    if (entry.revents != 0) drain_output();
  }
  const bool by_itself = has_ended();
  kill_and_reap();
  return by_itself ? status_ : std::nullopt;
}

std::string WorkerProcess::Child::last_words() const {
  std::string_view text = kept_;
  while (true) {
    const std::size_t last = text.find_last_not_of(" \t\r\n");
    if (last == std::string_view::npos) return {};
    text = text.substr(0, last + 1);
    const std::size_t begin = text.rfind('\n');
    return one_line(text.substr(begin == std::string_view::npos ? 0 : begin + 1), 300);
  }
}

WorkerProcess::WorkerProcess(WorkerLaunch launch)
    : child_(std::make_unique<Child>(launch)), launch_(std::move(launch)) {}

WorkerProcess::~WorkerProcess() = default;

bool WorkerProcess::alive() const {
  return child_ != nullptr;
}

WorkerLost WorkerProcess::lose(WorkerLost::Cause cause, const std::string& what, std::string_view doing) {
  child_->kill_and_reap();
  const std::string words = child_->last_words();
  child_.reset();
  return {cause,
          fmt::format("{}, {}: {}; {}", launch_.who, doing, what,
                      words.empty() ? "it had said nothing on stderr" : "last on its stderr: " + words)};
}

WorkerLost WorkerProcess::nonsense(std::string_view why, std::string_view said, std::string_view doing) {
  return lose(WorkerLost::Cause::nonsense,
              fmt::format("it answered nonsense ({}): '{}'", why, one_line(said, 60)), doing);
}

WorkerLost WorkerProcess::too_late(milliseconds deadline, std::string_view doing) {
  const std::string half = child_->unfinished();
  return lose(WorkerLost::Cause::deadline,
              fmt::format("no answer within {}, so it was killed{}", seconds_text(deadline),
                          half.empty() ? "" : fmt::format(" (half a line came: '{}')", one_line(half, 60))),
              doing);
}

WorkerLost WorkerProcess::ended(Clock::time_point until, std::string_view doing) {
  const std::string half = child_->unfinished();
  const auto status = child_->wait_end(std::min(until, Clock::now() + milliseconds(1000)));
  const std::string end = status ? "it " + end_text(*status) : "it closed its socket, so it was killed";
  return lose(
      WorkerLost::Cause::died,
      end + (half.empty() ? "" : fmt::format(" in the middle of an answer ('{}')", one_line(half, 60))),
      doing);
}

Reply WorkerProcess::reply_to(const Request& request, std::string_view doing) {
  Reply reply;
  try {
    reply = reply_from_wire(child_->line());
  } catch (const WireError& error) {
    throw nonsense(error.what(), child_->line(), doing);
  }
  if (reply.op != request.op)
    throw nonsense(fmt::format("a reply to \"{}\"", name_of(reply.op)), child_->line(), doing);
  if (!child_->unfinished().empty()) throw nonsense("more than one line", child_->unfinished(), doing);
  if (reply.cell && *reply.cell != *request.cell) {
    throw lose(WorkerLost::Cause::wrong_cell,
               fmt::format("it answered for another cell ({} at {} bytes)",
                           one_line(reply.cell->contender, 60), reply.cell->bytes),
               doing);
  }
  return reply;
}

Reply WorkerProcess::request(const Request& request, milliseconds deadline, std::string_view doing) {
  WorkerProcess* const self = this;
  return std::move(request_all(std::span(&self, 1), request, deadline, doing).front());
}

std::vector<Reply> WorkerProcess::request_all(std::span<WorkerProcess* const> workers, const Request& request,
                                              milliseconds deadline, std::string_view doing) {
  const std::string text = to_wire(request) + "\n";
  const Clock::time_point until = Clock::now() + deadline;
  std::vector<Reply> replies(workers.size());
  try {
    std::vector<std::pair<std::size_t, Child*>> waiting;
    for (std::size_t i = 0; i < workers.size(); ++i) {
      if (!workers[i]->alive()) {
        throw WorkerLost(WorkerLost::Cause::died,
                         fmt::format("{}, {}: it was lost before", workers[i]->launch_.who, doing));
      }
      workers[i]->child_->begin(text);
      waiting.emplace_back(i, workers[i]->child_.get());
    }
    const auto take = [&](std::size_t i, Child::Event event) {
      WorkerProcess& worker = *workers[i];
      if (event == Child::Event::too_long)
        throw worker.nonsense("a line without end", worker.child_->unfinished(), doing);
      if (event == Child::Event::ended) throw worker.ended(until, doing);
      replies[i] = worker.reply_to(request, doing);
    };
    if (!Child::watch_all(waiting, until, workers.front()->launch_.interrupt, take)) {
      throw workers[waiting.front().first]->too_late(deadline, doing);
    }
  } catch (...) {
    for (WorkerProcess* const worker : workers) worker->child_.reset();
    throw;
  }
  return replies;
}

void WorkerProcess::quit(milliseconds patience) noexcept {
  WorkerProcess* const self = this;
  quit_all(std::span(&self, 1), patience);
}

void WorkerProcess::quit_all(std::span<WorkerProcess* const> workers, milliseconds patience) noexcept {
  try {
    const Clock::time_point until = Clock::now() + patience;
    std::vector<std::pair<std::size_t, Child*>> waiting;
    for (WorkerProcess* const worker : workers) {
      if (!worker->alive()) continue;
      worker->child_->begin(to_wire(Request{.op = Op::quit, .cell = {}}) + "\n");
      waiting.emplace_back(waiting.size(), worker->child_.get());
    }
    auto ending = waiting;
    Child::watch_all(waiting, until, nullptr, [](std::size_t, Child::Event) {});
    for (const auto& [index, child] : ending) child->wait_end(until);
  } catch (const std::exception&) {
    // The destructor kills them.
  }
  for (WorkerProcess* const worker : workers) worker->child_.reset();
}

}  // namespace arb
