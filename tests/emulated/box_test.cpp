// The emulated box: right answers, counted traffic, refusals in sentences, and never a time.
#include "emulator/box.h"

#include <gtest/gtest.h>

#include <machine/types.cuh>

#include <arb/abi.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "catalog.h"
#include "emulator/counting.h"
#include "emulator/random.h"
#include "reference.h"

namespace arb::test {
namespace {

// Two islands where a contender needs some.
std::uint32_t islands_of(const CatalogRow& row, std::uint32_t ranks) {
  return row.needs_islands ? ranks / 2 : 0;
}

Cell cell_of(const CatalogRow& row, Dtype dtype, std::uint32_t ranks, std::uint64_t bytes, Place place) {
  Cell cell;
  cell.island_ranks = islands_of(row, ranks);
  cell.contender = row.contender;
  cell.dtype = dtype;
  cell.ranks = ranks;
  cell.bytes = bytes;
  cell.place = place;
  return cell;
}

std::vector<const CatalogRow*> kernel_contenders() {
  std::vector<const CatalogRow*> rows;
  for (const CatalogRow& row : catalog())
    if (row.source == Source::kernel) rows.push_back(&row);
  return rows;
}

class Box : public testing::TestWithParam<std::string> {};

TEST_P(Box, is_right_and_moves_what_theory_says) {
  const CatalogRow& row = *find_contender(GetParam());
  const auto box = make_emulated_box(8);
  for (const std::uint32_t ranks : {2U, 3U, 4U, 5U, 6U, 8U})
    for (const Dtype dtype : all_dtypes)
      for (const Place place : {Place::out, Place::in})
        for (const std::uint64_t bytes : {0U, 4U, 36U, 5760U, 100'004U, 1U << 20}) {
          const Team team{ranks, islands_of(row, ranks)};
          if (place == Place::in && !row.in_place) continue;
          if (row.needs_islands && (ranks < 4 || ranks % 2 != 0)) continue;
          if (!row.needs_islands && (ranks == 4 || ranks == 6)) continue;
          // A megabyte once: it is the size at which the box must still be quick.
          if (bytes == 1U << 20 && (ranks != 8 || place == Place::in || dtype != Dtype::bf16)) continue;
          const Outcome outcome = box->run(cell_of(row, dtype, ranks, bytes, place));
          const auto where = std::string(name_of(dtype)) + " x " + std::to_string(ranks) + ", " +
                             std::to_string(bytes) + " bytes, " + std::string(name_of(place));
          ASSERT_EQ(outcome.failure, "") << where;
          ASSERT_EQ(outcome.wrong, "") << where;
          EXPECT_TRUE(outcome.correct) << where;
          EXPECT_TRUE(outcome.samples_us.empty()) << where;
          EXPECT_EQ(outcome.output_hash.size(), 16U) << where;
          ASSERT_TRUE(outcome.messages && outcome.wire_bytes) << where;
          // Every rank must at least hear of every other; a push of nothing says nothing.
          if (bytes != 0 || !row.sentinel) {
            EXPECT_GE(*outcome.messages, row.needs_islands ? ranks / 2 : ranks - 1) << where;
          }
          if (const auto theory = row.wire_bytes_theory(team, bytes)) {
            // Shards are whole vectors, so the busiest rank may have one more of each than its share.
            const std::uint64_t slack_bytes = std::uint64_t{ranks} * vector_bytes;
            EXPECT_LE(*outcome.wire_bytes, *theory + slack_bytes) << where;
            EXPECT_GE(*outcome.wire_bytes + slack_bytes, *theory) << where;
          }
          const LaunchShape shape = row.shape(team, bytes);
          EXPECT_EQ(outcome.ran,
                    "emulated " + std::to_string(shape.blocks) + "x" + std::to_string(shape.threads));
        }
}

std::vector<std::string> names() {
  std::vector<std::string> result;
  for (const CatalogRow* row : kernel_contenders()) result.emplace_back(row->contender);
  return result;
}

INSTANTIATE_TEST_SUITE_P(Catalog, Box, testing::ValuesIn(names()), [](const auto& name) {
  std::string result = name.param;
  std::replace(result.begin(), result.end(), '/', '_');
  return result;
});

TEST(EmulatedBox, says_what_it_is_and_knows_no_time) {
  const auto box = make_emulated_box(4);
  EXPECT_EQ(box->evidence(), Evidence::emulated);
  EXPECT_EQ(box->world(), "emulated");
  EXPECT_FALSE(box->limits());
}

TEST(EmulatedBox, a_seed_gives_the_same_bits_on_contenders_that_add_alike) {
  const auto box = make_emulated_box(4);
  std::string hash;
  for (const CatalogRow* row : kernel_contenders()) {
    if (!row->rank_order) continue;
    ASSERT_FALSE(row->needs_islands);
    const Outcome outcome = box->run(cell_of(*row, Dtype::bf16, 4, 4096, Place::out));
    if (hash.empty()) hash = outcome.output_hash;
    EXPECT_EQ(outcome.output_hash, hash) << row->contender;
  }
}

TEST(EmulatedBox, refuses_in_a_sentence) {
  const auto box = make_emulated_box(4);
  const CatalogRow& row = *kernel_contenders().front();
  const auto failure_of = [&](const Cell& cell) {
    const Outcome outcome = box->run(cell);
    EXPECT_FALSE(outcome.correct);
    EXPECT_FALSE(outcome.messages);
    return outcome.failure;
  };
  Cell unknown = cell_of(row, Dtype::bf16, 2, 64, Place::out);
  unknown.contender = "no such thing";
  EXPECT_EQ(failure_of(unknown), "there is no contender no such thing; `arbench list` shows them");
  EXPECT_EQ(failure_of(cell_of(row, Dtype::bf16, 8, 64, Place::out)),
            "the emulated box has 2 to 4 ranks, not 8");
  EXPECT_EQ(failure_of(cell_of(row, Dtype::fp32, 2, 66, Place::out)),
            "66 bytes are no whole number of fp32 elements");
  EXPECT_NE(failure_of(cell_of(row, Dtype::fp32, 2, 64U << 20, Place::out)).find("larger ones need GPUs"),
            std::string::npos);
  for (const CatalogRow& other : catalog()) {
    if (!other.needs_islands) continue;
    Cell none = cell_of(other, Dtype::fp32, 4, 64, Place::out);
    none.island_ranks = 0;
    EXPECT_NE(failure_of(none).find("4 ranks are in islands of 0; give --islands"), std::string::npos);
    none.island_ranks = 3;
    EXPECT_NE(failure_of(none).find("needs at least 2 islands"), std::string::npos);
  }
  for (const CatalogRow& other : catalog()) {
    const bool is_kernel = other.source == Source::kernel;
    if (is_kernel && other.in_place) continue;
    const std::string_view reason = is_kernel ? other.in_place_refusal : "needs GPUs";
    const Place place = is_kernel ? Place::in : Place::out;
    EXPECT_NE(failure_of(cell_of(other, Dtype::fp32, 2, 64, place)).find(reason), std::string::npos);
  }
}

TEST(EmulatedBox, an_unchecked_cell_says_so) {
  const auto box = make_emulated_box(2);
  Cell cell = cell_of(*kernel_contenders().front(), Dtype::bf16, 2, 64, Place::out);
  cell.check = false;
  EXPECT_EQ(box->run(cell).flags, (std::vector<std::string>{"unchecked"}));
}

TEST(CountingMachine, a_deadlock_says_who_waits_for_whom) {
  emulator::CountingMachine machine(2);
  alignas(256) std::array<std::byte, 256> memory{};
  machine.add_buffer(0, "flags", memory.data(), memory.size());
  const auto failure_with = [&](const std::function<void(emulator::Engine&)>& wait) {
    return machine.run({{{1, [&] { wait(*emulator::running->engine); }}}, {{1, [] {}}}}, 1, [](u32, u32) {})
        .value_or("");
  };
  EXPECT_EQ(failure_with([&](emulator::Engine& engine) {
              engine.wait_reached(reinterpret_cast<const u32*>(memory.data()), 3,
                                  {emulator::Order::acquire, emulator::Scope::system}, Phase::reduce, 1,
                                  "reduce: wait");
            }),
            "deadlock: rank 0 block 0 waits for rank 1 in phase reduce (expects 3, sees 0)");
  EXPECT_EQ(
      failure_with([&](emulator::Engine& engine) {
        engine.wait_whole_arrived(memory.data(), 64, 0, Phase::exchange, 1);
      }),
      "deadlock: rank 0 block 0 waits for rank 1 in phase exchange (16 words from the first missing one "
      "on)");
}

TEST(CountingMachine, a_stray_access_ends_the_run) {
  emulator::CountingMachine machine(2);
  alignas(256) std::array<std::byte, 256> memory{};
  machine.add_buffer(0, "input", memory.data(), 128);
  const auto failure = machine.run(
      {{{1, [] {}}}, {{1, [&] { emulator::running->engine->whole_source(memory.data() + 64, 128); }}}}, 1,
      [](u32, u32) {});
  ASSERT_TRUE(failure);
  EXPECT_EQ(*failure, "rank 1 touches 128 bytes that lie in no buffer, at offset 64 of rank 0's input");
}

// ---- the twin's conversions against the reference's

template <class Element>
u32 rounded(float value) {
  machine::Sum<Element> sum = machine::Sum<Element>::of(0);
  sum.low = value;
  return sum.rounded() & 0xffff;
}

u32 encoded(float value, Dtype dtype) {
  unsigned short bits = 0;
  std::memcpy(&bits, encode(std::span(&value, 1), dtype).data(), 2);
  return bits;
}

TEST(Conversions, every_16_bit_value_reads_as_the_reference_reads_it) {
  for (u32 bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<unsigned short>(bits);
    const auto bytes = std::as_bytes(std::span(&half, 1));
    const float bf16 = machine::Sum<machine::bf16>::of(bits).low;
    const float fp16 = machine::Sum<machine::fp16>::of(bits).low;
    const float expected_bf16 = decode(bytes, Dtype::bf16)[0];
    const float expected_fp16 = decode(bytes, Dtype::fp16)[0];
    const auto same = [](float a, float b) {
      return std::isnan(b) ? std::isnan(a) : std::bit_cast<u32>(a) == std::bit_cast<u32>(b);
    };
    EXPECT_TRUE(same(bf16, expected_bf16)) << bits;
    EXPECT_TRUE(same(fp16, expected_fp16)) << bits;
    EXPECT_TRUE(same(machine::Sum<machine::bf16>::of(bits << 16).high, expected_bf16)) << bits;
    EXPECT_TRUE(same(machine::Sum<machine::fp16>::of(bits << 16).high, expected_fp16)) << bits;
    if (testing::Test::HasFailure()) break;
  }
}

TEST(Conversions, rounding_is_the_reference_s) {
  emulator::Random random(1);
  const auto check = [](float value) {
    EXPECT_EQ(rounded<machine::bf16>(value), encoded(value, Dtype::bf16)) << std::bit_cast<u32>(value);
    EXPECT_EQ(rounded<machine::fp16>(value), encoded(value, Dtype::fp16)) << std::bit_cast<u32>(value);
  };
  for (int i = 0; i < 300'000; ++i) check(std::bit_cast<float>(static_cast<u32>(random.next())));
  // Around every fp16 value and the midpoints between them.
  for (u32 bits = 0; bits < 0x7c00; ++bits) {
    const u32 value = std::bit_cast<u32>(machine::Sum<machine::fp16>::of(bits).low);
    const float next = machine::Sum<machine::fp16>::of(bits + 1).low;
    const u32 middle =
        std::bit_cast<u32>(bits == 0x7bff ? 65520.0F : (std::bit_cast<float>(value) + next) / 2);
    for (const u32 near : {value, middle})
      for (const u32 sign : {0U, 0x80000000U})
        for (const u32 offset : {0xffffffffU, 0U, 1U})
          if (near + offset < 0x7f800000U) check(std::bit_cast<float>((near + offset) | sign));
  }
  check(std::numeric_limits<float>::infinity());
  check(-std::numeric_limits<float>::infinity());
  check(std::numeric_limits<float>::quiet_NaN());
}

}  // namespace
}  // namespace arb::test
