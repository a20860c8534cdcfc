// A stand-in for arbench on a box of GPUs, for tests of scripts: makes results folders with made-up times.
//   sample_arbench run [--launches N] --results DIR ...     a published run; ARB_SAMPLE_FACTOR scales its
//   times sample_arbench arms DIR FACTOR                          a comparison whose B is slower by FACTOR
//   sample_arbench compare RUN_A RUN_B [--history FILE] [--markdown] [--format smaller-is-better]   the real
//   verb
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "catalog.h"
#include "compare.h"
#include "fake_host.h"
#include "results_folder.h"

namespace {

using namespace arb;

int run(const std::vector<std::string>& arguments) {
  std::string results = "results";
  std::uint32_t launches = 3;
  for (std::size_t i = 0; i + 1 < arguments.size(); ++i) {
    if (arguments[i] == "--results") results = arguments[i + 1];
    if (arguments[i] == "--launches") launches = static_cast<std::uint32_t>(std::stoul(arguments[i + 1]));
  }
  const char* factor_text = std::getenv("ARB_SAMPLE_FACTOR");
  const double factor = factor_text != nullptr ? std::stod(factor_text) : 1;
  const char* driver = std::getenv("ARB_SAMPLE_DRIVER");
  ResultsFolder folder(results);
  const test::DoubleBackend backend(Evidence::measured);
  // Nights differ: the clock seeds them.
  std::mt19937_64 random(
      static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count()));
  std::normal_distribution<double> noise(0, 0.003);
  for (std::uint32_t launch = 0; launch < launches; ++launch) {
    for (const CatalogRow& row : catalog()) {
      for (const std::uint64_t bytes : {1u << 10, 64u << 10, 8u << 20}) {
        Cell cell;
        cell.contender = row.contender;
        if (row.source == Source::nccl) cell.nccl = "2.28.9+cuda13.0";
        if (row.source == Source::kernel) cell.bundle = "13.0-nvrtc";
        cell.ranks = 2;
        cell.bytes = bytes;
        const double us = (5 + static_cast<double>(bytes) / 300e3) * factor * std::exp(noise(random));
        folder.add(measure(backend, cell, test::right_outcome({us, us, us}),
                           {.gpus = 2, .launch = launch, .limits = {}}));
      }
    }
  }
  folder.write("benchmark.json", "{}");
  folder.write("manifest.json", "{}");
  folder.write("environment.json", std::string(R"({"driver": ")") +
                                       (driver != nullptr ? driver : "580.82.07") +
                                       R"(", "gpus": [{"uuid": "GPU-0"}, {"uuid": "GPU-1"}]})");
  const auto path =
      folder.publish(utc_now(false) + "-2xPretended-run",
                     {.command = "arbench run", .version = "0", .started = utc_now(true), .remarks = {}});
  std::cerr << "arbench: results in " << path.string() << '\n';
  return 0;
}

int compare(const CompareOptions& options, const test::FakeMachine& machine) {
  const Interrupt interrupt;
  return compare_verb_on(
      options, {.out = std::cout, .err = std::cerr}, interrupt,
      [&](const std::string&, const Say&) { return std::make_unique<test::FakeHost>(machine); });
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.empty()) return 1;
  if (arguments[0] == "run") return run(arguments);
  CompareOptions options;
  test::FakeMachine machine;
  if (arguments[0] == "arms" && arguments.size() == 3) {
    options.a = {"toolkit=12.8"};
    options.b = {"toolkit=13.0"};
    options.run.results = arguments[1];
    const double effect = std::log(std::stod(arguments[2]));
    machine.effect = [effect](Role role, const Cell&) { return role == Role::b ? effect : 0; };
    return compare(options, machine);
  }
  for (std::size_t i = 1; i < arguments.size(); ++i) {
    if (arguments[i] == "--history") {
      options.history = arguments[++i];
    } else if (arguments[i] == "--markdown") {
      options.format = CompareFormat::markdown;
    } else if (arguments[i] == "--format") {
      options.format = CompareFormat::smaller_is_better;
      ++i;
    } else {
      options.sides.push_back(arguments[i]);
    }
  }
  return compare(options, machine);
}
