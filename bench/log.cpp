#include "log.h"

#include <fmt/format.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/ostream_sink.h>

#include <cmath>
#include <ostream>

#include "text.h"

namespace arb {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds between_lines{15};
constexpr std::chrono::milliseconds between_updates{100};

std::string duration_text(double seconds) {
  const auto whole = std::lround(seconds);
  return whole < 60 ? fmt::format("{}s", whole) : fmt::format("{}m{:02}s", whole / 60, whole % 60);
}

}  // namespace

struct Log::Sink {
  explicit Sink(std::ostream& err)
      : logger("arbench", std::make_shared<spdlog::sinks::ostream_sink_st>(err, true)) {
    logger.set_pattern("arbench: %v");
  }
  spdlog::logger logger;
};

Log::Log(std::ostream& err, bool live)
    : sink_(std::make_unique<Sink>(err)), err_(err), live_(live), begin_(Clock::now()), last_shown_(begin_) {}

Log::~Log() {
  clear();
}

void Log::sentence(const std::string& text) {
  clear();
  sink_->logger.info(one_line(text, 2000));
  sentences_.push_back(text);
}

void Log::progress(double done, double total, const std::string& next) {
  const Clock::time_point now = Clock::now();
  if (now - last_shown_ < (live_ ? Clock::duration(between_updates) : Clock::duration(between_lines))) return;
  last_shown_ = now;
  const double elapsed_s = std::chrono::duration<double>(now - begin_).count();
  const bool known = done > 0 && total > done;
  const std::string left = known ? duration_text(elapsed_s * (total - done) / done) + " left" : "";
  const std::string text = fmt::format("{:3.0f}% {:>11}  {}", total > 0 ? 100 * done / total : 0, left, next);
  if (!live_) {
    sink_->logger.info(text);
    return;
  }
  err_ << "\r\x1b[K" << one_line(text, 100) << std::flush;
  line_shown_ = true;
}

void Log::clear() {
  if (!line_shown_) return;
  err_ << "\r\x1b[K" << std::flush;
  line_shown_ = false;
}

}  // namespace arb
