// The kernels that make inputs and check results, compiled for a machine of one thread and held against the
// host's reference: all patterns, and everything that a check must call wrong.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "reference.h"
#include "support/data.cu"

namespace arb {
namespace {

using Bytes = std::vector<std::byte>;

constexpr u64 count = 1003;
constexpr u32 ranks = 5;
constexpr std::array all_patterns{Pattern::random, Pattern::special, Pattern::perturbed};

InputParams inputs_of(Dtype dtype, Pattern pattern, u64 call, const u64* finished = nullptr) {
  InputParams inputs{};
  inputs.seed = 77;
  inputs.finished_calls = finished;
  inputs.call = call;
  inputs.count_elements = count;
  inputs.ranks = ranks;
  inputs.dtype = static_cast<DtypeCode>(dtype);
  inputs.pattern = pattern;
  return inputs;
}

std::vector<Bytes> fill_all(const InputParams& inputs) {
  const auto dtype = static_cast<Dtype>(inputs.dtype);
  std::vector<Bytes> made(ranks, Bytes(count * size_of_bytes(dtype)));
  for (u32 rank = 0; rank < ranks; ++rank) support_fill({made[rank].data(), nullptr, inputs, rank, 0});
  return made;
}

// In rank order, in fp32, rounded once.
Bytes sum_of(const std::vector<Bytes>& inputs, Dtype dtype) {
  std::vector<float> sum = decode(inputs[0], dtype);
  for (std::size_t rank = 1; rank < inputs.size(); ++rank) {
    const std::vector<float> more = decode(inputs[rank], dtype);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += more[i];
  }
  return encode(sum, dtype);
}

CheckRecord check(const Bytes& result, const InputParams& inputs, bool rank_order, CheckRecord record = {}) {
  const auto dtype = static_cast<Dtype>(inputs.dtype);
  const u32 roundings = rank_order ? 1 : ranks - 1;
  support_check({result.data(), &record, inputs, relative_bound(dtype, roundings, ranks),
                 absolute_bound(dtype, roundings), rank_order ? 1u : 0u, 0});
  return record;
}

class SupportKernels : public testing::TestWithParam<Dtype> {};

TEST_P(SupportKernels, RandomInputsAreTheHosts) {
  const u64 finished = 30;
  const auto made = fill_all(inputs_of(GetParam(), Pattern::random, 4, &finished));
  for (u32 rank = 0; rank < ranks; ++rank)
    EXPECT_EQ(made[rank], make_input(GetParam(), count, 77 + 34, rank));
}

TEST_P(SupportKernels, ARightSumIsRightInEveryPattern) {
  for (const Pattern pattern : all_patterns) {
    for (u64 call = 0; call < 20; ++call) {
      const InputParams inputs = inputs_of(GetParam(), pattern, call);
      const auto made = fill_all(inputs);
      const Bytes sum = sum_of(made, GetParam());
      for (const bool rank_order : {true, false}) {
        const CheckRecord found = check(sum, inputs, rank_order);
        EXPECT_EQ(found.wrong_elements, 0u)
            << "call " << call << ", element " << element_of_wrong_place(found.first_wrong);
        EXPECT_EQ(found.first_wrong, 0u);
        EXPECT_EQ(found.hash, std::stoull(hash_hex(sum), nullptr, 16));
      }
      EXPECT_TRUE(check_sum(sum, made, GetParam(), 1).correct);
    }
  }
}

// Whatever bit of whatever element flips: bit for bit always seen, and otherwise as the host's check sees it.
TEST_P(SupportKernels, AFlippedBitIsWrong) {
  const u64 width = size_of_bytes(GetParam());
  for (const Pattern pattern : all_patterns) {
    const u64 finished = 1000;
    const InputParams inputs = inputs_of(GetParam(), pattern, 5, &finished);
    const auto made = fill_all(inputs);
    const Bytes sum = sum_of(made, GetParam());
    int seen_by_bound = 0;
    constexpr u64 step = 9;  // visits every bit of a word
    for (u64 index = 0; index < count; index += step) {
      Bytes changed = sum;
      const u64 bit = index % (8 * width);
      changed[index * width + bit / 8] ^= std::byte{1} << (bit % 8);
      const CheckRecord found = check(changed, inputs, true);
      const float was = decode(std::span(sum).subspan(index * width, width), GetParam())[0];
      const float is = decode(std::span(changed).subspan(index * width, width), GetParam())[0];
      if (std::isnan(was) && std::isnan(is)) {
        EXPECT_EQ(found.wrong_elements, 0u);
        continue;
      }
      ASSERT_EQ(found.wrong_elements, 1u) << "element " << index << " bit " << bit;
      EXPECT_EQ(element_of_wrong_place(found.first_wrong), index);
      EXPECT_EQ(call_of_wrong_place(found.first_wrong), 1005u);
      const bool host = check_sum(changed, made, GetParam(), ranks - 1).correct;
      EXPECT_EQ(check(changed, inputs, false).wrong_elements, host ? 0u : 1u) << "element " << index;
      seen_by_bound += host ? 0 : 1;
    }
    EXPECT_GT(seen_by_bound, static_cast<int>(count / step) / 20);
  }
}

TEST_P(SupportKernels, SpecialInputsHaveEveryCorner) {
  std::vector<float> values;
  bool sentinel = false;
  bool negative_zero_sum = false;
  for (u64 call = 0; call < 4; ++call) {
    const auto made = fill_all(inputs_of(GetParam(), Pattern::special, call));
    for (const Bytes& bytes : made) {
      const std::vector<float> some = decode(bytes, GetParam());
      values.insert(values.end(), some.begin(), some.end());
      for (std::size_t word = 0; word + 4 <= bytes.size(); word += 4) {
        u32 bits = 0;
        std::memcpy(&bits, bytes.data() + word, 4);
        sentinel = sentinel || bits == ~0u;
      }
    }
    for (const float sum : decode(sum_of(made, GetParam()), GetParam()))
      negative_zero_sum = negative_zero_sum || (sum == 0 && std::signbit(sum));
  }
  const auto has = [&](const auto& matches) { return std::ranges::any_of(values, matches); };
  const float largest = GetParam() == Dtype::fp16   ? 65504.0F
                        : GetParam() == Dtype::bf16 ? 0x1.FEp127F
                                                    : std::numeric_limits<float>::max();
  const float denormal = GetParam() == Dtype::fp16   ? 0x1p-24F
                         : GetParam() == Dtype::bf16 ? 0x1p-133F
                                                     : 0x1p-149F;
  EXPECT_TRUE(sentinel && negative_zero_sum);
  EXPECT_TRUE(has([](float v) { return v == 0 && std::signbit(v); }));
  EXPECT_TRUE(has([](float v) { return v == 0 && !std::signbit(v); }));
  EXPECT_TRUE(has([](float v) { return std::isnan(v); }));
  for (const float wanted : {std::numeric_limits<float>::infinity(), denormal, largest / 8, 1.0F}) {
    EXPECT_TRUE(has([&](float v) { return v == wanted; })) << wanted;
    EXPECT_TRUE(has([&](float v) { return v == -wanted; })) << -wanted;
  }
}

TEST_P(SupportKernels, PerturbedInputsDifferInOneElementOfOneRank) {
  const auto base = fill_all(inputs_of(GetParam(), Pattern::perturbed, 0));
  const Bytes stale = sum_of(base, GetParam());
  std::vector<bool> hit(ranks, false);
  for (u64 call = 1; call < 40; ++call) {
    const InputParams inputs = inputs_of(GetParam(), Pattern::perturbed, call);
    const auto made = fill_all(inputs);
    int changed = 0;
    for (u32 rank = 0; rank < ranks; ++rank) {
      const auto before = decode(base[rank], GetParam());
      const auto after = decode(made[rank], GetParam());
      for (u64 i = 0; i < count; ++i) {
        if (before[i] == after[i]) continue;
        ++changed;
        hit[rank] = true;
      }
    }
    EXPECT_EQ(changed, 2) << "the element of call 0 is back, and another one changed";
    // The result of another call is wrong, with the loosest bound too.
    EXPECT_GE(check(stale, inputs, false).wrong_elements, 1u);
  }
  EXPECT_EQ(std::ranges::count(hit, true), ranks);
}

TEST_P(SupportKernels, AnUntouchedResultIsWrong) {
  for (const Pattern pattern : all_patterns) {
    const InputParams inputs = inputs_of(GetParam(), pattern, 3);
    Bytes input(count * size_of_bytes(GetParam()));
    Bytes poisoned(input.size());
    support_fill({input.data(), poisoned.data(), inputs, 0, 0});
    // Where NaN is right it is not in the poison, so all but sums beyond its size are seen.
    EXPECT_GT(check(poisoned, inputs, false).wrong_elements, count * 3 / 4);
    EXPECT_GT(check(poisoned, inputs, true).wrong_elements, count * 99 / 100);
  }
}

TEST_P(SupportKernels, HashesOfCallsAddUpAndDoNotCancel) {
  u64 finished = 0;
  const InputParams first = inputs_of(GetParam(), Pattern::random, 0, &finished);
  const InputParams second = inputs_of(GetParam(), Pattern::random, 1, &finished);
  const Bytes a = sum_of(fill_all(first), GetParam());
  const Bytes b = sum_of(fill_all(second), GetParam());
  const u64 right = check(b, second, true, check(a, first, true)).hash;
  const u64 swapped = check(a, second, true, check(b, first, true)).hash;
  EXPECT_NE(right, swapped);
}

TEST(SupportCounter, AdvancesAndDelaysEnd) {
  u64 finished = 5;
  support_advance({&finished, 12});
  EXPECT_EQ(finished, 17u);
  support_delay({&finished, 0, 1, 20'000, 3, 0});
  EXPECT_EQ(element_of_wrong_place(wrong_place(9, 4)), 4u);
  EXPECT_GT(wrong_place(8, 100), wrong_place(9, 4));
}

INSTANTIATE_TEST_SUITE_P(Types, SupportKernels, testing::ValuesIn(all_dtypes),
                         [](const auto& dtype) { return std::string(name_of(dtype.param)); });

}  // namespace
}  // namespace arb
