// Traps that others fell into and that no weakened site stands for: small wrong protocols, and catalog rows
// that promise too much. Each must be caught; the same protocol without the mistake must pass.
#include <arb/abi.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "machine/machine.cuh"
#include "scenario.h"

namespace arb::test {
namespace {

constexpr std::uint64_t covers = 3;

// How often each kind of failure ends a run, over some covers of a row.
std::map<std::string, int> failures_of(const CatalogRow& row, emulator::KernelFunction kernel,
                                       const std::function<bool(const Scenario&)>& applies = nullptr) {
  emulator::ProofMachine machine(2, 1);
  std::map<std::string, int> result;
  std::uint64_t seed = 1;
  for (std::uint64_t cover = 1; cover <= covers; ++cover)
    for (Scenario scenario : pairwise_cover(row, cover)) {
      if (applies && !applies(scenario)) continue;
      scenario.kernel = kernel;
      const ScenarioResult run = run_scenario(machine, scenario, seed++);
      if (run.failure) ++result[std::string(emulator::name_of(run.failure->kind))];
    }
  return result;
}

using Failures = std::map<std::string, int>;

// ---- a protocol with one mistake

enum class Mistake {
  none,
  generation_from_host,  // the same in every call, as if a graph had recorded it
  generation_per_block,  // each block counts its own calls, so a change of the grid puts slots out of step
  slots_at_wrap,         // three slots: 2^32 is no multiple of three, so a slot is used twice in a row
  shared_part,           // two blocks write the same vectors
  beyond_the_end,        // the last vector is written whole
};

// One-shot, staged, bf16, any rank count. Its own counter of a block lives in the flag that no peer writes.
template <Mistake kMistake>
void small_protocol(const KernelParams& params) {
  using namespace machine;
  using Element = bf16;
  u32* own_count = flag_of(params, params.rank, Phase::publish, block_index(), params.rank);
  u32 generation = current_generation(params);
  if (kMistake == Mistake::generation_from_host) generation = 1;
  if (kMistake == Mistake::generation_per_block) generation = load_relaxed_device(own_count) + 1;
  const u32 slots = kMistake == Mistake::slots_at_wrap ? 3 : 2;
  const u32 slot = slot_of(generation, slots, Site("scratch slot"));
  u64 count = params.count_elements;
  if (kMistake == Mistake::beyond_the_end) count = (count + 7) / 8 * 8;
  VectorRange part = part_of(whole_message<Element>(count), block_count(), block_index());
  if (kMistake == Mistake::shared_part && part.begin > 0) --part.begin;

  copy_range<Element>(scratch_message(params, params.rank, slot), params.input, params.count_elements, part);
  block_barrier(Site("publish: block is done"));
  signal_peers<0>(params, Phase::publish, generation, Site("publish: signal"));
  wait_for_peers<0>(params, Phase::publish, generation, Site("publish: wait"));
  block_barrier(Site("publish: block may read"));
  reduce_range<Element, 0>(params.output, nullptr, scratch_messages(params, slot), count, part);
  if (kMistake == Mistake::generation_per_block && thread_index() == 0)
    store_relaxed_system(own_count, generation);
  finish_call(params, Site("generation step"));
}

template <Mistake kMistake>
Failures failures_with() {
  CatalogRow row{};
  row.contender = "small protocol";
  row.kernel = "small_protocol";
  row.style = Style::staged;
  row.in_place = true;
  row.scratch_messages = 3;
  row.rank_order = true;
  row.roundings = [](std::uint32_t) { return 1U; };
  return failures_of(row, small_protocol<kMistake>, [](const Scenario& s) { return s.dtype == Dtype::bf16; });
}

TEST(Traps, the_protocol_without_a_mistake_passes) {
  EXPECT_EQ(failures_with<Mistake::none>(), Failures{});
}

TEST(Traps, a_generation_baked_in_by_the_host_is_caught) {
  EXPECT_GT(failures_with<Mistake::generation_from_host>()["race"], 0);
}

TEST(Traps, generations_per_block_are_caught_when_the_grid_changes) {
  EXPECT_NE(failures_with<Mistake::generation_per_block>(), Failures{});
}

TEST(Traps, slots_that_do_not_divide_the_wrap_are_caught) {
  EXPECT_GT(failures_with<Mistake::slots_at_wrap>()["race"], 0);
}

TEST(Traps, blocks_that_share_a_vector_are_caught) {
  EXPECT_GT(failures_with<Mistake::shared_part>()["race"], 0);
}

TEST(Traps, a_tail_written_whole_is_caught) {
  Failures failures = failures_with<Mistake::beyond_the_end>();
  EXPECT_GT(failures["out of bounds"] + failures["unwritten"], 0);
}

// ---- catalog rows that promise too much

TEST(Traps, every_refusal_of_in_place_is_needed) {
  for (const CatalogRow& row : catalog()) {
    if (row.source != Source::kernel || row.in_place) continue;
    CatalogRow bold = row;
    bold.in_place = true;
    const Failures failures =
        failures_of(bold, nullptr, [](const Scenario& s) { return s.place == Place::in; });
    EXPECT_NE(failures, Failures{}) << row.contender << " runs in place without a failure: why refuse it?";
  }
}

TEST(Traps, every_scratch_message_is_needed) {
  for (const CatalogRow& row : catalog()) {
    if (row.source != Source::kernel || row.scratch_messages == 0) continue;
    CatalogRow lean = row;
    lean.scratch_messages -= 1;
    EXPECT_GT(failures_of(lean, nullptr)["out of bounds"], 0)
        << row.contender << " needs fewer than " << row.scratch_messages << " message areas";
  }
}

}  // namespace
}  // namespace arb::test
