// The eight invariants of the design, each on the tree and on a planted violation.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <string>

#include "catalog.h"
#include "command.h"
#include "coordinator/bundles.h"
#include "rules.h"

namespace arb {
namespace {

namespace fs = std::filesystem;
using layers::Findings;
using layers::Rule;
using layers::SourceFile;

// All files of the repository that people write.
std::vector<SourceFile> tree() {
  std::vector<SourceFile> files;
  const fs::path root = ARB_SOURCE_DIR;
  const auto take = [&](const fs::path& path) {
    const std::string name = path.lexically_relative(root).generic_string();
    files.push_back({name, test::read_file(path)});
  };
  for (const char* folder : {"include", "src", "kernels", "bench", "tests", "cmake"}) {
    if (!fs::is_directory(root / folder)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
      if (!entry.is_regular_file() || entry.path().string().find("__pycache__") != std::string::npos)
        continue;
      take(entry.path());
    }
  }
  take(root / "CMakeLists.txt");
  return files;
}

std::vector<std::string> kernel_files() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(fs::path(ARB_SOURCE_DIR) / "kernels")) {
    if (entry.path().extension() == ".cu") names.push_back(entry.path().stem().string());
  }
  std::ranges::sort(names);
  return names;
}

std::vector<std::string> catalog_kernels() {
  std::set<std::string> names;
  for (const CatalogRow& row : catalog()) {
    if (!row.kernel.empty()) names.emplace(row.kernel);
  }
  return {names.begin(), names.end()};
}

// The whole tree keeps the rule, and the rule sees every planted violation.
void expect_holds(const Rule& rule, const std::vector<SourceFile>& planted) {
  for (const SourceFile& file : tree()) {
    // The rules' own texts and plants.
    if (file.path.starts_with("tests/layers/")) continue;
    for (const std::string& finding : rule(file)) ADD_FAILURE() << finding;
  }
  for (const SourceFile& file : planted) {
    EXPECT_FALSE(rule(file).empty()) << "not caught: " << file.path << ": " << file.text;
  }
}

// What a bundle exports against what the catalog says it must.
Findings bundle_against_catalog(const std::string& bundle, const std::set<std::string>& functions) {
  Findings findings;
  std::set<std::string> expected;
  for (const CatalogRow& row : catalog()) {
    if (row.source != Source::kernel) continue;
    for (const Dtype dtype : all_dtypes) {
      for (const std::uint32_t ranks : {2u, 3u, 4u, 8u}) expected.insert(function_name(row, dtype, ranks));
    }
  }
  for (const std::string& name : expected) {
    if (!functions.contains(name)) findings.push_back(fmt::format("{} lacks {}", bundle, name));
  }
  for (const std::string& name : functions) {
    if (!expected.contains(name))
      findings.push_back(fmt::format("{} exports {}, which no catalog row asks for", bundle, name));
  }
  return findings;
}

TEST(Layers, Invariant1CatalogAndKernelFilesAgree) {
  EXPECT_EQ(catalog_kernels(), kernel_files());
  std::set<std::string> contenders;
  for (const CatalogRow& row : catalog()) {
    EXPECT_TRUE(contenders.emplace(row.contender).second) << row.contender << " twice";
    EXPECT_EQ(row.kernel.empty(), row.source != Source::kernel) << row.contender;
    EXPECT_EQ(row.peer.empty(), row.source != Source::peer) << row.contender;
    if (row.source == Source::peer) {
      // Its row is named by its library, and the script that starts it is there.
      EXPECT_TRUE(row.contender.starts_with(std::string(row.peer) + "_")) << row.contender;
      EXPECT_TRUE(fs::exists(fs::path(ARB_SOURCE_DIR) / "scripts" / "peers" / row.peer_script))
          << row.contender;
    }
    EXPECT_EQ(row.in_place_refusal.empty(), row.in_place) << row.contender << ": a refusal has a sentence";
  }
  const std::vector<std::string> kernels = kernel_files();
  const std::string any = kernels.front();
  expect_holds([&](const SourceFile& file) { return layers::kernel_named_outside_catalog(file, kernels); },
               {{"src/worker/x.cpp", "if (name == \"" + any + "\") f();"},
                {"src/emulator/CMakeLists.txt", "add_library(x " + any + ".cu)"},
                {"kernels/other.cu", "ARB_KERNEL(" + any + "__bf16_n2, f(params))"}});
}

TEST(Layers, Invariant1BundlesExportTheCatalog) {
  std::set<std::string> all;
  for (const CatalogRow& row : catalog()) {
    if (row.source != Source::kernel) continue;
    for (const Dtype dtype : all_dtypes) {
      for (const std::uint32_t ranks : {2u, 3u, 4u, 8u}) all.insert(function_name(row, dtype, ranks));
    }
  }
  EXPECT_TRUE(bundle_against_catalog("planted", all).empty());
  std::set<std::string> fewer = all;
  fewer.erase(fewer.begin());
  EXPECT_FALSE(bundle_against_catalog("planted", fewer).empty());
  std::set<std::string> more = all;
  more.insert("stray__bf16_n2");
  EXPECT_FALSE(bundle_against_catalog("planted", more).empty());

  const BundleSet set = find_bundles(ARB_BUNDLE_FOLDER);
  for (const BundleProblem& problem : set.problems) ADD_FAILURE() << problem.sentence;
  if (set.bundles.empty())
    GTEST_SKIP() << "there are no bundles in " << ARB_BUNDLE_FOLDER << "; the target `bundles` makes them";
  for (const Bundle& bundle : set.bundles) {
    std::map<std::string, std::set<std::string>> functions;  // by architecture
    for (const BundleCubin& cubin : bundle.cubins) {
      for (const BundleFunction& function : cubin.functions)
        functions[cubin.architecture].insert(function.name);
    }
    for (const auto& [architecture, names] : functions) {
      for (const std::string& finding : bundle_against_catalog(bundle.name + " " + architecture, names))
        ADD_FAILURE() << finding;
    }
  }
}

TEST(Layers, Invariant2KernelsSeeTheMachineOnly) {
  expect_holds(layers::kernel_includes, {{"kernels/x.cu", "#include <cuda_bf16.h>"},
                                         {"kernels/x.cu", "#include \"../src/types.h\""},
                                         {"kernels/x.cu", "#include <cstdint>"},
                                         {"kernels/machine/x.cuh", "#include <stdint.h>"},
                                         {"kernels/support/x.cu", "#include \"../one.cuh\""}});
  expect_holds(layers::machine_words, {{"kernels/x.cu", "asm volatile(\"membar.sys;\");"},
                                       {"kernels/x.cu", "u32 i = threadIdx.x;"},
                                       {"kernels/x.cu", "__shared__ float sums[32];"},
                                       {"kernels/support/x.cu", "__syncthreads();"},
                                       {"kernels/support/x.cuh", "atomicAdd(p, 1);"}});
  EXPECT_TRUE(layers::machine_words({"kernels/x.cu", "// no threadIdx here\n/* asm */ f(\"asm\");"}).empty());
  EXPECT_TRUE(layers::machine_words({"kernels/machine/x.cuh", "u32 i = threadIdx.x;"}).empty());
}

TEST(Layers, Invariant3VendorHeadersStayInTheirFolders) {
  expect_holds(layers::vendor_headers, {{"src/worker/x.cpp", "#include <cuda.h>"},
                                        {"src/nccl_api/x.h", "#include \"cuda.h\""},
                                        {"src/worker/x.h", "#include <nccl.h>"},
                                        {"bench/x.cpp", "# include <cuda_runtime.h>"}});
  expect_holds(layers::vendor_error_codes, {{"src/worker/x.cpp", "if (call() != CUDA_SUCCESS) f();"},
                                            {"bench/x.cpp", "catch (CUresult code)"},
                                            {"src/worker/x.cpp", "ncclResult_t result = f();"},
                                            {"src/cuda_api/x.cpp", "return ncclSystemError;"}});
}

TEST(Layers, Invariant3TheProgramLinksNoVendorLibrary) {
  const auto linked = [](const std::string& listing) {
    for (const char* library :
         {"libcuda.so", "libnccl.so", "libcudart.so", "libnvidia-ml.so", "libnvrtc.so"}) {
      if (listing.find(std::string("Shared library: [") + library) != std::string::npos) return true;
    }
    return false;
  };
  EXPECT_TRUE(linked(" 0x01 (NEEDED)  Shared library: [libcuda.so.1]"));
  EXPECT_TRUE(linked(" 0x01 (NEEDED)  Shared library: [libcudart.so.13]"));
  const test::Said said = test::run_command({"/usr/bin/env", "readelf", "-d", ARB_PROGRAM});
  if (said.status == 127) GTEST_SKIP() << "there is no readelf (binutils) to look with";
  ASSERT_EQ(said.status, 0) << said.err;
  EXPECT_NE(said.out.find("Shared library: [libstdc++"), std::string::npos) << "the listing is read rightly";
  EXPECT_FALSE(linked(said.out)) << said.out;
}

TEST(Layers, Invariant4BenchAndTestsNameNoKernel) {
  const std::vector<std::string> kernels = kernel_files();
  const std::string any = kernels.front();
  expect_holds([&](const SourceFile& file) { return layers::kernel_named_in_bench_or_tests(file, kernels); },
               {{"bench/x.cpp", "find_contender(\"" + any + "\")"},
                {"tests/gpu/x.cpp", "// only " + any + " is tried"},
                {"tests/golden/x.txt", "1024 512 " + any + "/symmetric 2.1"},
                {"tests/x/CMakeLists.txt", "set(kernel " + any + ")"}});
}

TEST(Layers, Invariant5DevicesWaitInOnePlace) {
  expect_holds(layers::device_waits,
               {{"kernels/x.cu", "while (load_acquire_system(flag) != 1) {}"},
                {"kernels/x.cu", "for (;;) if (done) break;"},
                {"kernels/support/x.cu", "u32 seen = load_acquire_system(flag, site);"},
                {"kernels/machine/memory.cuh", "do { v = load(p); } while (v == 0);"},
                {"kernels/machine/wait.cuh",
                 "void wait(Reason reason) { for (u32 poll = 1;; ++poll) { if (seen()) return; } }"},
                {"kernels/machine/wait.cuh", "bool must_give_up(Reason reason) { return poll > 1000; }"},
                {"kernels/machine/sentinel.cuh", "for (u32 poll = 1;; ++poll) if (arrived(v)) return v;"},
                {"kernels/machine/exchange.cuh",
                 "for (u32 poll = 1;; ++poll) if (must_give_up(poll, start_ns)) return;"},
                {"kernels/machine/wait.cuh",
                 "void wait() { for (;;) if (now_ns() - start_ns > context.deadline_ns) return; }"}});
}

TEST(Layers, Invariant6HostCodeNeedsNoCudaCompiler) {
  expect_holds(layers::cuda_compiler,
               {{"CMakeLists.txt", "project(x LANGUAGES CXX CUDA)"},
                {"src/CMakeLists.txt", "enable_language(CUDA)"},
                {"src/CMakeLists.txt", "find_package(CUDAToolkit REQUIRED)"},
                {"src/worker/CMakeLists.txt", "target_link_libraries(x PRIVATE CUDA::cuda_driver)"},
                {"tests/gpu/CMakeLists.txt", "execute_process(COMMAND nvcc --version)"}});
  EXPECT_NE(test::read_file(fs::path(ARB_SOURCE_DIR) / "CMakeLists.txt").find("LANGUAGES CXX)"),
            std::string::npos);
}

TEST(Layers, Invariant6TheProgramStartsWithNoDriver) {
  const test::Said libraries = test::run_command({"/usr/bin/ldd", ARB_PROGRAM});
  EXPECT_EQ(libraries.status, 0) << libraries.err;
  for (const char* name : {"libcuda", "libnvidia", "libnccl", "not found"})
    EXPECT_EQ(libraries.out.find(name), std::string::npos) << libraries.out;
  const test::Said said = test::run_command({ARB_PROGRAM, "list"});
  EXPECT_EQ(said.status, 0) << said.err;
  const test::Scratch scratch;
  const test::Said run = test::run_command(
      {ARB_PROGRAM, "run", "--emulate", "-e", "1K", "--results", (scratch.path() / "results").string()});
  EXPECT_EQ(run.status, 0) << run.err;
}

TEST(Layers, Invariant7RowsAreMadeInOnePlace) {
  const std::string header = test::read_file(fs::path(ARB_SOURCE_DIR) / "src" / "measure.h");
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = header;
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    if (at != std::string::npos) text.replace(at, from.size(), to);
    return SourceFile{"src/measure.h", text};
  };
  expect_holds(layers::row_makers,
               {with("  friend class RowReader;", "  friend class RowReader;\n  friend class Other;"),
                with("[[nodiscard]] bool timed()", "RowFields& change() { return fields_; }\n  bool timed()"),
                {"src/plan.cpp", "Row row(std::move(fields));\n Row(fields);"},
                {"bench/x.cpp", "RowFields fields; fields.evidence = Evidence::measured;"},
                {"bench/x.cpp", "const_cast<Row&>(row)"}});
}

TEST(Layers, Invariant8NumbersCarryTheirUnits) {
  expect_holds(layers::units,
               {{"src/x.h", "void wait(std::uint64_t deadline);"},
                {"src/x.h", "struct X { double latency = 0; };"},
                {"bench/x.h", "std::optional<std::uint64_t> max_size;"},
                {"include/arb/x.h", "u64 stride;"},
                {"src/x.h", "int f(const std::string& name, std::size_t buffer_size, int n);"}});
  EXPECT_TRUE(
      layers::units({"src/x.h", "void wait(std::uint64_t deadline_ns, std::chrono::milliseconds timeout);"})
          .empty());
}

TEST(Layers, CommentsAndStringsAreBlankedInPlace) {
  EXPECT_EQ(layers::without_comments("a // b\nc /* d\n */ e", false), "a     \nc     \n    e");
  EXPECT_EQ(layers::without_comments("f(\"x // y\"); 'c'", true), "f(\"      \"); ' '");
  EXPECT_EQ(layers::without_comments("R\"(a // b)\" // c", false), "R\"(a // b)\"     ");
  EXPECT_EQ(layers::without_comments("1'000 // x", true), "1'000     ");
}

}  // namespace
}  // namespace arb
