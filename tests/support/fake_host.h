// A machine for comparisons that exists in numbers only: launches of arms with times drawn from a seed.
#pragma once

#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "compare_host.h"
#include "double_backend.h"

namespace arb::test {

struct FakeMachine {
  // ln of the factor on a cell's time.
  std::function<double(Role, const Cell&)> effect = [](Role, const Cell&) { return 0.0; };
  // Called before each cell; may throw, or change the outcome.
  std::function<void(Role, int launch, const Cell&, Outcome&)> meddle = [](Role, int, const Cell&, Outcome&) {
  };
  std::function<void(Role, std::vector<GpuDuring>&)> meddle_gpus = [](Role, std::vector<GpuDuring>&) {};
  double launch_noise = 0.002;
  double drift = 0.001;
  std::uint64_t seed = 1;
  std::string driver = "580.82.07";
  std::set<Role> without_nccl;
  std::set<Role> without_windows;
  Evidence evidence = Evidence::measured;
};

class FakeHost final : public ArmHost {
 public:
  explicit FakeHost(FakeMachine machine) : machine_(std::move(machine)), random_(machine_.seed) {}

  PreparedArm prepare(Role role, const ArmSpec& arm) override {
    if (machine_.evidence != Evidence::measured) throw EnvironmentError("a comparison needs GPUs");
    const std::string toolkit = arm.toolkit.empty() ? "13.0" : arm.toolkit;
    const std::string bundle = toolkit.find('-') == std::string::npos ? toolkit + "-nvrtc" : toolkit;
    const std::string nccl = arm.nccl.empty() ? "2.28.9+cuda13.0" : "2.28.3+cuda12.9";
    const bool has_nccl = !machine_.without_nccl.contains(role);
    PreparedArm prepared{
        .machine = {.evidence = Evidence::measured,
                    .ranks = 2,
                    .bundles = {bundle},
                    .nccls = has_nccl ? std::vector{nccl} : std::vector<std::string>{}},
        .found = {.bundle = bundle, .bundle_digest = bundle, .nccl = nccl, .nccl_path = arm.nccl}};
    if (machine_.without_windows.contains(role))
      prepared.machine.nccl_window_problems[nccl] = "NCCL " + nccl + " has no windows";
    return prepared;
  }

  Launched launch(Role role) override {
    role_ = role;
    const int launch = launches_++;
    drift_ += machine_.drift * normal_(random_);
    const double level = drift_ + machine_.launch_noise * normal_(random_);
    auto backend =
        std::make_unique<DoubleBackend>(Evidence::measured, [this, role, launch, level](const Cell& cell) {
          const double us = (5 + static_cast<double>(cell.bytes) / 300e3) *
                            std::exp(level + 0.0005 * normal_(random_) + machine_.effect(role, cell));
          Outcome outcome = right_outcome({us, us, us * 1.01});
          machine_.meddle(role, launch, cell, outcome);
          return outcome;
        });
    return {.backend = std::move(backend), .driver = machine_.driver, .gpus = {"GPU-0", "GPU-1"}};
  }

  [[nodiscard]] std::optional<BundleFunction> function(Role /*role*/, const Cell& cell) const override {
    if (cell.bundle.empty()) return std::nullopt;
    BundleFunction function;
    function.name = "f";
    function.registers = cell.bundle.starts_with("12.8") ? 40 : 38;
    function.instructions = 900;
    function.sass_sha256 = cell.bundle;
    return function;
  }

  [[nodiscard]] Environment environment() const override {
    Environment environment;
    environment.evidence = Evidence::measured;
    environment.ranks = 2;
    environment.driver = machine_.driver;
    environment.cuda_driver = 13'000;
    for (std::uint32_t i = 0; i < 2; ++i) {
      DeviceInfo device;
      device.ordinal = i;
      device.name = "NVIDIA Pretended GPU";
      device.uuid = "GPU-" + std::to_string(i);
      device.architecture = "sm_90";
      environment.gpus.push_back(device);
    }
    return environment;
  }
  [[nodiscard]] std::string hardware_name() const override { return "2xPretended"; }

  void begin_watch(const std::vector<std::string>& /*gpus*/) override {}
  void look() override {}
  std::vector<GpuDuring> end_watch() override {
    std::vector<GpuDuring> gpus;
    for (const char* uuid : {"GPU-0", "GPU-1"}) {
      gpus.push_back({.uuid = uuid,
                      .sm_clock_mhz = 1980,
                      .memory_clock_mhz = 2619,
                      .events = std::vector<std::string>{},
                      .new_errors = 0,
                      .temperature_c = 40});
    }
    machine_.meddle_gpus(role_, gpus);
    return gpus;
  }

 private:
  FakeMachine machine_;
  std::mt19937_64 random_;
  std::normal_distribution<double> normal_;
  double drift_ = 0;
  int launches_ = 0;
  Role role_ = Role::a;
};

}  // namespace arb::test
