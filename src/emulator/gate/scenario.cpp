#include "scenario.h"

#include <arb/abi.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <utility>

#include "emulator/copy_engine.h"
#include "emulator/random.h"
#include "reference.h"

namespace arb::gate {
namespace {

using emulator::Failure;
using emulator::Random;
using Bytes = std::vector<std::byte>;

constexpr std::uint32_t most_threads = 16;  // of a rank
constexpr std::uint64_t most_words = 64;    // of a tensor
constexpr u32 untouched = 0x5eed0bad;       // poison of outputs

enum class CountClass : std::uint8_t {
  zero,
  one,
  two,
  three,
  seven,
  eight,
  nine,
  below_ranks,
  above_ranks,
  odd,
  vectors,
  most,
  few_vectors,
  equal_shares,  // as many whole vectors for every rank
};
// Whole vectors, often one for a thread or none, may have a way of their own through a kernel, and are what people
// have: so they come more than once.
constexpr std::array count_levels{
    CountClass::zero,        CountClass::one,          CountClass::two,         CountClass::three,
    CountClass::seven,       CountClass::eight,        CountClass::nine,        CountClass::below_ranks,
    CountClass::above_ranks, CountClass::odd,          CountClass::vectors,     CountClass::most,
    CountClass::few_vectors, CountClass::equal_shares, CountClass::few_vectors, CountClass::equal_shares};
constexpr std::array alignment_levels{Alignment::vector,       Alignment::word,
                                      Alignment::same_element, Alignment::any_element,
                                      Alignment::one_stranger, Alignment::vector};

// Levels of the factors, in the order of Levels below.
constexpr std::size_t factor_count = 9;
using Levels = std::array<std::uint32_t, factor_count>;

Levels level_counts(const CatalogRow& row) {
  const auto teams = static_cast<std::uint32_t>(teams_of(row).size());
  return {teams,
          3,
          static_cast<std::uint32_t>(count_levels.size()),
          row.in_place ? 2u : 1u,
          static_cast<std::uint32_t>(alignment_levels.size()),
          5,
          2,
          2,
          2};
}

std::uint64_t count_of(CountClass count_class, std::uint32_t ranks, Dtype dtype, Random& random) {
  const std::uint64_t bytes = size_of_bytes(dtype);
  const std::uint64_t most = most_words * 4 / bytes;
  switch (count_class) {
    case CountClass::zero:
      return 0;
    case CountClass::one:
      return 1;
    case CountClass::two:
      return 2;
    case CountClass::three:
      return 3;
    case CountClass::seven:
      return 7;
    case CountClass::eight:
      return 8;
    case CountClass::nine:
      return 9;
    case CountClass::below_ranks:
      return ranks - 1;
    case CountClass::above_ranks:
      return ranks + 1;
    case CountClass::odd:
      return 2 * random.below(static_cast<std::uint32_t>(most / 2)) + 1;
    case CountClass::vectors:
      return (1 + random.below(most_words / 4)) * (16 / bytes);
    case CountClass::few_vectors:
      return (1 + random.below(4)) * (16 / bytes);
    case CountClass::equal_shares:
      return (1 + random.below(static_cast<std::uint32_t>(most_words / 4 / ranks))) * ranks * (16 / bytes);
    case CountClass::most:
      break;
  }
  return most - random.below(3);
}

Scenario scenario_of(const CatalogRow& row, const Levels& levels, Random& random) {
  Scenario scenario;
  scenario.row = &row;
  const Team team = teams_of(row)[levels[0]];
  scenario.ranks = team.ranks;
  scenario.island_ranks = team.island_ranks;
  scenario.dtype = all_dtypes[levels[1]];
  scenario.count = count_of(count_levels[levels[2]], scenario.ranks, scenario.dtype, random);
  scenario.place = levels[3] == 0 ? Place::out : Place::in;
  scenario.alignment = alignment_levels[levels[4]];
  scenario.grid = static_cast<Grid>(levels[5]);
  scenario.values = static_cast<Values>(levels[6]);
  scenario.start = static_cast<Start>(levels[7]);
  scenario.counts = static_cast<Counts>(levels[8]);
  return scenario;
}

// Of a call that follows another: anything up to the scenario's, or of the kinds that may have a way of their own.
std::uint64_t changed_count(const Scenario& scenario, Random& random) {
  const std::uint32_t kind = random.below(3);
  if (kind == 0) return random.below(static_cast<std::uint32_t>(scenario.count) + 1);
  const CountClass chosen = kind == 1 ? CountClass::few_vectors : CountClass::equal_shares;
  return std::min(scenario.count, count_of(chosen, scenario.ranks, scenario.dtype, random));
}

LaunchShape draw_shape(Grid grid, Random& random) {
  const auto from_one = [&](std::uint32_t most) { return random.below(most) + 1; };
  switch (grid) {
    case Grid::single:
      return {1, 1};
    case Grid::one_block:
      return {1, from_one(most_threads - 1) + 1};
    case Grid::many_blocks:
      return {from_one(7) + 1, 1};
    case Grid::mixed:
    case Grid::changing:
      break;
  }
  const std::uint32_t blocks = from_one(4);
  return {blocks, from_one(most_threads / blocks)};
}

Bytes make_values(const Scenario& scenario, std::uint64_t count, std::uint64_t seed, std::uint32_t rank) {
  Bytes bytes = make_input(scenario.dtype, count, seed, rank);
  if (scenario.values == Values::random) return bytes;
  Random random(seed * 8 + rank);
  std::vector<float> values = decode(bytes, scenario.dtype);
  constexpr float infinity = std::numeric_limits<float>::infinity();
  constexpr std::array specials{
      -0.0F,    0.0F,      infinity,  -infinity, std::numeric_limits<float>::quiet_NaN(),
      0x1p-24F, -0x1p-24F, 0x1p-130F, 60000.0F,  -60000.0F};
  for (float& value : values)
    if (random.one_in(4)) value = specials[random.below(specials.size())];
  bytes = encode(values, scenario.dtype);
  // All ones in an element, a word, a vector: NaNs, and the sentinel's own bits.
  constexpr std::array<std::size_t, 4> widths{2, 4, 4, 16};
  for (std::size_t at = 0; at < bytes.size(); at += 4)
    if (random.one_in(12)) {
      const std::size_t width = std::max<std::size_t>(widths[random.below(4)], size_of_bytes(scenario.dtype));
      std::memset(bytes.data() + at, 0xff, std::min(width, bytes.size() - at));
    }
  return bytes;
}

// The calling thread's share of a tensor in pieces of 4 bytes where it can, else of one element.
template <class Visit>
void for_my_pieces(const char* tensor, std::uint64_t bytes, Dtype dtype, Visit visit) {
  const emulator::Thread& me = *emulator::running;
  const bool words = reinterpret_cast<std::uintptr_t>(tensor) % 4 == 0;
  const std::uint64_t whole = words ? bytes / 4 * 4 : 0;
  for (std::uint64_t at = 4 * std::uint64_t{me.thread}; at < whole; at += 4 * std::uint64_t{me.threads})
    visit(at, 4u);
  const auto width = static_cast<u32>(size_of_bytes(dtype));
  for (std::uint64_t at = whole + std::uint64_t{width} * me.thread; at < bytes;
       at += std::uint64_t{width} * me.threads)
    visit(at, width);
}

void store_tensor(char* tensor, const Bytes& values, Dtype dtype) {
  for_my_pieces(tensor, values.size(), dtype, [&](std::uint64_t at, u32 width) {
    u32 bits = 0;
    std::memcpy(&bits, values.data() + at, width);
    emulator::running->engine->store(tensor + at, width, bits, emulator::weak, nullptr);
  });
}

void load_tensor(const char* tensor, Bytes& values, Dtype dtype) {
  for_my_pieces(tensor, values.size(), dtype, [&](std::uint64_t at, u32 width) {
    const auto bits =
        static_cast<u32>(emulator::running->engine->load(tensor + at, width, emulator::weak, nullptr));
    std::memcpy(values.data() + at, &bits, width);
  });
}

// What the sum must be bit for bit where the catalog promises rank order, fp32 and one rounding.
Bytes exact_sum(const std::vector<Bytes>& inputs, Dtype dtype) {
  std::vector<float> sum = decode(inputs[0], dtype);
  for (std::size_t rank = 1; rank < inputs.size(); ++rank) {
    const std::vector<float> values = decode(inputs[rank], dtype);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += values[i];
  }
  return encode(sum, dtype);
}

bool is_nan(const Bytes& bytes, std::uint64_t index, Dtype dtype) {
  const auto width = static_cast<std::ptrdiff_t>(size_of_bytes(dtype));
  const auto begin = bytes.begin() + static_cast<std::ptrdiff_t>(index) * width;
  const Bytes element(begin, begin + width);
  const float value = decode(element, dtype)[0];
  return value != value;
}

// Empty when a rank's result is right.
std::string check_result(const Scenario& scenario, const Bytes& result, const std::vector<Bytes>& inputs,
                         const Bytes& exact) {
  const std::uint64_t width = size_of_bytes(scenario.dtype);
  if (scenario.row->rank_order) {
    for (std::uint64_t i = 0; i < result.size() / width; ++i)
      if (std::memcmp(result.data() + i * width, exact.data() + i * width, width) != 0 &&
          !(is_nan(result, i, scenario.dtype) && is_nan(exact, i, scenario.dtype)))
        return "element " + std::to_string(i) + " is not the sum in rank order, rounded once";
  }
  const CheckResult check =
      check_sum(result, inputs, scenario.dtype, scenario.row->roundings(scenario.ranks));
  return check.correct ? "" : check.sentence;
}

// Where the tensors of one call lie, on every rank.
struct Tensors {
  std::uint64_t count = 0;
  std::vector<KernelParams> params;
};

}  // namespace

std::vector<Team> teams_of(const CatalogRow& row) {
  std::vector<Team> teams;
  for (std::uint32_t ranks = 2; ranks <= max_ranks; ++ranks) {
    if (!row.needs_islands) {
      teams.push_back({ranks, 0});
      continue;
    }
    for (std::uint32_t island = 2; island * 2 <= ranks; ++island)
      if (ranks % island == 0) teams.push_back({ranks, island});
  }
  return teams;
}

std::vector<Scenario> pairwise_cover(const CatalogRow& row, std::uint64_t seed) {
  const Levels counts = level_counts(row);
  Random random(seed);
  // wanted[a][b] holds the pairs of levels of factors a < b that no scenario has yet.
  std::array<std::array<std::vector<bool>, factor_count>, factor_count> wanted;
  std::size_t left = 0;
  for (std::size_t a = 0; a < factor_count; ++a)
    for (std::size_t b = a + 1; b < factor_count; ++b) {
      wanted[a][b].assign(std::size_t{counts[a]} * counts[b], true);
      left += wanted[a][b].size();
    }
  const auto gain = [&](const Levels& levels) {
    std::size_t found = 0;
    for (std::size_t a = 0; a < factor_count; ++a)
      for (std::size_t b = a + 1; b < factor_count; ++b)
        if (wanted[a][b][std::size_t{levels[a]} * counts[b] + levels[b]]) ++found;
    return found;
  };
  std::vector<Scenario> result;
  while (left > 0) {
    Levels best{};
    std::size_t best_gain = 0;
    for (int attempt = 0; attempt < 64; ++attempt) {
      Levels levels{};
      for (std::size_t f = 0; f < factor_count; ++f) levels[f] = random.below(counts[f]);
      if (attempt % 2 == 0) {
        // Start from a pair that is still wanted.
        for (std::size_t a = 0; a < factor_count; ++a)
          for (std::size_t b = a + 1; b < factor_count; ++b) {
            const auto at = std::find(wanted[a][b].begin(), wanted[a][b].end(), true);
            if (at == wanted[a][b].end() || !random.one_in(4)) continue;
            const auto pair = static_cast<std::uint32_t>(at - wanted[a][b].begin());
            levels[a] = pair / counts[b];
            levels[b] = pair % counts[b];
          }
      }
      const std::size_t found = gain(levels);
      if (found > best_gain) {
        best = levels;
        best_gain = found;
      }
    }
    if (best_gain == 0) continue;
    for (std::size_t a = 0; a < factor_count; ++a)
      for (std::size_t b = a + 1; b < factor_count; ++b)
        wanted[a][b][std::size_t{best[a]} * counts[b] + best[b]] = false;
    left -= best_gain;
    result.push_back(scenario_of(row, best, random));
  }
  return result;
}

ScenarioResult run_scenario(emulator::ProofMachine& machine, const Scenario& scenario, std::uint64_t seed,
                            const std::optional<emulator::Mutation>& mutation) {
  const CatalogRow& row = *scenario.row;
  const std::string function = function_name(row, scenario.dtype, scenario.ranks);
  const emulator::KernelFunction kernel =
      scenario.kernel != nullptr ? scenario.kernel : emulator::find_kernel(function);
  if (kernel == nullptr) throw std::runtime_error(function + " is in the catalog but not under kernels/");
  Random random(seed * 0x2545f4914f6cdd1du + 1);
  const std::uint32_t ranks = scenario.ranks;
  const Team team{ranks, scenario.island_ranks};
  const std::uint64_t width = size_of_bytes(scenario.dtype);
  const std::uint32_t calls = 3 + random.below(3);
  // Calls may follow each other directly: then each has tensors of its own.
  const bool in_a_row = random.one_in(row.programmatic ? 2 : 4);
  const bool programmatic = row.programmatic && !random.one_in(3);

  std::vector<LaunchShape> shapes;
  std::uint32_t threads = 1;
  for (std::uint32_t call = 0; call < calls; ++call) {
    shapes.push_back(call > 0 && scenario.grid != Grid::changing ? shapes[0]
                                                                 : draw_shape(scenario.grid, random));
    threads = std::max(threads, shapes[call].blocks * shapes[call].threads);
  }
  machine.reset(ranks, threads);

  const std::uint64_t common = 2 * width * random.below(8) + width;
  const std::uint32_t stranger = random.below(ranks);
  const auto draw_offset = [&](std::optional<std::uint32_t> rank) -> std::uint64_t {
    switch (scenario.alignment) {
      case Alignment::one_stranger:
        if (rank == stranger) break;
        [[fallthrough]];
      case Alignment::vector:
        return std::uint64_t{16} * random.below(4);
      case Alignment::word:
        return std::uint64_t{4} * random.below(8);
      case Alignment::same_element:
        return common;
      case Alignment::any_element:
        break;
    }
    return width * random.below(16);
  };
  const bool in_place = scenario.place == Place::in;
  const bool symmetric = row.style == Style::symmetric;
  const emulator::BufferTraits input_traits{symmetric, in_place};
  const emulator::BufferTraits private_traits{false, true};
  const u32 done_before = scenario.start == Start::zero ? 0 : 0u - (1 + random.below(calls));
  const std::uint64_t most_bytes = scenario.count * width;
  const std::uint64_t capacity = (most_bytes + 255) / 256 * 256 + 256;

  emulator::BufferTraits scratch_traits{true, true, done_before, flags_bytes};
  if (row.sentinel) scratch_traits.rest = 0xffffffffu;
  if (scenario.scratch_holds) scratch_traits.rest = scenario.scratch_holds;
  scratch_traits.stores_in_order = true;
  const u64 scratch_bytes =
      flags_bytes + row.scratch_bytes(team, capacity) - scenario.messages_short * capacity;
  const u64 scratch_stride = (scratch_bytes + 511) / 256 * 256;
  char* scratch = machine.allocate("scratch", scratch_bytes, 0, scratch_stride, scratch_traits);
  std::vector<KernelParams> common_params(ranks);
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    KernelParams& p = common_params[rank];
    p = {};
    p.scratch = {scratch, scratch_stride};
    char* local = machine.allocate_for(rank, "local state", sizeof(LocalState), 0,
                                       {false, true, 0, sizeof(LocalState)});
    machine.preset(local, 8, u64{done_before} * ticks_per_call);
    for (std::size_t parity = 0; parity < 2; ++parity)
      machine.preset(local + offsetof(LocalState, steps) + parity * sizeof(u64), sizeof(u64), done_before);
    p.local = reinterpret_cast<LocalState*>(local);
    p.failure = reinterpret_cast<FailureRecord*>(
        machine.allocate_for(rank, "failure record", sizeof(FailureRecord), 0, private_traits));
    p.capacity_bytes = capacity;
    p.deadline_ns = 1'000'000'000;
    p.rank = rank;
    p.ranks = ranks;
    p.island_ranks = scenario.island_ranks;
  }
  std::vector<Tensors> tensors(calls);
  for (std::uint32_t call = 0; call < calls; ++call) {
    Tensors& t = tensors[call];
    t.count = scenario.counts == Counts::same || call == 0 ? scenario.count : changed_count(scenario, random);
    const std::string number = in_a_row ? " of call " + std::to_string(call + 1) : "";
    if (!in_a_row && call > 0) {
      t.params = tensors[0].params;
    } else {
      t.params = common_params;
      const u64 stride = (most_bytes + 511) / 256 * 256;
      const u64 offset = draw_offset({});
      char* inputs =
          symmetric ? machine.allocate("input" + number, most_bytes, offset, stride, input_traits) : nullptr;
      for (std::uint32_t rank = 0; rank < ranks; ++rank) {
        KernelParams& p = t.params[rank];
        char* input = symmetric ? inputs + rank * stride
                                : machine.allocate_for(rank, "input" + number, most_bytes, draw_offset(rank),
                                                       input_traits);
        p.input = input;
        p.output = in_place ? input
                            : machine.allocate_for(rank, "output" + number, most_bytes, draw_offset(rank),
                                                   private_traits);
        if (symmetric) p.inputs = {inputs, stride};
      }
    }
    for (KernelParams& p : t.params) p.count_elements = t.count;
  }

  std::vector<std::vector<Bytes>> values(calls);
  std::vector<std::vector<Bytes>> results(calls);
  for (std::uint32_t call = 0; call < calls; ++call)
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      values[call].push_back(make_values(scenario, tensors[call].count, seed * 16 + call, rank));
      results[call].emplace_back(tensors[call].count * width);
    }
  const auto rewrite = [&](std::uint32_t call, u32 rank) {
    const KernelParams& p = tensors[call].params[rank];
    store_tensor(static_cast<char*>(const_cast<void*>(p.input)), values[call][rank], scenario.dtype);
    if (in_place) return;
    Bytes poison(tensors[call].count * width);
    for (std::uint64_t at = 0; at < poison.size(); at += 2) std::memcpy(poison.data() + at, &untouched, 2);
    store_tensor(static_cast<char*>(p.output), poison, scenario.dtype);
  };
  const auto read = [&](std::uint32_t call, u32 rank) {
    load_tensor(static_cast<const char*>(tensors[call].params[rank].output), results[call][rank],
                scenario.dtype);
  };
  std::vector<emulator::Program> programs(ranks);
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    emulator::Program& program = programs[rank];
    for (std::uint32_t call = 0; call < calls; ++call) {
      const std::string number = " of call " + std::to_string(call + 1);
      if (!in_a_row) {
        program.push_back(
            {"the rewrite of inputs" + number, 1, threads, [&, call](u32 me) { rewrite(call, me); }});
      } else if (call == 0) {
        program.push_back({"the rewrite of all inputs", 1, threads, [&](u32 me) {
                             for (std::uint32_t c = 0; c < calls; ++c) rewrite(c, me);
                           }});
      }
      const Schedule schedule = schedule_of(
          row,
          {.team = team,
           .rank = rank,
           .bytes = tensors[call].count * width,
           .capacity_bytes = capacity,
           .input_is_aligned =
               reinterpret_cast<std::uintptr_t>(tensors[call].params[rank].input) % vector_bytes == 0},
          shapes[call]);
      std::vector<std::pair<Step, std::uint64_t>> beside;  // with the order of their words
      for (const Step& step : schedule) {
        if (step.beside) {
          beside.emplace_back(step, random.next());
          continue;
        }
        if (!beside.empty()) {
          program.push_back({"copies " + std::to_string(program.size()) + number, 1, 1,
                             [&, call, copies = std::exchange(beside, {})](u32 me) {
                               for (const auto& [copy, order] : copies)
                                 emulator::perform_copy(tensors[call].params[me], copy, order);
                             }});
          program.back().beside = true;
        }
        if (step.kind == Step::Kind::copy) {
          const std::uint64_t order = random.next();
          program.push_back(
              {"copy " + std::to_string(program.size()) + number, 1, 1, [&, call, step, order](u32 me) {
                 emulator::perform_copy(tensors[call].params[me], step, order);
               }});
          continue;
        }
        // A shape that is the schedule's own is cut to what the machine has.
        const LaunchShape shape =
            step.shape.blocks * step.shape.threads <= threads ? step.shape : LaunchShape{1, threads};
        std::string name = function + number;
        if (schedule.size() > 1) name += " step " + std::to_string(step.number);
        program.push_back({std::move(name), shape.blocks, shape.threads,
                           [&, call, step](u32 me) {
                             KernelParams p = tensors[call].params[me];
                             p.step = step.number;
                             kernel(p);
                           },
                           true, programmatic});
      }
      if (!in_a_row) {
        program.push_back(
            {"the reading of outputs" + number, 1, threads, [&, call](u32 me) { read(call, me); }});
      } else if (call + 1 == calls) {
        program.push_back({"the reading of all outputs", 1, threads, [&](u32 me) {
                             for (std::uint32_t c = 0; c < calls; ++c) read(c, me);
                           }});
      }
    }
  }

  ScenarioResult result;
  emulator::RunOptions options;
  options.seed = seed;
  options.mutation = mutation;
  options.boundaries_are_fences = row.kernel_fences;
  result.failure = machine.run_each(programs, options);
  result.sites = machine.sites();
  result.operations = machine.operations();
  result.trace_hash = machine.trace_hash();
  if (result.failure) return result;
  for (std::uint32_t call = 0; call < calls; ++call) {
    const Bytes exact = exact_sum(values[call], scenario.dtype);
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      std::string wrong;
      if (rank > 0 && results[call][rank] != results[call][0])
        wrong = "differs from rank 0's";
      else if (rank == 0)
        wrong = check_result(scenario, results[call][0], values[call], exact);
      if (wrong.empty()) continue;
      std::string text = "wrong value: " + function;
      text.append(" call ").append(std::to_string(call + 1)).append(" on rank ").append(std::to_string(rank));
      text.append(": ").append(wrong).append("; seed ").append(std::to_string(seed));
      result.failure = Failure{Failure::Kind::wrong_value, text};
      return result;
    }
  }
  return result;
}

std::string describe(const Scenario& scenario) {
  constexpr std::array alignments{"16-byte", "4-byte", "one element", "any element",
                                  "16-byte but for one rank"};
  constexpr std::array grids{"single", "one block", "many blocks", "mixed", "changing"};
  std::string text(scenario.row->contender);
  text.append(" ").append(name_of(scenario.dtype)).append(" x ").append(std::to_string(scenario.ranks));
  text.append(" ranks");
  if (scenario.island_ranks != 0)
    text.append(" in islands of ").append(std::to_string(scenario.island_ranks));
  text.append(", ").append(std::to_string(scenario.count)).append(" elements, ");
  text.append(scenario.place == Place::in ? "in place" : "out of place");
  text.append(", alignment ").append(alignments[static_cast<std::size_t>(scenario.alignment)]);
  text.append(", grid ").append(grids[static_cast<std::size_t>(scenario.grid)]);
  if (scenario.values == Values::special) text += ", special values";
  if (scenario.start == Start::before_wrap) text += ", before the wrap";
  if (scenario.counts == Counts::changing) text += ", changing counts";
  return text;
}

}  // namespace arb::gate
