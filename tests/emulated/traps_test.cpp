// Traps that others fell into and that no weakened site stands for: small wrong protocols, and catalog rows
// that promise too much. Each must be caught; the same protocol without the mistake must pass.
#include <arb/abi.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "emulator/gate/scenario.h"
#include "machine/machine.cuh"

namespace arb::gate {
namespace {

constexpr std::uint64_t covers = 3;

// How often each kind of failure ends a run, over some covers of a row. `prepare` may change a scenario, or
// leave it out by returning false.
std::map<std::string, int> failures_of(const CatalogRow& row, emulator::KernelFunction kernel,
                                       const std::function<bool(Scenario&)>& prepare = nullptr) {
  emulator::ProofMachine machine(2, 1);
  std::map<std::string, int> result;
  std::uint64_t seed = 1;
  for (std::uint64_t cover = 1; cover <= covers; ++cover)
    for (Scenario scenario : pairwise_cover(row, cover)) {
      scenario.kernel = kernel;
      if (prepare && !prepare(scenario)) continue;
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

constexpr auto only_bf16 = [](const Scenario& s) { return s.dtype == Dtype::bf16; };

CatalogRow small_row() {
  CatalogRow row{};
  row.contender = "small protocol";
  row.kernel = "small_protocol";
  row.style = Style::staged;
  row.in_place = true;
  row.scratch_bytes = [](const Team&, std::uint64_t capacity_bytes) { return 3 * capacity_bytes; };
  row.rank_order = true;
  row.roundings = [](std::uint32_t) { return 1U; };
  return row;
}

template <Mistake kMistake>
Failures failures_with() {
  return failures_of(small_row(), small_protocol<kMistake>, only_bf16);
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

// ---- a push protocol with one mistake

enum class PushMistake {
  none,
  one_slot,
  no_refill,              // the sentinel is not put back
  refill_before_arrival,  // it is put back while words of the vector are still on their way
  one_word_checked,       // of a vector of four
  raw_payload,            // a payload word that equals the sentinel is sent as it is
  halves_in_place,        // a thread overwrites what another has yet to push
  step_too_early,         // the generation steps before all threads of the block have read it
  read_too_early,         // the generation is read before the previous kernel has ended
};

template <PushMistake kMistake>
void small_push(const KernelParams& params) {
  using namespace machine;
  using namespace machine::detail;
  using Element = bf16;
  const u64 count = params.count_elements;
  const auto step = [&] { finish_call(params, Site("generation step")); };
  u32 generation = current_generation(params);
  wait_for_previous_kernel(Site("previous kernel"));
  let_next_kernel_start();
  if (kMistake != PushMistake::read_too_early) {
    if (kMistake == PushMistake::step_too_early && count != 0) step();
    generation = current_generation(params);
  }
  if (count == 0) return;
  const u32 slot = kMistake == PushMistake::one_slot ? 0 : generation % 2;
  const Mailboxes mail =
      mailboxes(params, params.ranks, slot * params.ranks * params.capacity_bytes, params.capacity_bytes);
  const auto area_of = [&](u32 peer, u64 i) {
    return reinterpret_cast<Vector*>(mail.area(mail.member, peer)) + i;
  };
  const bool from_aligned = is_vector_aligned(params.input);
  const bool to_aligned = is_vector_aligned(params.output);
  const bool halves = kMistake == PushMistake::halves_in_place && thread_count() > 1;
  const u32 workers = halves ? thread_count() / 2 : thread_count();
  const bool pushes = !halves || thread_index() < workers;
  const bool receives = !halves || (thread_index() >= workers && thread_index() < 2 * workers);
  const u64 first = block_index() * workers + thread_index() % workers;
  for (u64 i = first; i < whole_message<Element>(count).end; i += block_count() * workers) {
    if (!pushes && !receives) break;
    Vector own = load_vector<Element>(params.input, count, i, from_aligned);
    if (kMistake != PushMistake::raw_payload) own = as_payload(own);
    if (pushes) push_to_all<0>(Peers<0>(mail, 0), static_cast<u32>(i), own);
    if (!receives) continue;
    Vector part[max_ranks] = {};
    for (u32 peer = 0; peer < params.ranks; ++peer) {
      if (peer == mail.member) {
        part[peer] = own;
        continue;
      }
      const u32* words = area_of(peer, i)->word;
      for (u32 w = 0; w < 4; ++w)
        part[peer].word[w] =
            kMistake == PushMistake::one_word_checked && w > 0
                ? static_cast<u32>(engine().load(words + w, 4, relaxed_system, nullptr))
                : engine().wait_arrived(words + w, sentinel, relaxed_system, Phase::exchange, peer);
      if (kMistake == PushMistake::refill_before_arrival) {
        // As if a wait for the first peer were followed by a refill of all areas.
        for (u32 other = peer + 1; other < params.ranks; ++other)
          if (other != mail.member) refill_one(area_of(other, i), Site("early refill"));
      }
      if (kMistake != PushMistake::no_refill) refill_one(area_of(peer, i), Site("refill"));
    }
    store_vector<Element>(params.output, count, i, to_aligned, sum_of<Element, 0>(part, params.ranks));
  }
  block_barrier(Site("generation is read"));
  if (kMistake != PushMistake::step_too_early) step();
}

CatalogRow push_row() {
  CatalogRow row = small_row();
  row.contender = "small push";
  row.scratch_bytes = [](const Team& team, std::uint64_t capacity_bytes) {
    return 2 * team.ranks * capacity_bytes;
  };
  row.sentinel = true;
  row.kernel_fences = true;
  row.programmatic = true;
  return row;
}

template <PushMistake kMistake>
Failures push_failures_with() {
  return failures_of(push_row(), small_push<kMistake>, only_bf16);
}

TEST(PushTraps, the_protocol_without_a_mistake_passes) {
  EXPECT_EQ(push_failures_with<PushMistake::none>(), Failures{});
}

TEST(PushTraps, one_slot_is_caught) {
  EXPECT_GT(push_failures_with<PushMistake::one_slot>()["race"], 0);
}

TEST(PushTraps, a_skipped_refill_is_caught) {
  EXPECT_GT(push_failures_with<PushMistake::no_refill>()["wrong value"], 0);
}

TEST(PushTraps, a_refill_of_what_has_yet_to_come_is_caught) {
  EXPECT_NE(push_failures_with<PushMistake::refill_before_arrival>(), Failures{});
}

TEST(PushTraps, a_vector_of_which_one_word_is_checked_is_caught) {
  EXPECT_NE(push_failures_with<PushMistake::one_word_checked>(), Failures{});
}

TEST(PushTraps, a_payload_that_is_the_sentinel_is_caught) {
  EXPECT_GT(push_failures_with<PushMistake::raw_payload>()["deadlock"], 0);
}

TEST(PushTraps, halves_that_push_and_receive_are_right_out_of_place_only) {
  const auto failures_at = [](Place place) {
    return failures_of(push_row(), small_push<PushMistake::halves_in_place>,
                       [=](const Scenario& s) { return s.dtype == Dtype::bf16 && s.place == place; });
  };
  EXPECT_EQ(failures_at(Place::out), Failures{});
  EXPECT_GT(failures_at(Place::in)["race"], 0);
}

TEST(PushTraps, a_generation_that_steps_too_early_is_caught) {
  EXPECT_NE(push_failures_with<PushMistake::step_too_early>(), Failures{});
}

TEST(PushTraps, a_generation_that_is_read_before_the_previous_kernel_has_ended_is_caught) {
  EXPECT_NE(push_failures_with<PushMistake::read_too_early>(), Failures{});
}

TEST(PushTraps, leftovers_of_another_protocol_are_caught) {
  for (const std::uint32_t leftover : {0U, 0x3f803f80U})
    EXPECT_NE(failures_of(push_row(), small_push<PushMistake::none>,
                          [=](Scenario& s) {
                            s.scratch_holds = leftover;
                            return s.dtype == Dtype::bf16;
                          }),
              Failures{});
}

TEST(PushTraps, its_reuse_rests_on_kernel_fences) {
  CatalogRow row = push_row();
  row.kernel_fences = false;
  EXPECT_GT(failures_of(row, small_push<PushMistake::none>, only_bf16)["race"], 0);
}

// Two ways to exchange a message in turns, with the ranks of the own island or with all: a rank then hears of
// strangers only through others, which pass on no order.
template <bool kStrangers>
void turns(const KernelParams& params) {
  using namespace machine;
  const u32 members = params.island_ranks;
  const u32 islands = params.ranks / members;
  const u32 member = params.rank % members;
  const u32 island = params.rank / members;
  const u32 generation = current_generation(params);
  const u32 slot = generation % 2;
  const auto area = [&](u32 first_area) {
    return scratch_message(params, 0, 0) + (slot * 3 * params.ranks + first_area) * params.capacity_bytes;
  };
  const auto team = [&](u32 first_area, u32 own, u32 size, u32 first_rank, u32 rank_step) {
    return Mailboxes{
        area(first_area), params.scratch.stride_bytes, params.capacity_bytes, own, size, first_rank,
        rank_step};
  };
  const u64 count = params.count_elements;
  if (count == 0) return;
  char* const partial = scratch_message(params, params.rank, 6 * params.ranks);
  const WaitContext context = wait_context(params);
  if (kStrangers && generation % 3 != 0) {
    exchange_message<bf16, 0>(
        params.output, params.input, count, [&] { return team(0, params.rank, params.ranks, 0, 1); }, context,
        Phase::exchange, Site("all: refill"));
  } else {
    const Mailboxes inside = team(params.ranks, member, members, island * members, 1);
    const Mailboxes across = team(2 * params.ranks, island, islands, member, members);
    scatter_shares<bf16, 0>(params.input, count, 1, inside);
    reduce_and_broadcast_share<bf16, 0>(partial, params.input, count, 0, 1, inside, across, context,
                                        Phase::reduce, Site("inside: refill"));
    reduce_and_broadcast_share<bf16, 0>(params.output, partial, count, 0, 1, across,
                                        team(0, 0, 1, params.rank, 0), context, Phase::exchange,
                                        Site("across: refill"));
  }
  block_barrier(Site("generation is read"));
  finish_call(params, Site("generation step"));
}

TEST(PushTraps, ranks_that_do_not_hear_of_each_other_in_every_call_are_caught) {
  CatalogRow row = push_row();
  row.programmatic = false;
  row.needs_islands = true;
  row.rank_order = false;
  row.roundings = [](std::uint32_t) { return 2U; };
  row.scratch_bytes = [](const Team& team, std::uint64_t capacity_bytes) {
    return (6 * team.ranks + 1) * capacity_bytes;
  };
  EXPECT_EQ(failures_of(row, turns<false>, only_bf16), Failures{});
  EXPECT_GT(failures_of(row, turns<true>, only_bf16)["race"], 0);
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

TEST(Traps, a_message_less_of_scratch_is_too_little) {
  for (const CatalogRow& row : catalog()) {
    if (row.source != Source::kernel || row.scratch_bytes({8, 4}, 256) == 0) continue;
    EXPECT_GT(failures_of(row, nullptr,
                          [](Scenario& s) {
                            s.messages_short = 1;
                            return true;
                          })["out of bounds"],
              0)
        << row.contender << " needs less scratch than its row says";
  }
}

// Of the fences too: a row that does not name them must not need them.
TEST(Traps, kernel_fences_are_granted_only_where_they_are_needed) {
  for (const CatalogRow& row : catalog()) {
    if (row.source != Source::kernel || !row.kernel_fences) continue;
    CatalogRow bold = row;
    bold.kernel_fences = false;
    EXPECT_GT(failures_of(bold, nullptr, [](Scenario&) { return true; })["race"], 0) << row.contender;
  }
}

}  // namespace
}  // namespace arb::gate
