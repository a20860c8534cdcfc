// Words and numbers as people write them: sizes, lists, nearest names.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace arb {

// "32K", "1M", "5760": the largest binary unit that divides the size.
std::string size_name(std::uint64_t size_bytes);
// Reads "5760", "1K", "64M", "2G" (either case, an optional trailing B or iB); empty for anything else.
std::optional<std::uint64_t> size_from(std::string_view text);
// Reads "90", "90s", "2m", "1h" as seconds; empty for anything else.
std::optional<std::uint64_t> seconds_from(std::string_view text);
// Parts between commas, without surrounding blanks; empty parts are dropped.
std::vector<std::string> split_list(std::string_view text, char separator = ',');
// The candidate with the fewest edits to `name`, if that is close enough to be a typing error.
std::optional<std::string> nearest_name(std::string_view name, std::span<const std::string> candidates);
// "a, b and c".
std::string enumerate(std::span<const std::string> words);
// One line of at most `limit` characters: control characters become blanks, the rest is cut with "...".
std::string one_line(std::string_view text, std::size_t limit = 200);
// The shortest text that reads back as the same double.
std::string shortest(double value);

}  // namespace arb
