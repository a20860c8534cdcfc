#include "probe/version.h"

#include <fmt/format.h>

#include <algorithm>

namespace arb::probe {
namespace {

bool is_digit(char letter) {
  return letter >= '0' && letter <= '9';
}

constexpr std::size_t most_digits = 18;  // what fits into 64 bits whatever the digits

}  // namespace

std::optional<Version> Version::parse(std::string_view text) {
  Version version;
  if (text.starts_with('v')) text.remove_prefix(1);
  if (const std::size_t plus = text.find('+'); plus != std::string_view::npos) {
    version.local = text.substr(plus + 1);
    text = text.substr(0, plus);
  }
  while (!text.empty() && is_digit(text.front())) {
    std::size_t digits = 0;
    std::uint64_t number = 0;
    while (digits < text.size() && is_digit(text[digits])) {
      if (digits == most_digits) return std::nullopt;
      number = number * 10 + static_cast<std::uint64_t>(text[digits] - '0');
      ++digits;
    }
    version.numbers.push_back(number);
    text.remove_prefix(digits);
    if (text.size() < 2 || text.front() != '.' || !is_digit(text[1])) break;
    text.remove_prefix(1);
  }
  if (version.numbers.empty()) return std::nullopt;
  return version;
}

std::strong_ordering operator<=>(const Version& a, const Version& b) {
  const std::size_t longest = std::max(a.numbers.size(), b.numbers.size());
  for (std::size_t i = 0; i < longest; ++i) {
    if (const auto order = a.part(i) <=> b.part(i); order != 0) return order;
  }
  return std::strong_ordering::equal;
}

bool operator==(const Version& a, const Version& b) {
  return (a <=> b) == 0;
}

std::string decode_cuda(std::uint64_t code) {
  return fmt::format("{}.{}", code / 1000, code % 1000 / 10);
}

std::string decode_cudnn(std::uint64_t code) {
  if (code >= 90000) return fmt::format("{}.{}.{}", code / 10000, code % 10000 / 100, code % 100);
  return fmt::format("{}.{}.{}", code / 1000, code % 1000 / 100, code % 100);
}

std::optional<std::uint64_t> encode_cudnn(std::string_view version) {
  const auto parsed = Version::parse(version);
  if (!parsed || parsed->numbers.size() < 2) return std::nullopt;
  const std::uint64_t major = parsed->part(0);
  return major >= 9 ? major * 10000 + parsed->part(1) * 100 + parsed->part(2)
                    : major * 1000 + parsed->part(1) * 100 + parsed->part(2);
}

std::string decode_nccl(std::uint64_t code) {
  if (code < 10000) return fmt::format("{}.{}.{}", code / 1000, code % 1000 / 100, code % 100);
  return fmt::format("{}.{}.{}", code / 10000, code % 10000 / 100, code % 100);
}

std::optional<std::string> cuda_of_tag(std::string_view tag) {
  if (tag.starts_with("cuda")) {
    const std::string_view digits = tag.substr(4);
    if (digits.empty() || !is_digit(digits.front())) return std::nullopt;
    const std::size_t end = digits.find_first_not_of("0123456789.");
    return std::string(digits.substr(0, end));
  }
  if (!tag.starts_with("cu")) return std::nullopt;
  std::string_view digits = tag.substr(2);
  digits = digits.substr(0, digits.find_first_not_of("0123456789"));
  if (digits.size() == 2) return std::string(digits);
  if (digits.size() == 3) return fmt::format("{}.{}", digits.substr(0, 2), digits.substr(2));
  return std::nullopt;
}

}  // namespace arb::probe
