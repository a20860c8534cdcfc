#include "text.h"

#include <gtest/gtest.h>

#include <charconv>
#include <random>
#include <string>
#include <vector>

namespace arb {
namespace {

TEST(Text, SizesReadAndWrite) {
  EXPECT_EQ(size_from("5760"), 5760u);
  EXPECT_EQ(size_from("1K"), 1024u);
  EXPECT_EQ(size_from("64m"), 64u << 20);
  EXPECT_EQ(size_from("2GiB"), 2ull << 30);
  EXPECT_EQ(size_from("8KB"), 8192u);
  for (const char* bad : {"", "K", "1.5K", "-1", "1T", "0x10", "1 K", "1KK", "99999999999G"}) {
    EXPECT_FALSE(size_from(bad)) << bad;
  }
  EXPECT_EQ(size_name(1024), "1K");
  EXPECT_EQ(size_name(3 << 20), "3M");
  EXPECT_EQ(size_name(5760), "5760");
  EXPECT_EQ(size_name(0), "0");
  for (std::uint64_t bytes = 1; bytes < (1ull << 40); bytes = bytes * 3 + 1) {
    EXPECT_EQ(size_from(size_name(bytes)), bytes);
    EXPECT_EQ(size_from(size_name(bytes << 10)), bytes << 10);
  }
}

TEST(Text, NearestNameFindsTypingErrorsOnly) {
  const std::vector<std::string> names = {"alpha", "alphabet", "omega"};
  EXPECT_EQ(nearest_name("alhpa", names), "alpha");
  EXPECT_EQ(nearest_name("omga", names), "omega");
  EXPECT_FALSE(nearest_name("zzzzzz", names));
}

TEST(Text, OneLineHoldsNoControlCharacters) {
  EXPECT_EQ(one_line("a\nb\tc\x1b[0m"), "a b c [0m");
  EXPECT_EQ(one_line("abcdef", 3), "abc...");
}

TEST(Text, ListsSplitAndJoin) {
  EXPECT_EQ(split_list(" a, b,,c "), (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_TRUE(split_list("").empty());
  EXPECT_EQ(enumerate(std::vector<std::string>{"a", "b", "c"}), "a, b and c");
}

TEST(Text, ShortestReadsBackAsTheSameDouble) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 1000; ++i) {
    const double value = std::uniform_real_distribution<double>(-1e6, 1e6)(random);
    EXPECT_EQ(std::stod(shortest(value)), value);
  }
}

TEST(Text, SecondsAreReadWithAndWithoutAUnit) {
  EXPECT_EQ(seconds_from("90"), 90u);
  EXPECT_EQ(seconds_from("30s"), 30u);
  EXPECT_EQ(seconds_from("2m"), 120u);
  EXPECT_EQ(seconds_from("1h"), 3600u);
  for (const char* text :
       {"", "s", "m", "-1", "1.5h", "2 m", "1d", "99999999999999999999", "18446744073709551615h"})
    EXPECT_EQ(seconds_from(text), std::nullopt) << text;
}

}  // namespace
}  // namespace arb
