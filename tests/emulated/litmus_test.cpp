// Litmus tests: what the emulated memory must allow, and what it must not. Each runs a small program under
// many seeds and looks at the set of outcomes.
#include <gtest/gtest.h>

#include <functional>
#include <machine/execution.cuh>
#include <machine/memory.cuh>
#include <machine/wait.cuh>
#include <set>
#include <string>
#include <vector>

#include "emulator/copy_engine.h"
#include "emulator/proof.h"

namespace arb::test {
namespace {

using emulator::Access;
using emulator::BufferTraits;
using emulator::Failure;
using emulator::Launch;
using emulator::Mutation;
using emulator::Order;
using emulator::ProofMachine;
using emulator::RunOptions;
using emulator::Scope;
using machine::Site;

constexpr std::uint64_t seeds = 400;
constexpr Access relaxed_system{Order::relaxed, Scope::system};
constexpr Access acquire_system{Order::acquire, Scope::system};
constexpr Access release_system{Order::release, Scope::system};
const BufferTraits shared_zero{true, true, 0, 64};

u32 load(const u32* address, Access access) {
  return static_cast<u32>(emulator::running->engine->load(address, 4, access, nullptr));
}
void store(u32* address, u32 value, Access access) {
  emulator::running->engine->store(address, 4, value, access, nullptr);
}

// Two words on rank 0 that everyone may use, `x` and `y`, and what threads have read.
struct Words {
  u32* x;
  u32* y;
  std::vector<u32> read;
};

using Body = std::function<void(u32 rank, Words& words)>;

// The outcomes of a one-launch program over all seeds: the values read, or the kind of failure.
std::set<std::string> outcomes(u32 ranks, u32 blocks, u32 threads, const Body& body, bool races_fail,
                               const std::optional<Mutation>& mutation = std::nullopt) {
  std::set<std::string> result;
  ProofMachine proof(ranks, blocks * threads);
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    proof.reset(ranks, blocks * threads);
    Words words{};
    words.x = reinterpret_cast<u32*>(proof.allocate_for(0, "x", 64, 0, shared_zero));
    words.y = reinterpret_cast<u32*>(proof.allocate_for(0, "y", 64, 0, shared_zero));
    words.read.assign(8, 9);
    const std::vector<Launch> program{
        {"litmus", blocks, threads, [&](u32 rank) { body(rank, words); }, true}};
    RunOptions options;
    options.seed = seed;
    options.races_fail = races_fail;
    options.mutation = mutation;
    const std::optional<Failure> failure = proof.run(program, options);
    if (failure) {
      result.insert(std::string(emulator::name_of(failure->kind)));
      continue;
    }
    std::string text;
    for (const u32 value : words.read)
      if (value != 9) text += std::to_string(value);
    result.insert(text);
  }
  return result;
}

using Outcomes = std::set<std::string>;

// ---- message passing: rank 0 stores x, then raises y; rank 1 reads y, then x.

Body message_passing(Access raise, Access look) {
  return [=](u32 rank, Words& words) {
    if (rank == 0) {
      store(words.x, 1, relaxed_system);
      store(words.y, 1, raise);
    } else {
      words.read[0] = load(words.y, look);
      words.read[1] = load(words.x, relaxed_system);
    }
  };
}

TEST(Litmus, message_passing_with_release_and_acquire_never_sees_the_flag_without_the_data) {
  EXPECT_EQ(outcomes(2, 1, 1, message_passing(release_system, acquire_system), true),
            (Outcomes{"00", "01", "11"}));
}

TEST(Litmus, message_passing_with_a_relaxed_store_loses_the_data) {
  EXPECT_EQ(outcomes(2, 1, 1, message_passing(relaxed_system, acquire_system), true).count("10"), 1U);
}

TEST(Litmus, message_passing_with_a_relaxed_load_loses_the_data) {
  EXPECT_EQ(outcomes(2, 1, 1, message_passing(release_system, relaxed_system), true).count("10"), 1U);
}

TEST(Litmus, message_passing_with_weak_data_and_a_missing_order_is_a_race) {
  const auto body = [](Access raise, Access look) -> Body {
    return [=](u32 rank, Words& words) {
      if (rank == 0) {
        store(words.x, 1, emulator::weak);
        store(words.y, 1, raise);
      } else if (load(words.y, look) == 1) {
        words.read[0] = load(words.x, emulator::weak);
      }
    };
  };
  EXPECT_EQ(outcomes(2, 1, 1, body(release_system, acquire_system), true), (Outcomes{"", "1"}));
  EXPECT_EQ(outcomes(2, 1, 1, body(relaxed_system, acquire_system), true).count("race"), 1U);
  EXPECT_EQ(outcomes(2, 1, 1, body(release_system, relaxed_system), true).count("race"), 1U);
  // The values of the race itself: the flag without the data.
  EXPECT_EQ(outcomes(2, 1, 1, body(relaxed_system, acquire_system), false).count("0"), 1U);
}

TEST(Litmus, message_passing_at_device_scope_works_within_a_rank_and_races_between_ranks) {
  const auto body = [](u32 writer_rank, u32 reader_rank) -> Body {
    constexpr Access raise{Order::release, Scope::device};
    constexpr Access look{Order::acquire, Scope::device};
    return [=](u32 rank, Words& words) {
      if (rank == writer_rank && machine::block_index() == 0) {
        store(words.x, 1, emulator::weak);
        store(words.y, 1, raise);
      } else if (rank == reader_rank && machine::block_index() == 1) {
        if (load(words.y, look) == 1) words.read[0] = load(words.x, emulator::weak);
      }
    };
  };
  EXPECT_EQ(outcomes(1, 2, 1, body(0, 0), true), (Outcomes{"", "1"}));
  EXPECT_EQ(outcomes(2, 2, 1, body(0, 1), true).count("race"), 1U);
}

TEST(Litmus, one_narrow_side_is_enough_to_lose_the_order) {
  const auto body = [](Access raise, Access look) { return message_passing(raise, look); };
  constexpr Access narrow_raise{Order::release, Scope::device};
  constexpr Access narrow_look{Order::acquire, Scope::block};
  EXPECT_EQ(outcomes(2, 1, 1, body(narrow_raise, acquire_system), true).count("race"), 1U);
  EXPECT_EQ(outcomes(2, 1, 1, body(release_system, narrow_look), true).count("race"), 1U);
  EXPECT_EQ(outcomes(2, 1, 1, body(narrow_raise, acquire_system), false).count("10"), 1U);
  EXPECT_EQ(outcomes(2, 1, 1, body(release_system, narrow_look), false).count("10"), 1U);
}

TEST(Litmus, block_scope_works_within_a_block_and_races_between_blocks) {
  const auto body = [](bool same_block) -> Body {
    constexpr Access raise{Order::release, Scope::block};
    constexpr Access look{Order::acquire, Scope::block};
    return [=](u32, Words& words) {
      const u32 me = same_block ? machine::thread_index() : machine::block_index();
      if (me == 0) {
        store(words.x, 1, emulator::weak);
        store(words.y, 1, raise);
      } else if (load(words.y, look) == 1) {
        words.read[0] = load(words.x, emulator::weak);
      }
    };
  };
  EXPECT_EQ(outcomes(1, 1, 2, body(true), true), (Outcomes{"", "1"}));
  EXPECT_EQ(outcomes(1, 2, 1, body(false), true).count("race"), 1U);
}

// ---- store buffering: release and acquire do not order a store before a later load of another word.

TEST(Litmus, store_buffering_may_read_zero_twice) {
  const Body body = [](u32 rank, Words& words) {
    store(rank == 0 ? words.x : words.y, 1, release_system);
    words.read[rank] = load(rank == 0 ? words.y : words.x, acquire_system);
  };
  EXPECT_EQ(outcomes(2, 1, 1, body, true), (Outcomes{"00", "01", "10", "11"}));
}

// ---- cumulativity

// Thread 1 stores the data; thread 0 raises the flag, with or without a block barrier between them.
Body release_by_another_thread(bool barrier) {
  return [=](u32 rank, Words& words) {
    const u32 thread = machine::thread_index();
    if (rank == 0) {
      if (thread == 1) store(words.x, 1, emulator::weak);
      if (barrier) machine::block_barrier(Site("litmus barrier"));
      if (thread == 0) machine::store_release_system(words.y, 1, Site("litmus release"));
    } else if (thread == 0 && machine::load_acquire_system(words.y, Site("litmus acquire")) == 1) {
      words.read[0] = load(words.x, emulator::weak);
    }
  };
}

TEST(Litmus, a_release_behind_a_block_barrier_covers_the_block) {
  EXPECT_EQ(outcomes(2, 1, 2, release_by_another_thread(true), true), (Outcomes{"", "1"}));
}

TEST(Litmus, a_release_covers_no_other_thread_without_a_barrier) {
  const Outcomes found = outcomes(2, 1, 2, release_by_another_thread(false), true);
  EXPECT_EQ(found.count("race"), 1U);
  EXPECT_EQ(outcomes(2, 1, 2, release_by_another_thread(false), false).count("0"), 1U);
}

TEST(Litmus, the_reader_s_block_is_covered_behind_a_barrier_only) {
  const auto body = [](bool barrier) -> Body {
    return [=](u32 rank, Words& words) {
      const u32 thread = machine::thread_index();
      if (rank == 0 && thread == 0) {
        store(words.x, 1, emulator::weak);
        store(words.y, 1, release_system);
      }
      if (rank == 1) {
        if (thread == 0)
          machine::wait_reached_acquire_system(words.y, 1, {}, {Phase::publish, 0}, Site("litmus wait"));
        if (barrier) machine::block_barrier(Site("litmus barrier"));
        if (thread == 1) words.read[0] = load(words.x, emulator::weak);
      }
    };
  };
  EXPECT_EQ(outcomes(2, 1, 2, body(true), true), (Outcomes{"1"}));
  EXPECT_EQ(outcomes(2, 1, 2, body(false), true).count("race"), 1U);
}

TEST(Litmus, order_passes_through_a_third_rank) {
  const Body body = [](u32 rank, Words& words) {
    u32* second_flag = words.y + 1;
    if (rank == 0) {
      store(words.x, 1, emulator::weak);
      store(words.y, 1, release_system);
    } else if (rank == 1) {
      if (load(words.y, acquire_system) == 1) store(second_flag, 1, release_system);
    } else if (load(second_flag, acquire_system) == 1) {
      words.read[0] = load(words.x, emulator::weak);
    }
  };
  EXPECT_EQ(outcomes(3, 1, 1, body, true), (Outcomes{"", "1"}));
}

TEST(Litmus, an_update_passes_a_release_on) {
  const Body body = [](u32 rank, Words& words) {
    if (rank != 0) return;
    const u32 block = machine::block_index();
    if (block == 0) {
      store(words.x, 1, emulator::weak);
      store(words.y, 1, {Order::release, Scope::device});
    } else if (block == 1) {
      emulator::running->engine->add(words.y, 4, 2, {Order::relaxed, Scope::device}, nullptr);
    } else if (load(words.y, {Order::acquire, Scope::device}) == 3) {
      words.read[0] = load(words.x, emulator::weak);
    }
  };
  EXPECT_EQ(outcomes(1, 3, 1, body, true), (Outcomes{"", "1"}));
}

// ---- coherence

TEST(Litmus, two_loads_of_one_word_never_go_back) {
  const Body body = [](u32 rank, Words& words) {
    if (rank == 0) {
      store(words.x, 1, relaxed_system);
      store(words.x, 2, relaxed_system);
    } else {
      words.read[0] = load(words.x, relaxed_system);
      words.read[1] = load(words.x, relaxed_system);
    }
  };
  EXPECT_EQ(outcomes(2, 1, 1, body, true), (Outcomes{"00", "01", "02", "11", "12", "22"}));
}

TEST(Litmus, a_load_that_is_ordered_after_another_thread_s_load_does_not_go_back) {
  const Body body = [](u32 rank, Words& words) {
    if (rank == 0) {
      if (machine::thread_index() == 0) store(words.x, 1, relaxed_system);
    } else {
      if (machine::thread_index() == 0) words.read[0] = load(words.x, relaxed_system);
      machine::block_barrier(Site("litmus barrier"));
      if (machine::thread_index() == 1) words.read[1] = load(words.x, relaxed_system);
    }
  };
  EXPECT_EQ(outcomes(2, 1, 2, body, true), (Outcomes{"00", "01", "11"}));
}

TEST(Litmus, a_thread_reads_its_own_store) {
  const Body body = [](u32 rank, Words& words) {
    store(words.x, rank + 1, relaxed_system);
    words.read[rank] = load(words.x, relaxed_system);
  };
  EXPECT_EQ(outcomes(2, 1, 1, body, true), (Outcomes{"11", "12", "22"}));
}

TEST(Litmus, two_readers_may_disagree_on_the_order_of_independent_stores) {
  const Body body = [](u32 rank, Words& words) {
    if (rank == 0) store(words.x, 1, relaxed_system);
    if (rank == 1) store(words.y, 1, relaxed_system);
    if (rank < 2) return;
    words.read[2 * rank - 4] = load(rank == 2 ? words.x : words.y, acquire_system);
    words.read[2 * rank - 3] = load(rank == 2 ? words.y : words.x, acquire_system);
  };
  EXPECT_EQ(outcomes(4, 1, 1, body, true).count("1010"), 1U);
}

TEST(Litmus, a_whole_word_is_seen_whole_and_halves_come_singly) {
  const Body whole = [](u32 rank, Words& words) {
    if (rank == 0) store(words.x, 0x00010001, relaxed_system);
    if (rank == 1) {
      const u32 value = load(words.x, relaxed_system);
      words.read[0] = value & 0xffff;
      words.read[1] = value >> 16;
    }
  };
  EXPECT_EQ(outcomes(2, 1, 1, whole, true), (Outcomes{"00", "11"}));
  const Body halves = [](u32 rank, Words& words) {
    auto* half = reinterpret_cast<unsigned short*>(words.x);
    if (rank < 2) emulator::running->engine->store(half + rank, 2, 1, emulator::weak, nullptr);
    if (rank == 2) {
      const u32 value = load(words.x, emulator::weak);
      words.read[0] = value & 0xffff;
      words.read[1] = value >> 16;
    }
  };
  EXPECT_EQ(outcomes(3, 1, 1, halves, false), (Outcomes{"00", "01", "10", "11"}));
  // Neighbouring halves are no race; reading them unordered is.
  EXPECT_EQ(outcomes(2, 1, 1, halves, true), (Outcomes{""}));
  EXPECT_EQ(outcomes(3, 1, 1, halves, true).count("race"), 1U);
}

// ---- kernel boundaries

TEST(Litmus, a_launch_sees_all_of_the_one_before_on_its_rank) {
  ProofMachine proof(2, 6);
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    proof.reset(2, 6);
    std::vector<u32*> word;
    for (u32 rank = 0; rank < 2; ++rank)
      word.push_back(reinterpret_cast<u32*>(proof.allocate_for(rank, "words", 64, 0, {false, true, 0, 64})));
    u32 wrong = 0;
    const std::vector<Launch> program{{"first", 3, 2,
                                       [&](u32 rank) {
                                         const u32 me = machine::block_index() * 2 + machine::thread_index();
                                         store(word[rank] + me, me + 1, emulator::weak);
                                       }},
                                      {"second", 2, 1, [&](u32 rank) {
                                         for (u32 i = 0; i < 6; ++i)
                                           if (load(word[rank] + i, emulator::weak) != i + 1) ++wrong;
                                       }}};
    RunOptions options;
    options.seed = seed;
    const std::optional<Failure> failure = proof.run(program, options);
    ASSERT_FALSE(failure) << failure->text;
    ASSERT_EQ(wrong, 0U);
  }
}

TEST(Litmus, a_launch_is_not_ordered_with_another_rank_s) {
  ProofMachine proof(2, 1);
  std::set<std::string> found;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    proof.reset(2, 1);
    u32* x = reinterpret_cast<u32*>(proof.allocate_for(0, "x", 64, 0, shared_zero));
    const std::vector<Launch> program{{"first", 1, 1,
                                       [&](u32 rank) {
                                         if (rank == 0) store(x, 1, emulator::weak);
                                       }},
                                      {"second", 1, 1, [&](u32 rank) {
                                         if (rank == 1) load(x, emulator::weak);
                                       }}};
    RunOptions options;
    options.seed = seed;
    const std::optional<Failure> failure = proof.run(program, options);
    found.insert(failure ? std::string(emulator::name_of(failure->kind)) : "");
  }
  EXPECT_EQ(found, (std::set<std::string>{"race"}));
}

// ---- the kernel fence, where a protocol names it

// What the launches of a program do, each with one thread a rank.
struct Part {
  Body body;
  bool programmatic = false;
};

// The outcomes of launches that follow one another on every rank.
Outcomes outcomes_of(u32 ranks, const std::vector<Part>& parts, bool boundaries_are_fences,
                     const BufferTraits& traits = shared_zero, u32 blocks = 1, bool races_fail = true) {
  Outcomes result;
  ProofMachine proof(ranks, blocks);
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    proof.reset(ranks, blocks);
    Words words{};
    words.x = reinterpret_cast<u32*>(proof.allocate_for(0, "x", 64, 0, traits));
    words.y = reinterpret_cast<u32*>(proof.allocate_for(0, "y", 64, 0, traits));
    words.read.assign(8, 9);
    emulator::Program program;
    for (const Part& part : parts)
      program.push_back({"part " + std::to_string(program.size() + 1), blocks, 1,
                         [&](u32 rank) { part.body(rank, words); }, true, part.programmatic});
    RunOptions options;
    options.seed = seed;
    options.races_fail = races_fail;
    options.boundaries_are_fences = boundaries_are_fences;
    const std::optional<Failure> failure = proof.run(program, options);
    std::string text;
    for (const u32 value : words.read)
      if (value != 9) text += std::to_string(value);
    result.insert(failure ? std::string(emulator::name_of(failure->kind)) : text);
  }
  return result;
}

// Rank 0 stores x and then y, rank 1 reads y and then, if y is there, x: each side in one launch or in two.
std::vector<Part> passing_through_boundaries(bool writer_in_two, bool reader_in_two, Access raise,
                                             Access look) {
  const auto store_x = [](Words& words) { store(words.x, 1, emulator::weak); };
  const auto read_x = [](Words& words) {
    if (words.read[7] == 1) words.read[0] = load(words.x, emulator::weak);
    words.read[7] = 9;
  };
  return {{[=](u32 rank, Words& words) {
            if (rank == 0) {
              store_x(words);
              if (!writer_in_two) store(words.y, 1, raise);
            } else {
              words.read[7] = load(words.y, look);
              if (!reader_in_two) read_x(words);
            }
          }},
          {[=](u32 rank, Words& words) {
            if (rank == 0 && writer_in_two) store(words.y, 1, raise);
            if (rank == 1) {
              if (!reader_in_two) words.read[7] = load(words.y, look);
              read_x(words);
            }
          }}};
}

TEST(KernelFence, relaxed_accesses_on_the_far_sides_of_two_boundaries_pass_a_message) {
  const auto parts = passing_through_boundaries(true, true, relaxed_system, relaxed_system);
  EXPECT_EQ(outcomes_of(2, parts, true), (Outcomes{"", "1"}));
  EXPECT_EQ(outcomes_of(2, parts, false).count("race"), 1U) << "PTX alone does not promise it";
}

TEST(KernelFence, an_acquire_or_a_release_replaces_a_boundary) {
  EXPECT_EQ(outcomes_of(2, passing_through_boundaries(true, false, relaxed_system, acquire_system), true),
            (Outcomes{"", "1"}));
  EXPECT_EQ(outcomes_of(2, passing_through_boundaries(false, true, release_system, relaxed_system), true),
            (Outcomes{"", "1"}));
}

TEST(KernelFence, a_boundary_on_one_side_only_is_not_enough) {
  EXPECT_EQ(outcomes_of(2, passing_through_boundaries(true, false, relaxed_system, relaxed_system), true)
                .count("race"),
            1U);
  EXPECT_EQ(outcomes_of(2, passing_through_boundaries(false, true, relaxed_system, relaxed_system), true)
                .count("race"),
            1U);
}

TEST(KernelFence, a_scope_too_narrow_passes_nothing) {
  constexpr Access narrow{Order::relaxed, Scope::device};
  EXPECT_EQ(
      outcomes_of(2, passing_through_boundaries(true, true, narrow, relaxed_system), true, shared_zero, 1)
          .count("race"),
      1U);
  // Nor does a weak store, whatever the race.
  EXPECT_EQ(outcomes_of(2, passing_through_boundaries(true, true, emulator::weak, relaxed_system), true,
                        shared_zero, 1, false)
                .count("0"),
            1U);
}

// A third rank that passes on what it read without a boundary in between passes on no order.
std::vector<Part> passing_through_a_third_rank(bool boundary) {
  const auto pass_on = [](Words& words) {
    if (words.read[7] == 1) store(words.y + 1, 1, relaxed_system);
    words.read[7] = 9;
  };
  return {{[=](u32 rank, Words& words) {
            if (rank == 0) store(words.x, 1, emulator::weak);
            if (rank == 1 && boundary) words.read[7] = load(words.y, relaxed_system);
          }},
          {[=](u32 rank, Words& words) {
            if (rank == 0) store(words.y, 1, relaxed_system);
            if (rank == 1 && !boundary) words.read[7] = load(words.y, relaxed_system);
            if (rank == 1) pass_on(words);
            if (rank == 2) words.read[6] = load(words.y + 1, relaxed_system);
          }},
          {[=](u32 rank, Words& words) {
            if (rank == 2 && words.read[6] == 1) words.read[0] = load(words.x, emulator::weak);
            if (rank == 2) words.read[6] = 9;
          }}};
}

TEST(KernelFence, order_passes_through_a_third_rank_only_if_it_has_a_boundary_between) {
  EXPECT_EQ(outcomes_of(3, passing_through_a_third_rank(true), true), (Outcomes{"", "1"}));
  EXPECT_EQ(outcomes_of(3, passing_through_a_third_rank(false), true).count("race"), 1U);
}

// ---- early starts

TEST(EarlyStart, the_next_kernel_overlaps_and_knows_nothing_before_it_waits) {
  const auto parts = [](bool lets, bool waits) -> std::vector<Part> {
    return {{[=](u32, Words& words) {
              if (lets) machine::let_next_kernel_start();
              store(words.x, 1, relaxed_system);
            }},
            {[=](u32, Words& words) {
               if (waits) machine::wait_for_previous_kernel(Site("litmus previous kernel"));
               words.read[0] = load(words.x, relaxed_system);
             },
             true}};
  };
  EXPECT_EQ(outcomes_of(1, parts(true, false), false), (Outcomes{"0", "1"}));
  EXPECT_EQ(outcomes_of(1, parts(false, false), false), (Outcomes{"0", "1"}))
      << "the end of a kernel starts the next one but makes nothing visible";
  EXPECT_EQ(outcomes_of(1, parts(true, true), false), (Outcomes{"1"}));
}

TEST(EarlyStart, a_plain_launch_does_not_overlap) {
  const std::vector<Part> parts{{[](u32, Words& words) {
                                  machine::let_next_kernel_start();
                                  store(words.x, 1, emulator::weak);
                                }},
                                {[](u32, Words& words) { words.read[0] = load(words.x, emulator::weak); }}};
  EXPECT_EQ(outcomes_of(1, parts, false), (Outcomes{"1"}));
}

TEST(EarlyStart, it_takes_every_block) {
  // The second kernel raises y as soon as it runs; block 1 of the first one looks at y before it lets go.
  const std::vector<Part> parts{{[](u32, Words& words) {
                                  if (machine::block_index() == 0) {
                                    machine::let_next_kernel_start();
                                    return;
                                  }
                                  words.read[0] = load(words.y, relaxed_system);
                                  machine::let_next_kernel_start();
                                  words.read[1] = load(words.y, relaxed_system);
                                }},
                                {[](u32, Words& words) { store(words.y, 1, relaxed_system); }, true}};
  EXPECT_EQ(outcomes_of(1, parts, false, shared_zero, 2), (Outcomes{"00", "01"}));
}

TEST(EarlyStart, a_plain_launch_waits_for_all_before_it) {
  // The second kernel does not wait for the first; the third must find both ended.
  const std::vector<Part> parts{{[](u32, Words& words) {
                                  machine::let_next_kernel_start();
                                  for (u32 i = 0; i < 6; ++i) store(words.x, i + 1, emulator::weak);
                                }},
                                {[](u32, Words& words) { store(words.y, 1, emulator::weak); }, true},
                                {[](u32, Words& words) {
                                  words.read[0] = load(words.x, emulator::weak);
                                  words.read[1] = load(words.y, emulator::weak);
                                }}};
  EXPECT_EQ(outcomes_of(1, parts, false), (Outcomes{"61"}));
}

TEST(EarlyStart, the_wait_is_a_kernel_fence_too) {
  // As through two boundaries, but both edges are programmatic.
  std::vector<Part> parts = passing_through_boundaries(true, true, relaxed_system, relaxed_system);
  const Body second = parts[1].body;
  const auto behind = [&](bool waits) {
    parts[1] = {[=](u32 rank, Words& words) {
                  if (waits) machine::wait_for_previous_kernel(Site("litmus previous kernel"));
                  second(rank, words);
                },
                true};
    return outcomes_of(2, parts, true);
  };
  EXPECT_EQ(behind(true), (Outcomes{"", "1"}));
  EXPECT_EQ(behind(false).count("race"), 1U);
}

// ---- words that are written by turns

TEST(StoresInOrder, two_unordered_strong_stores_are_a_race_where_turns_matter) {
  const auto parts = [](bool sees) -> std::vector<Part> {
    return {{[=](u32 rank, Words& words) {
      if (rank == 0) store(words.x, 1, relaxed_system);
      if (rank == 1) {
        if (sees)
          while (load(words.x, relaxed_system) == 0) {
          }
        store(words.x, 2, relaxed_system);
      }
    }}};
  };
  BufferTraits by_turns = shared_zero;
  by_turns.stores_in_order = true;
  EXPECT_EQ(outcomes_of(2, parts(false), false, shared_zero), (Outcomes{""}));
  EXPECT_EQ(outcomes_of(2, parts(false), false, by_turns).count("race"), 1U);
  EXPECT_EQ(outcomes_of(2, parts(true), false, by_turns), (Outcomes{""})) << "a store follows what was read";
}

// ---- launches beside one another

// The launch that another one runs beside knows nothing of it; the next one knows both.
TEST(Beside, a_launch_knows_nothing_of_what_runs_beside_it) {
  const auto outcomes_with = [](bool reads_beside) {
    Outcomes result;
    ProofMachine proof(1, 1);
    for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
      proof.reset(1, 1);
      u32* const word = reinterpret_cast<u32*>(proof.allocate("word", 4, 0, 256, {false, true, 0, 4}));
      u32* const other = reinterpret_cast<u32*>(proof.allocate("other", 4, 0, 256, {false, true, 0, 4}));
      std::string text;
      emulator::Program program{
          {"before", 1, 1, [&](u32) { store(other, 7, emulator::weak); }},
          {"beside", 1, 1, [&](u32) { store(word, 5, emulator::weak); }},
          {"main", 1, 1,
           [&](u32) {
             text += std::to_string(load(other, emulator::weak));
             if (reads_beside) text += std::to_string(load(word, emulator::weak));
           }},
          {"after", 1, 1, [&](u32) { text += std::to_string(load(word, emulator::weak)); }}};
      program[1].beside = true;
      RunOptions options;
      options.seed = seed;
      const std::optional<Failure> failure = proof.run(program, options);
      result.insert(failure ? std::string(emulator::name_of(failure->kind)) : text);
    }
    return result;
  };
  EXPECT_EQ(outcomes_with(false), (Outcomes{"75"}));
  EXPECT_EQ(outcomes_with(true), (Outcomes{"race"}));
}

// ---- copy engines

TEST(CopyEngine, a_flag_that_is_copied_after_the_data_releases_it) {
  const auto outcomes_with = [](bool boundaries_are_fences, bool data_first) {
    Outcomes result;
    ProofMachine proof(2, 1);
    for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
      proof.reset(2, 1);
      KernelParams params{};
      params.ranks = 2;
      params.scratch.stride_bytes = flags_bytes + 512;
      params.scratch.base = proof.allocate("scratch", flags_bytes + 256, 0, params.scratch.stride_bytes,
                                           {true, true, 0, flags_bytes + 256});
      const auto data = [&](u32 rank) {
        return reinterpret_cast<u32*>(params.scratch.base + rank * params.scratch.stride_bytes + flags_bytes);
      };
      const auto flag = [&](u32 rank) {
        return reinterpret_cast<u32*>(params.scratch.base + rank * params.scratch.stride_bytes);
      };
      const auto copy_of = [](std::uint64_t offset_bytes, std::uint64_t bytes) {
        return Step{.kind = Step::Kind::copy,
                    .from = {Location::Buffer::scratch, 0, offset_bytes},
                    .to = {Location::Buffer::scratch, 1, offset_bytes},
                    .bytes = bytes};
      };
      const Step data_copy = copy_of(flags_bytes, 16);
      const Step flag_copy = copy_of(0, 4);
      std::string text;
      const std::vector<emulator::Program> programs{
          {{"fill", 1, 1,
            [&](u32) {
              for (u32 i = 0; i < 4; ++i) store(data(0) + i, 5, emulator::weak);
              store(flag(0), 1, emulator::weak);
            }},
           {"first copy", 1, 1,
            [&](u32) { emulator::perform_copy(params, data_first ? data_copy : flag_copy, seed); }},
           {"second copy", 1, 1,
            [&](u32) { emulator::perform_copy(params, data_first ? flag_copy : data_copy, seed); }}},
          {{"read", 1, 1, [&](u32) {
              machine::wait_reached_acquire_system(flag(1), 1, {}, {Phase::reduce, 0}, Site("litmus wait"));
              for (u32 i = 0; i < 4; ++i) text += std::to_string(load(data(1) + i, emulator::weak));
            }}}};
      RunOptions options;
      options.seed = seed;
      options.boundaries_are_fences = boundaries_are_fences;
      const std::optional<Failure> failure = proof.run_each(programs, options);
      result.insert(failure ? std::string(emulator::name_of(failure->kind)) : text);
    }
    return result;
  };
  EXPECT_EQ(outcomes_with(true, true), (Outcomes{"5555"}));
  EXPECT_EQ(outcomes_with(true, false).count("race"), 1U);
  EXPECT_EQ(outcomes_with(false, true).count("race"), 1U);
}

// ---- waits

TEST(Litmus, a_wait_for_payload_that_never_comes_says_for_whom) {
  ProofMachine proof(2, 1);
  u32* x = reinterpret_cast<u32*>(proof.allocate_for(0, "scratch", 64, 0, {true, true, 0, 0, 0xffffffffu}));
  const std::vector<Launch> program{
      {"first", 1, 1, [](u32) {}},
      {"stuck", 1, 1,
       [&](u32 rank) {
         machine::let_next_kernel_start();
         if (rank == 0)
           emulator::running->engine->wait_arrived(x + 1, 0xffffffffu, relaxed_system, Phase::exchange, 1);
       },
       true},
      {"next", 1, 1, [&](u32) { machine::wait_for_previous_kernel(Site("previous kernel")); }, true, true}};
  const std::optional<Failure> failure = proof.run(program, {});
  ASSERT_TRUE(failure);
  EXPECT_EQ(
      failure->text,
      "deadlock: nobody can run\n"
      "  rank 0 block 0 thread 0 in next waits for the kernels before it, site \"previous kernel\"\n"
      "  rank 0 block 0 thread 0 in stuck waits for rank 1 in phase exchange: no payload yet at (rank 0, "
      "scratch, offset 4); seed 1");
}

TEST(Litmus, generations_wrap) {
  const Body body = [](u32 rank, Words& words) {
    constexpr u32 before = 0xffffffff;
    if (rank == 0) {
      store(words.x, before, release_system);
      store(words.x, before + 2, release_system);  // wrapped to 1
    } else {
      machine::wait_reached_acquire_system(words.x, before, {}, {Phase::publish, 0}, Site("first"));
      machine::wait_reached_acquire_system(words.x, before + 2, {}, {Phase::publish, 0}, Site("second"));
      words.read[0] = load(words.x, relaxed_system);
    }
  };
  EXPECT_EQ(outcomes(2, 1, 1, body, true), (Outcomes{"1"}));
}

TEST(Litmus, a_deadlock_says_who_waits_for_whom) {
  ProofMachine proof(2, 2);
  u32* x = reinterpret_cast<u32*>(proof.allocate_for(0, "flags", 64, 0, shared_zero));
  const std::vector<Launch> program{
      {"stuck", 1, 2, [&](u32 rank) {
         if (rank == 1) return;
         if (machine::thread_index() == 1)
           machine::wait_reached_acquire_system(x + 3, 7, {}, {Phase::reduce, 1}, Site("reduce: wait"));
         machine::block_barrier(Site("reduce: block may read"));
       }}};
  RunOptions options;
  options.seed = 5;
  const std::optional<Failure> failure = proof.run(program, options);
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->kind, Failure::Kind::deadlock);
  EXPECT_EQ(
      failure->text,
      "deadlock: nobody can run\n"
      "  rank 0 block 0 thread 0 in stuck is at a barrier that the rest of its block has not reached, site "
      "\"reduce: block may read\"\n"
      "  rank 0 block 0 thread 1 in stuck waits for rank 1 in phase reduce: expects 7, sees 0 at (rank 0, "
      "flags, offset 12), site \"reduce: wait\"; seed 5");
}

TEST(Litmus, a_race_says_who_where_and_which_seed) {
  ProofMachine proof(2, 1);
  u32* x = reinterpret_cast<u32*>(proof.allocate_for(0, "input", 64, 0, shared_zero));
  const std::vector<Launch> program{{"racing", 1, 1, [&](u32 rank) { store(x + 2, rank, emulator::weak); }}};
  RunOptions options;
  options.seed = 17;
  const std::optional<Failure> failure = proof.run(program, options);
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->kind, Failure::Kind::race);
  for (const char* part : {"(rank 0, input, offset 8)", "rank 0 block 0 thread 0 in racing",
                           "rank 1 block 0 thread 0 in racing", "seed 17"})
    EXPECT_NE(failure->text.find(part), std::string::npos) << failure->text;
}

// ---- what a kernel may touch

TEST(Litmus, stray_accesses_are_failures) {
  const auto failure_of = [](const std::function<void(u32 rank, char* base)>& body,
                             const BufferTraits& traits) {
    ProofMachine proof(2, 1);
    char* base = proof.allocate_for(0, "buffer", 64, 2, traits);
    const std::vector<Launch> program{{"stray", 1, 1, [&](u32 rank) { body(rank, base); }, true}};
    const std::optional<Failure> failure = proof.run(program, {});
    return failure ? std::string(emulator::name_of(failure->kind)) : "";
  };
  const auto load_at = [](std::ptrdiff_t offset, u32 bytes, u32 by) {
    return [=](u32 rank, char* base) {
      if (rank == by) emulator::running->engine->load(base + offset, bytes, emulator::weak, nullptr);
    };
  };
  const auto store_at = [](std::ptrdiff_t offset, u32 bytes) {
    return [=](u32 rank, char* base) {
      if (rank == 0) emulator::running->engine->store(base + offset, bytes, 1, emulator::weak, nullptr);
    };
  };
  const BufferTraits ready{false, true, 0, 64};
  EXPECT_EQ(failure_of(load_at(0, 2, 0), ready), "");
  EXPECT_EQ(failure_of(load_at(-2, 2, 0), ready), "out of bounds");
  EXPECT_EQ(failure_of(load_at(-2, 4, 0), ready), "out of bounds");  // half of the word is outside
  EXPECT_EQ(failure_of(load_at(62, 4, 0), ready), "out of bounds");
  EXPECT_EQ(failure_of(load_at(64, 2, 0), ready), "out of bounds");
  EXPECT_EQ(failure_of(load_at(0, 4, 0), ready), "misuse");         // not aligned
  EXPECT_EQ(failure_of(load_at(0, 2, 1), ready), "out of bounds");  // a peer's
  EXPECT_EQ(failure_of(load_at(0, 2, 0), {false, true, 0, 0}), "unwritten");
  EXPECT_EQ(failure_of(store_at(2, 4), {false, true, 0, 0}), "");
  EXPECT_EQ(failure_of(store_at(2, 4), {false, false, 0, 0}), "out of bounds");  // read-only
}

// ---- replay, mutations, observer

TEST(Litmus, a_seed_replays_a_run) {
  const auto hash_of = [](std::uint64_t seed) {
    ProofMachine proof(2, 4);
    u32* x = reinterpret_cast<u32*>(proof.allocate_for(0, "x", 64, 0, shared_zero));
    const std::vector<Launch> program{{"work", 2, 2, [&](u32 rank) {
                                         for (u32 i = 0; i < 8; ++i) {
                                           store(x, rank, relaxed_system);
                                           load(x, acquire_system);
                                           machine::block_barrier(Site("litmus barrier"));
                                         }
                                       }}};
    RunOptions options;
    options.seed = seed;
    EXPECT_FALSE(proof.run(program, options));
    return proof.trace_hash();
  };
  EXPECT_EQ(hash_of(1), hash_of(1));
  std::set<std::uint64_t> hashes;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) hashes.insert(hash_of(seed));
  EXPECT_EQ(hashes.size(), 20U);
}

TEST(Litmus, mutations_weaken_exactly_the_named_site) {
  const Body body = release_by_another_thread(true);
  const auto with = [&](const char* label, emulator::SiteKind kind, emulator::Change change) {
    return outcomes(2, 1, 2, body, true, Mutation{{label, kind}, change});
  };
  using emulator::Change;
  using emulator::SiteKind;
  EXPECT_EQ(with("litmus barrier", SiteKind::barrier, Change::drop).count("race"), 1U);
  EXPECT_EQ(with("litmus release", SiteKind::release, Change::relax).count("race"), 1U);
  EXPECT_EQ(with("litmus release", SiteKind::release, Change::narrow_device).count("race"), 1U);
  EXPECT_EQ(with("litmus release", SiteKind::release, Change::drop), (Outcomes{""}));
  EXPECT_EQ(with("litmus acquire", SiteKind::acquire, Change::relax).count("race"), 1U);
  EXPECT_EQ(with("another label", SiteKind::acquire, Change::relax), (Outcomes{"", "1"}));
}

TEST(Litmus, an_exception_in_a_kernel_is_a_failure_and_ends_everyone) {
  ProofMachine proof(2, 2);
  const std::vector<Launch> program{{"throwing", 1, 2, [&](u32 rank) {
                                       if (rank == 0 && machine::thread_index() == 1)
                                         throw std::runtime_error("on purpose");
                                       machine::block_barrier(Site("litmus barrier"));
                                     }}};
  const std::optional<Failure> failure = proof.run(program, {});
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->kind, Failure::Kind::misuse);
  EXPECT_NE(failure->text.find("on purpose"), std::string::npos);
}

TEST(Litmus, a_kernel_that_polls_for_ever_by_itself_is_ended) {
  ProofMachine proof(1, 1);
  u32* x = reinterpret_cast<u32*>(proof.allocate_for(0, "x", 64, 0, shared_zero));
  const std::vector<Launch> program{{"polling", 1, 1, [&](u32) {
                                       while (load(x, relaxed_system) == 0) {
                                       }
                                     }}};
  RunOptions options;
  options.most_operations = 10'000;
  const std::optional<Failure> failure = proof.run(program, options);
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->kind, Failure::Kind::endless);
}

TEST(Litmus, an_observer_sees_who_touches_whose_memory) {
  struct Recorder final : emulator::Observer {
    void operation(const emulator::Operation& operation) override {
      text += std::to_string(operation.rank) +
              (operation.kind == emulator::Operation::Kind::load ? "<" : ">") +
              std::to_string(operation.owner) + ":" + std::to_string(operation.bytes) + " ";
    }
    std::string text;
  } recorder;
  ProofMachine proof(2, 1);
  u32* x = reinterpret_cast<u32*>(proof.allocate_for(0, "x", 64, 0, shared_zero));
  const std::vector<Launch> program{{"observed", 1, 1, [&](u32 rank) {
                                       if (rank == 0) return;
                                       store(x, 1, release_system);
                                       load(x, acquire_system);
                                     }}};
  proof.observe(&recorder);
  EXPECT_FALSE(proof.run(program, {}));
  EXPECT_EQ(recorder.text, "1>0:4 1<0:4 ");
}

}  // namespace
}  // namespace arb::test
