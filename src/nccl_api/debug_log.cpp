#include "nccl_api/debug_log.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>

namespace arb::nccl {
namespace {

constexpr std::string_view symmetric_protocol = "symmetric";

// Reads a log line's remainder piece by piece; every step says whether it fitted.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : rest_(text) {}

  bool literal(std::string_view expected) {
    if (!rest_.starts_with(expected)) return false;
    rest_.remove_prefix(expected.size());
    return true;
  }
  template <typename Number>
  bool number(Number& value) {
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (error != std::errc{}) return false;
    rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
    return true;
  }
  // A name that starts with a letter: old versions print numbers here, whose meaning changed between
  // versions.
  bool word(std::string& value) {
    const auto letter = [](char c) { return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z'); };
    std::size_t length = 0;
    while (length < rest_.size() && (letter(rest_[length]) || rest_[length] == '_' ||
                                     (rest_[length] >= '0' && rest_[length] <= '9'))) {
      ++length;
    }
    if (length == 0 || !letter(rest_.front())) return false;
    value = rest_.substr(0, length);
    rest_.remove_prefix(length);
    return true;
  }
  [[nodiscard]] std::string_view rest() const { return rest_; }

 private:
  std::string_view rest_;
};

// "AllReduce: 4096 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..7}"
std::optional<Choice> choice_of_algorithm(std::string_view text) {
  Choice choice;
  std::uint32_t low = 0;
  std::uint32_t high = 0;
  Scanner scan(text);
  if (!scan.literal("AllReduce: ") || !scan.number(choice.bytes) || !scan.literal(" Bytes -> Algo ") ||
      !scan.word(choice.algorithm) || !scan.literal(" proto ") || !scan.word(choice.protocol) ||
      !scan.literal(" channel{Lo..Hi}={") || !scan.number(low) || !scan.literal("..") || !scan.number(high) ||
      !scan.literal("}") || high < low || high - low >= 1024) {
    return std::nullopt;
  }
  choice.channels = high - low + 1;
  return choice;
}

// "AllReduce [Symmetric]: 4096 Bytes -> Kernel AllReduce_AGxLL_R nchannels 8 nthreads 512"
std::optional<Choice> choice_of_kernel(std::string_view text) {
  Choice choice;
  choice.protocol = symmetric_protocol;
  Scanner scan(text);
  if (!scan.literal("AllReduce [Symmetric]: ") || !scan.number(choice.bytes) ||
      !scan.literal(" Bytes -> Kernel ") || !scan.word(choice.algorithm) || !scan.literal(" nchannels ") ||
      !scan.number(choice.channels) || choice.channels == 0 || !scan.literal(" nthreads ")) {
    return std::nullopt;
  }
  return choice;
}

// "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read"; empty for any other line.
std::string_view transport_of(std::string_view text) {
  constexpr std::string_view mark = " via ";
  const std::size_t via = text.find(mark);
  if (!text.starts_with("Channel ") || via == std::string_view::npos) return {};
  std::string_view transport = text.substr(via + mark.size());
  while (!transport.empty() && transport.back() == ' ') transport.remove_suffix(1);
  const auto known = [&](std::string_view kind) { return transport.starts_with(kind); };
  return known("P2P/") || known("SHM/") || known("NET/") ? transport : std::string_view{};
}

constexpr std::array settings{"NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_FILE"};

}  // namespace

bool is_symmetric(const Choice& choice) {
  return choice.protocol == symmetric_protocol;
}

std::string describe(const Choice& choice) {
  return fmt::format("{} {} {} channel{}{}{}", choice.algorithm, choice.protocol, choice.channels,
                     choice.channels == 1 ? "" : "s", choice.transports.empty() ? "" : " ",
                     fmt::join(choice.transports, "+"));
}

void LogParser::feed(std::string_view text) {
  for (std::size_t end = text.find('\n'); end != std::string_view::npos; end = text.find('\n')) {
    rest_ += text.substr(0, end);
    line(rest_);
    rest_.clear();
    text.remove_prefix(end + 1);
  }
  rest_ += text;
}

void LogParser::line(std::string_view text) {
  constexpr std::string_view mark = "NCCL INFO ";
  const std::size_t start = text.find(mark);
  if (start == std::string_view::npos) return;
  text.remove_prefix(start + mark.size());
  if (text.starts_with("AllReduce")) {
    all_reduce(text);
  } else if (text.find(" rank 0 nranks ") != std::string_view::npos) {
    if (text.ends_with("Init START")) ++communicators_;
    if (text.ends_with("Destroy COMPLETE") || text.ends_with("Abort COMPLETE")) {
      if (communicators_ > 0) --communicators_;
      if (communicators_ == 0) transports_.clear();
    }
  } else if (const std::string_view transport = transport_of(text); !transport.empty()) {
    if (std::ranges::find(transports_, transport) == transports_.end()) transports_.emplace_back(transport);
  }
}

void LogParser::all_reduce(std::string_view text) {
  if (text.find(" Bytes -> ") == std::string_view::npos) return;
  newest_ = choice_of_algorithm(text);
  if (!newest_) newest_ = choice_of_kernel(text);
}

std::optional<Choice> LogParser::newest() const {
  std::optional<Choice> choice = newest_;
  if (!choice) return choice;
  // Only these two go over the connections that the log lists. The lines do not say whose connection they
  // are: with two communicators alive they are told only where they agree.
  const bool listed = choice->algorithm == "RING" || choice->algorithm == "TREE";
  if (listed && (communicators_ <= 1 || transports_.size() == 1)) choice->transports = transports_;
  return choice;
}

DebugLog::DebugLog() {
  if (std::getenv("NCCL_DEBUG") != nullptr) {
    why_not_ =
        "NCCL_DEBUG is set, so NCCL's log goes where the user wants it; unset it to have NCCL's choices "
        "recorded";
    return;
  }
  file_ = ::memfd_create("arbench-nccl-log", MFD_CLOEXEC);
  if (file_ < 0) {
    why_not_ = "no file in memory can be made for NCCL's log, so NCCL's choices are not recorded";
    return;
  }
  ::setenv("NCCL_DEBUG", "INFO", 1);
  ::setenv("NCCL_DEBUG_SUBSYS", "INIT,TUNING", 1);
  ::setenv("NCCL_DEBUG_FILE", fmt::format("/proc/self/fd/{}", file_).c_str(), 1);
}

DebugLog::~DebugLog() {
  if (file_ < 0) return;
  for (const char* const setting : settings) ::unsetenv(setting);
  ::close(file_);
}

void DebugLog::read_on() {
  std::array<char, 1 << 16> piece{};
  while (file_ >= 0) {
    const ssize_t got = ::pread(file_, piece.data(), piece.size(), static_cast<off_t>(read_bytes_));
    if (got <= 0) break;
    parser_.feed({piece.data(), static_cast<std::size_t>(got)});
    read_bytes_ += static_cast<std::uint64_t>(got);
  }
}

std::optional<Choice> DebugLog::choice_for(std::uint64_t bytes) {
  read_on();
  auto choice = parser_.newest();
  if (choice && choice->bytes != bytes) choice.reset();
  return choice;
}

}  // namespace arb::nccl
