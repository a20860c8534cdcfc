// What a comparison needs from a machine: fresh workers for an arm, and a look at the GPUs while they run.
// Tests put a host of their own here.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend.h"
#include "bundle.h"
#include "comparison_arm.h"
#include "comparison_record.h"
#include "coordinator/interrupt.h"
#include "environment.h"
#include "gpu_watch.h"
#include "options.h"
#include "plan.h"
#include "session.h"

namespace arb {

// One role of the comparison, as its workers found it.
struct PreparedArm {
  Machine machine;  // with the arm's one bundle and one NCCL
  ArmFound found;
};

// Fresh workers, and what they themselves say they run on.
struct Launched {
  std::unique_ptr<Backend> backend;
  std::string driver;
  std::vector<std::string> gpus;  // UUIDs by rank; empty texts where one is not known
};

class ArmHost {
 public:
  ArmHost() = default;
  ArmHost(const ArmHost&) = delete;
  ArmHost& operator=(const ArmHost&) = delete;
  ArmHost(ArmHost&&) = delete;
  ArmHost& operator=(ArmHost&&) = delete;
  virtual ~ArmHost() = default;

  // Starts the workers of a role once, so that what cannot work is known before anything is measured. Throws
  // UsageError, EnvironmentError, WorkerLost, Interrupted.
  virtual PreparedArm prepare(Role role, const ArmSpec& arm) = 0;
  // A fresh set of workers for a role that was prepared. Throws the same.
  virtual Launched launch(Role role) = 0;
  // What the role's compiler made of the function that a cell runs; empty where there is no such function.
  [[nodiscard]] virtual std::optional<BundleFunction> function(Role role, const Cell& cell) const = 0;
  // What was prepared so far, all arms together.
  [[nodiscard]] virtual Environment environment() const = 0;
  // "2xH200".
  [[nodiscard]] virtual std::string hardware_name() const = 0;
  // The GPUs of a launch by their UUIDs: begin, look now and then, end.
  virtual void begin_watch(const std::vector<std::string>& gpus) = 0;
  virtual void look() = 0;
  virtual std::vector<GpuDuring> end_watch() = 0;
};

// Makes a host; called once, after the command line was checked and the results folder was tried.
using HostMaker = std::function<std::unique_ptr<ArmHost>(const std::string& log_folder, const Say& say)>;

// Real GPUs behind workers.
class GpuHost final : public ArmHost {
 public:
  GpuHost(const RunOptions& options, std::string log_folder, const Interrupt& interrupt, Say say);

  PreparedArm prepare(Role role, const ArmSpec& arm) override;
  Launched launch(Role role) override;
  [[nodiscard]] std::optional<BundleFunction> function(Role role, const Cell& cell) const override;
  [[nodiscard]] Environment environment() const override;
  [[nodiscard]] std::string hardware_name() const override;
  void begin_watch(const std::vector<std::string>& gpus) override;
  void look() override;
  std::vector<GpuDuring> end_watch() override;

 private:
  RunOptions options_;
  std::string log_folder_;
  const Interrupt& interrupt_;
  Say say_;
  std::map<Role, std::unique_ptr<Session>> sessions_;
  std::unique_ptr<GpuWatch> watch_;  // of the launch under way
};

}  // namespace arb
