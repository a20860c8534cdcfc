// Every contender of every bundle on real GPUs: odd counts, any alignment, all dtypes, in place and out of
// place, back-to-back calls in one graph whose inputs change, on as many ranks as there are GPUs and on
// virtual ones.
#include <arb/abi.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <random>

#include "catalog.h"
#include "cuda_api/device.h"
#include "cuda_api/error.h"
#include "measure.h"
#include "reference.h"
#include "survey.h"
#include "verify_case.h"
#include "worker/cell_runner.h"
#include "worker/code.h"
#include "worker/limits.h"
#include "worker/ranks.h"

namespace arb {
namespace {

using worker::Code;
using worker::Ranks;
using worker::Recorder;

constexpr std::uint64_t deadline_ms = 5000;
constexpr std::uint32_t calls_per_graph = 5;
constexpr std::uint64_t guard_bytes = 64;
constexpr unsigned char guard_value = 0xA5;

std::filesystem::path bundles_folder() {
  const char* const chosen = std::getenv("ARB_BUNDLES");
  return chosen != nullptr ? chosen : ARB_BUNDLES_DIR;
}

// GPUs and code, opened once.
struct Box {
  std::vector<cuda::DeviceProperties> devices;
  std::vector<cuda::Context> contexts;
  std::unique_ptr<Code> code;
  std::string why_not;  // empty when kernels can run

  Box() {
    try {
      devices = cuda::all_devices();
    } catch (const cuda::CudaError& error) {
      why_not = error.what();
      return;
    }
    if (devices.empty()) {
      why_not = "the driver shows no GPU";
      return;
    }
    std::vector<std::string> folders;
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator(bundles_folder(), ignored)) {
      if (entry.is_directory() && entry.path().filename().string().front() != '.')
        folders.push_back(entry.path().string());
    }
    if (folders.empty()) {
      why_not = "there are no bundles in " + bundles_folder().string();
      return;
    }
    std::ranges::sort(folders);
    for (const auto& device : devices) contexts.emplace_back(device.ordinal);
    code = std::make_unique<Code>(folders, devices.front().architecture, contexts);
    // With GPUs and bundles, code that does not load is a failure and no reason to skip.
    for (const BundleInfo& bundle : code->bundles()) EXPECT_EQ(bundle.problem, "");
    EXPECT_NO_THROW((void)code->support());
  }

  // The contexts of the first `count` devices.
  [[nodiscard]] std::vector<cuda::Context> some(std::size_t count) const {
    std::vector<cuda::Context> chosen;
    for (std::size_t i = 0; i < count; ++i) chosen.emplace_back(devices[i].ordinal);
    return chosen;
  }
};

class Kernels : public testing::Test {
 protected:
  static void SetUpTestSuite() { box_ = std::make_unique<Box>(); }
  static void TearDownTestSuite() { box_.reset(); }
  void SetUp() override {
    if (!box_->why_not.empty()) GTEST_SKIP() << "no kernel can run here: " << box_->why_not;
  }

  static inline std::unique_ptr<Box> box_;  // one a test program: contexts take a second to open
};

struct Case {
  const CatalogRow* row;
  std::string bundle;
  Dtype dtype;
  std::uint64_t count;
  Place place;
  std::uint64_t offset_elements;  // from a 16-byte boundary; out of place the output has another one
  std::uint32_t blocks;
  std::uint32_t threads;
  std::uint32_t island_ranks;
};

// Runs the case's calls in one graph a rank and compares every result with the reference, bit by bit over
// ranks.
void expect_right(Ranks& ranks, const Code& code, const Case& test, std::uint64_t seed) {
  const std::uint32_t n = ranks.count();
  const std::uint64_t bytes = test.count * size_of_bytes(test.dtype);
  const std::uint64_t pitch = (bytes + 15) / 16 * 16 + 2 * guard_bytes + 32;
  const std::uint64_t input_offset = guard_bytes + test.offset_elements * size_of_bytes(test.dtype);
  const std::uint64_t output_offset =
      guard_bytes + (test.offset_elements * 3 % 8) * size_of_bytes(test.dtype);
  const bool in_place = test.place == Place::in;
  const std::uint64_t capacity_bytes = (bytes + 255) / 256 * 256 + 256;
  // The kernel's own buffers, reused by every call, and one archive of inputs and outputs a call.
  const cuda::SymmetricBuffer tensors = ranks.make_symmetric(2 * pitch);
  const cuda::SymmetricBuffer archive = ranks.make_symmetric(2 * calls_per_graph * pitch);
  worker::Workspace workspace = ranks.make_workspace(
      test.row->scratch_bytes({n, test.island_ranks}, capacity_bytes), capacity_bytes, test.row->sentinel);
  std::vector<std::vector<std::vector<std::byte>>> inputs(calls_per_graph);
  for (worker::Rank& rank : ranks.all()) {
    rank.stream.set_bytes(tensors.data(rank.number), guard_value, tensors.size_bytes());
    ranks.wait("guards");
    for (std::uint32_t call = 0; call < calls_per_graph; ++call) {
      inputs[call].push_back(make_input(test.dtype, test.count, seed * 100 + call, rank.number));
      if (bytes != 0) {
        cuda::copy_to_device(*rank.context, archive.data(rank.number) + call * pitch, inputs[call].back());
      }
    }
  }
  const cuda::Kernel kernel = code.kernel(test.bundle, function_name(*test.row, test.dtype, n));
  const std::uint32_t most_blocks = ranks.most_blocks(kernel, test.threads);
  ASSERT_GT(most_blocks, 0u);
  // Copies between the calls change the input and keep the output; all of it waits behind the gate.
  Recorder recorder(ranks, Recorder::Kind::immediate);
  for (worker::Rank& rank : ranks.all()) {
    std::byte* const input = tensors.data(rank.number) + input_offset;
    std::byte* const output = in_place ? input : tensors.data(rank.number) + pitch + output_offset;
    ranks.hold(rank, rank.stream);
    for (std::uint32_t call = 0; call < calls_per_graph; ++call) {
      rank.stream.copy(input, archive.data(rank.number) + call * pitch, bytes);
      if (!in_place) rank.stream.set_bytes(output, 0xFF, bytes);
      KernelParams params = workspace.params(rank, n, ranks.deadline_ns());
      params.input = input;
      params.output = output;
      if (test.row->style == Style::symmetric) {
        params.inputs = {reinterpret_cast<char*>(tensors.data(0) + input_offset), tensors.stride_bytes()};
      }
      params.count_elements = test.count;
      params.island_ranks = test.island_ranks;
      worker::add_call(recorder, rank, *test.row, kernel, workspace, params, bytes,
                       {std::min(test.blocks + call % 2, most_blocks), test.threads}, cuda::Edge::plain);
      rank.stream.copy(archive.data(rank.number) + (calls_per_graph + call) * pitch, output, bytes);
    }
  }
  ranks.open_gate();
  ranks.wait("a test");
  for (std::uint32_t call = 0; call < calls_per_graph && bytes != 0; ++call) {
    std::vector<std::byte> first;
    for (worker::Rank& rank : ranks.all()) {
      std::vector<std::byte> output(bytes);
      cuda::copy_to_host(*rank.context, output, archive.data(rank.number) + (calls_per_graph + call) * pitch);
      const CheckResult check = check_sum(output, inputs[call], test.dtype, test.row->roundings(n));
      ASSERT_TRUE(check.correct) << "call " << call << ", rank " << rank.number << ": " << check.sentence;
      if (rank.number == 0) first = output;
      ASSERT_EQ(output, first) << "call " << call << ": ranks 0 and " << rank.number
                               << " have different bits";
    }
  }
  for (worker::Rank& rank : ranks.all()) {
    std::vector<std::byte> all(2 * pitch);
    cuda::copy_to_host(*rank.context, all, tensors.data(rank.number));
    const auto is_guard = [&](std::uint64_t begin, std::uint64_t end) {
      return std::all_of(all.begin() + static_cast<std::ptrdiff_t>(begin),
                         all.begin() + static_cast<std::ptrdiff_t>(end),
                         [](std::byte b) { return b == std::byte{guard_value}; });
    };
    ASSERT_TRUE(is_guard(0, input_offset) && is_guard(input_offset + bytes, pitch)) << "around the input";
    if (!in_place) {
      ASSERT_TRUE(is_guard(pitch, pitch + output_offset) &&
                  is_guard(pitch + output_offset + bytes, 2 * pitch))
          << "around the output";
    }
  }
}

// All contenders x bundles x dtypes x places over drawn counts, offsets and shapes.
void expect_all_right(const std::vector<cuda::Context>& contexts, std::uint32_t n, const Code& code,
                      int draws) {
  Ranks ranks(contexts, n, code.support(), deadline_ms);
  std::mt19937_64 random(n);
  const auto draw = [&](std::uint64_t below) { return random() % below; };
  constexpr std::uint64_t counts[] = {0,   1,   2,    3,    7,    8,    9,     15,    64,
                                      127, 360, 1000, 2880, 4096, 8191, 65536, 100003};
  std::uint64_t seed = 1;
  for (const BundleInfo& bundle : code.bundles()) {
    if (bundle.name == "support") continue;
    ASSERT_EQ(bundle.problem, "");
    for (const CatalogRow& row : catalog()) {
      if (row.source != Source::kernel) continue;
      const std::uint32_t island_ranks = n % 4 == 0 ? (n == 8 && draw(2) == 0 ? 4 : 2) : n == 6 ? 3 : 0;
      if (row.needs_islands && island_ranks == 0) continue;
      for (const Dtype dtype : all_dtypes) {
        for (const Place place : {Place::out, Place::in}) {
          if (place == Place::in && !row.in_place) continue;
          for (int i = 0; i < draws; ++i) {
            const Case test{&row,
                            bundle.name,
                            dtype,
                            counts[draw(std::size(counts))],
                            place,
                            draw(3) == 0 ? 0 : draw(8),
                            static_cast<std::uint32_t>(1 + draw(12)),
                            static_cast<std::uint32_t>(32 * (1 + draw(16))),
                            row.needs_islands ? island_ranks : 0};
            SCOPED_TRACE(fmt::format("{} {} {} n={} count={} {} offset={} {}x{} seed={}", row.contender,
                                     bundle.name, name_of(dtype), n, test.count, name_of(place),
                                     test.offset_elements, test.blocks, test.threads, seed));
            expect_right(ranks, code, test, seed++);
            if (testing::Test::HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

TEST_F(Kernels, OnEveryGpuOfThisBox) {
  if (box_->devices.size() < 2) GTEST_SKIP() << "one GPU only: see OnVirtualRanks";
  const auto n = std::min<std::size_t>(box_->devices.size(), max_ranks);
  for (std::size_t gpus = 2; gpus <= n; ++gpus) {
    expect_all_right(box_->some(gpus), static_cast<std::uint32_t>(gpus), *box_->code, gpus == n ? 8 : 1);
    if (HasFatalFailure()) return;
  }
}

TEST_F(Kernels, OnVirtualRanks) {
  for (std::size_t gpus = 1; gpus <= std::min<std::size_t>(box_->devices.size(), 2); ++gpus) {
    for (const std::uint32_t n : {2u, 3u, 4u, 5u, 8u}) {
      if (n <= gpus) continue;
      SCOPED_TRACE(fmt::format("{} ranks on {} GPUs", n, gpus));
      expect_all_right(box_->some(gpus), n, *box_->code, 1);
      if (HasFatalFailure()) return;
    }
  }
}

// The pattern that the device makes is the one that the host knows, and the check kernel tells right from
// wrong.
TEST_F(Kernels, FillAndCheckAgreeWithTheHost) {
  const std::vector<cuda::Context> contexts = box_->some(1);
  Ranks ranks(contexts, 1, box_->code->support(), deadline_ms);
  worker::Rank& rank = ranks[0];
  constexpr std::uint64_t count = 10001;
  for (const Dtype dtype : all_dtypes) {
    const std::uint64_t bytes = count * size_of_bytes(dtype);
    const cuda::DeviceBuffer tensor(*rank.context, bytes);
    const cuda::DeviceBuffer record(*rank.context, sizeof(CheckRecord));
    InputParams inputs{};
    inputs.seed = 7;
    inputs.count_elements = count;
    inputs.ranks = 1;
    inputs.dtype = static_cast<DtypeCode>(dtype);
    const auto check = [&] {
      rank.stream.set_bytes(record.data(), 0, sizeof(CheckRecord));
      const CheckParams params{
          tensor.data(), reinterpret_cast<CheckRecord*>(record.data()), inputs, 1e-9, 0, 1, 0};
      rank.stream.launch(ranks.support().check, {4, 128}, params);
      ranks.wait("checking");
      CheckRecord found{};
      cuda::copy_to_host(*rank.context, std::as_writable_bytes(std::span(&found, 1)), record.data());
      return found;
    };
    rank.stream.launch(ranks.support().fill, {4, 128}, FillParams{tensor.data(), nullptr, inputs, 0, 0});
    ranks.wait("filling");
    std::vector<std::byte> bytes_made(bytes);
    cuda::copy_to_host(*rank.context, bytes_made, tensor.data());
    EXPECT_EQ(bytes_made, make_input(dtype, count, 7, 0));
    CheckRecord found = check();
    EXPECT_EQ(found.wrong_elements, 0u);
    EXPECT_EQ(fmt::format("{:016x}", found.hash), hash_hex(bytes_made));
    rank.stream.set_bytes(tensor.data() + 5000 * size_of_bytes(dtype), 0xFF, size_of_bytes(dtype));
    found = check();
    EXPECT_EQ(found.wrong_elements, 1u);
    EXPECT_EQ(element_of_wrong_place(found.first_wrong), 5000u);
  }
}

// Every test of a survey gives a figure that can be; on one GPU its two ranks are virtual, and bytes do not leave it.
TEST_F(Kernels, TheMachinesLimitsCanBeMeasured) {
  const std::size_t gpus = std::min<std::size_t>(box_->devices.size(), 2);
  const std::vector<cuda::Context> contexts = box_->some(gpus);
  Ranks ranks(contexts, 2, box_->code->support(), deadline_ms);
  worker::LimitBench bench(ranks);
  Survey survey{.ranks = 2};
  for (const LimitTest& test : survey_plan(2)) {
    const double figure = bench.measure(test);
    EXPECT_GT(figure, 0) << text_of(test);
    EXPECT_LT(figure, test.kind == LimitKind::move ? 20'000 : 100'000) << text_of(test);
    survey.figures.push_back({test, figure});
  }
  EXPECT_LT(*survey.value(barrier_test()), 100);
  EXPECT_THROW(bench.measure(flag_test(0, 2)), BundleError);
  if (gpus < 2) return;
  // The limits of a run are the same tests.
  worker::CellRunner runner(ranks, *box_->code, nullptr, nullptr, 1 << 20);
  const MachineLimits limits = worker::measure_limits(ranks, runner);
  double best_gbps = 0;
  for (const Engine engine : {Engine::sm_store, Engine::sm_load, Engine::copy_engine})
    best_gbps = std::max(best_gbps, *survey.value(move_test(engine, Traffic::all_pairs, many_blocks)));
  EXPECT_NEAR(limits.bandwidth_gbps / best_gbps, 1, 0.5);
  EXPECT_NEAR(limits.flag_us / *survey.value(flag_test(0, 1)), 1, 0.5);
}

// Calls visit(row, bundle) for every contender of ours that `ranks` can run.
template <class Visit>
void for_each_kernel(const Code& code, std::uint32_t ranks, Visit visit) {
  for (const BundleInfo& bundle : code.bundles()) {
    if (bundle.name == "support") continue;
    for (const CatalogRow& row : catalog()) {
      if (row.source == Source::kernel && can_verify(row, ranks)) visit(row, bundle.name);
    }
  }
}

// Teams of ranks on the first GPUs of this box: as many as there are, and 8 on one and on two.
struct TestTeam {
  std::uint32_t ranks;
  std::uint32_t gpus;
};
std::vector<TestTeam> teams(std::size_t gpus) {
  std::vector<TestTeam> some{{8, 1}};
  if (gpus >= 2) {
    const auto all = static_cast<std::uint32_t>(std::min<std::size_t>(gpus, max_ranks));
    some.insert(some.begin(), {all, all});
    some.push_back({8, 2});
  }
  return some;
}

// A short verification: `arbench verify` runs the same cases, and more of them.
TEST_F(Kernels, AVerificationFindsNothing) {
  constexpr std::uint64_t numbers[] = {5, 6, 7, 8};  // 7 has the largest message
  for (const auto [ranks_count, gpus] : teams(box_->devices.size())) {
    const std::vector<cuda::Context> contexts = box_->some(gpus);
    Ranks ranks(contexts, ranks_count, box_->code->support(), deadline_ms);
    worker::CellRunner runner(ranks, *box_->code, nullptr, nullptr, 1 << 20);
    for_each_kernel(*box_->code, ranks_count, [&](const CatalogRow& row, const std::string& bundle) {
      for (const std::uint64_t number : numbers) {
        Cell cell = verify_cell(row, ranks_count, gpus, number);
        cell.bundle = bundle;
        const Outcome outcome = runner.run(cell);
        EXPECT_TRUE(outcome.correct) << row.contender << " of " << bundle << ", " << ranks_count
                                     << " ranks on " << gpus << " GPUs, case " << number << " ("
                                     << outcome.ran << "): " << outcome.wrong << outcome.failure;
      }
    });
  }
}

// The same verification with a fault in it: a check that cannot fail proves nothing.
TEST_F(Kernels, AVerificationFindsWhatIsPlanted) {
  constexpr std::uint64_t short_deadline_ms = 300;
  std::string first_bundle;
  for (const auto [ranks_count, gpus] : teams(box_->devices.size())) {
    const std::vector<cuda::Context> contexts = box_->some(gpus);
    Ranks ranks(contexts, ranks_count, box_->code->support(), short_deadline_ms);
    worker::CellRunner runner(ranks, *box_->code, nullptr, nullptr, 1 << 20);
    for_each_kernel(*box_->code, ranks_count, [&](const CatalogRow& row, const std::string& bundle) {
      // The checks are the same for all bundles.
      if (first_bundle.empty()) first_bundle = bundle;
      if (bundle != first_bundle) return;
      const std::uint64_t number = plantable_case(row, ranks_count, gpus, 100);
      for (const Plant plant : {Plant::input, Plant::output, Plant::absent, Plant::none}) {
        Cell cell = verify_cell(row, ranks_count, gpus, number);
        cell.bundle = bundle;
        cell.plant = plant;
        const Outcome outcome = runner.run(cell);
        SCOPED_TRACE(fmt::format("{} of {}, {} ranks on {} GPUs, planted: {}", row.contender, bundle,
                                 ranks_count, gpus, name_of(plant)));
        EXPECT_EQ(outcome.failure, "");
        EXPECT_EQ(outcome.correct, plant == Plant::none) << outcome.wrong;
        const char* const words =
            plant == Plant::absent ? " waited for rank " : " wrong elements in the first ";
        if (plant != Plant::none) {
          EXPECT_NE(outcome.wrong.find(words), std::string::npos) << outcome.wrong;
        }
      }
    });
  }
}

// NCCL as the runner uses it, a rank a GPU (one GPU: NCCL by itself, whose communicators and windows are no
// different): a window that grows and shrinks, and the same sums with and without one.
TEST_F(Kernels, NcclIsRightWithAndWithoutWindows) {
  const std::string path = [] {
    const char* const chosen = std::getenv("ARB_NCCL");
    return std::string(chosen != nullptr ? chosen : "libnccl.so.2");
  }();
  std::unique_ptr<worker::Nccl> library;
  try {
    library = std::make_unique<worker::Nccl>(path);
  } catch (const nccl::Error& error) {
    GTEST_SKIP() << "no NCCL loads here; ARB_NCCL names one: " << error.what();
  }
  const auto n = static_cast<std::uint32_t>(std::min<std::size_t>(box_->devices.size(), max_ranks));
  const std::vector<cuda::Context> contexts = box_->some(n);
  Ranks ranks(contexts, n, box_->code->support(), deadline_ms);
  worker::CellRunner runner(ranks, *box_->code, library.get(), nullptr, 1 << 20);
  std::size_t cells = 0;
  // Windows first: a library's first use settles which configuration it has.
  for (const bool in_window : {true, false}) {
    for (const CatalogRow& row : catalog()) {
      if (row.source != Source::nccl || needs_windows(row) != in_window || !row.nccl_variables.empty())
        continue;
      if (in_window && !library->library.window_problem().empty()) continue;
      for (const std::uint64_t bytes : {1ull << 10, 64ull << 20, 1ull << 10}) {
        for (const Place place : {Place::out, Place::in}) {
          for (const Mode mode : {Mode::pipelined, Mode::isolated}) {
            Cell cell;
            cell.contender = row.contender;
            cell.nccl = library->library.name();
            cell.ranks = n;
            cell.bytes = bytes;
            cell.place = place;
            cell.mode = mode;
            cell.calls_per_graph = 3;
            cell.samples = 2;
            cell.warmups = 1;
            SCOPED_TRACE(cell_name(cell));
            const Outcome outcome = runner.run(cell);
            EXPECT_EQ(outcome.wrong + outcome.failure, "");
            EXPECT_TRUE(outcome.correct);
            ++cells;
          }
        }
      }
    }
  }
  EXPECT_GT(cells, 0u);
}

// A rank that never comes: the wait ends at its deadline and says who waited for whom.
TEST_F(Kernels, AMissingRankEndsTheWaitWithASentence) {
  constexpr std::uint64_t short_deadline_ms = 50;
  const std::vector<cuda::Context> contexts = box_->some(1);
  const auto bundle = std::ranges::find_if(box_->code->bundles(),
                                           [](const BundleInfo& info) { return info.name != "support"; });
  if (bundle == box_->code->bundles().end()) GTEST_SKIP() << "there is no bundle of kernels";
  for (const CatalogRow& row : catalog()) {
    if (row.source != Source::kernel || row.needs_islands) continue;
    // With a thread for each of the 256 vectors, and with fewer: a kernel may wait in another place.
    for (const LaunchShape shape : {LaunchShape{4, 64}, LaunchShape{1, 64}}) {
      SCOPED_TRACE(fmt::format("{} in {}x{}", row.contender, shape.blocks, shape.threads));
      Ranks ranks(contexts, 2, box_->code->support(), short_deadline_ms);
      const cuda::SymmetricBuffer tensors = ranks.make_symmetric(8192);
      worker::Workspace workspace = ranks.make_workspace(row.scratch_bytes({2, 0}, 4096), 4096, row.sentinel);
      KernelParams params = workspace.params(ranks[0], 2, ranks.deadline_ns());
      params.input = tensors.data(0);
      params.output = tensors.data(0) + 4096;
      if (row.style == Style::symmetric)
        params.inputs = {reinterpret_cast<char*>(tensors.data(0)), tensors.stride_bytes()};
      params.count_elements = 1024;
      Recorder recorder(ranks, Recorder::Kind::immediate);
      worker::add_call(recorder, ranks[0], row,
                       box_->code->kernel(bundle->name, function_name(row, Dtype::fp32, 2)), workspace,
                       params, 4096, shape, cuda::Edge::plain);
      try {
        ranks.wait("a lone rank");
        FAIL() << row.contender << " did not wait for its peer";
      } catch (const worker::DeviceDeadline& error) {
        EXPECT_NE(std::string(error.what()).find("rank 0 waited for rank 1 in phase "), std::string::npos)
            << error.what();
      }
    }
  }
}

}  // namespace
}  // namespace arb

int main(int argc, char** argv) {
  // Before the driver reads them: ranks that share a GPU need streams that do not wait for one another.
  setenv("CUDA_MODULE_LOADING", "EAGER", 1);
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
