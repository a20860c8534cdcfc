#include "probe/experiments.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>

#include "probe/child.h"
#include "probe/json.h"
#include "probe/trials.h"
#include "probe/version.h"
#include "text.h"

namespace arb::probe {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "arbench-probe-XXXXXX").string();
    if (::mkdtemp(name.data()) != nullptr) path_ = name;
  }
  ~Folder() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  [[nodiscard]] const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

// What torch is asked, and what the two-shot allreduce is tried with. Strict about what it prints: one line
// of words.
constexpr const char* torch_question = R"python(
import torch
parts = ["torch " + torch.__version__, "CUDA " + str(torch.version.cuda)]
code = torch.backends.cudnn.version()
parts.append("cuDNN code " + str(code))
try:
    parts.append("NCCL " + ".".join(str(n) for n in torch.cuda.nccl.version()))
except Exception as error:
    parts.append("NCCL not asked (" + str(error) + ")")
parts.append("architectures " + " ".join(torch.cuda.get_arch_list()))
parts.append("GPUs " + str(torch.cuda.device_count()))
print("; ".join(parts))
)python";

constexpr const char* torch_two_shot = R"python(
import os
import torch, torch.distributed as dist, torch.multiprocessing as mp
def rank_main(rank, path):
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", init_method="file://" + path, rank=rank, world_size=2, device_id=torch.device("cuda", rank))
    import torch.distributed._symmetric_memory as symm
    group = dist.group.WORLD.group_name
    data = symm.empty(65536, dtype=torch.bfloat16, device=torch.device("cuda", rank))
    handle = symm.rendezvous(data, group)
    for i in range(20):
        data.fill_(float(rank + 1 + i))
        torch.ops.symm_mem.two_shot_all_reduce_(data, "sum", group)
        torch.cuda.synchronize()
        assert bool((data == float(3 + 2 * i)).all()), "wrong sum"
    if rank == 0:
        print("two ranks, 20 calls, right sums; multicast address", "there" if handle.multicast_ptr else "none", flush=True)
    dist.destroy_process_group()
if __name__ == "__main__":
    folder = os.path.dirname(os.path.abspath(__file__))  # the probe removes it
    mp.spawn(rank_main, args=(os.path.join(folder, "store"),), nprocs=2)
)python";

struct Job {
  Experiment experiment;
  std::function<void(Experiment&, milliseconds left)> run;
  std::string blocked;  // why it cannot be run; empty: it can
};

// Runs what can be run on some threads until the budget is spent.
void run_jobs(std::vector<Job>& jobs, Clock::time_point until, unsigned most_threads) {
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    while (true) {
      const std::size_t i = next.fetch_add(1);
      if (i >= jobs.size()) return;
      Job& job = jobs[i];
      const auto left = std::chrono::duration_cast<milliseconds>(until - Clock::now());
      job.experiment.state = "not run";
      if (!job.blocked.empty()) {
        job.experiment.detail = job.blocked;
      } else if (left < milliseconds(1000)) {
        job.experiment.detail = "the time for all experiments was up";
      } else {
        const Clock::time_point begin = Clock::now();
        job.run(job.experiment, left);
        job.experiment.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
      }
    }
  };
  std::vector<std::thread> pool;
  const unsigned count = std::max(1U, std::min(most_threads, std::thread::hardware_concurrency()));
  for (unsigned i = 0; i < count; ++i) pool.emplace_back(work);
  for (std::thread& one : pool) one.join();
}

void conclude(Experiment& experiment, const ChildSaid& said) {
  const auto outcome = outcome_from_json(said.out);
  if (outcome && said.problem().empty()) {
    experiment.state = outcome->worked ? "worked" : "failed";
    experiment.detail = outcome->detail;
  } else {
    experiment.state = "failed";
    experiment.detail = said.problem().empty() ? "its process answered nonsense" : said.problem();
  }
}

std::string architecture_of(const GpuAnswer& gpu) {
  std::string digits = gpu.compute_capability.value_or("");
  std::erase(digits, '.');
  return digits.empty() ? std::string() : "sm_" + digits;
}

// Whether code for `architecture` runs on a GPU of `native`: sm_120a and sm_120f on sm_120.
bool runs_on(const std::string& architecture, const std::string& native) {
  std::string bare = architecture;
  if (!bare.empty() && (bare.back() == 'a' || bare.back() == 'f')) bare.pop_back();
  return !native.empty() && bare == native;
}

class Deep {
 public:
  Deep(const Box& box, Facts& facts, const DeepOptions& options)
      : box_(box), facts_(facts), options_(options), until_(Clock::now() + options.budget) {
    for (const Gpu& gpu : facts.gpus) {
      if (gpu.answer.ordinal) gpus_.push_back(&gpu);
    }
    if (gpus_.empty())
      no_gpu_ = box.answers().driver_why.empty() ? "the driver shows no GPU"
                                                 : "no GPU can be used: " + box.answers().driver_why;
  }

  std::vector<Experiment> run() {
    // PyTorch needs the longest and waits mostly: it runs beside the rest.
    std::vector<Job> torch = torch_jobs();
    std::thread beside([&] { run_jobs(torch, until_, 1); });
    std::vector<Job> compile = compile_jobs();
    run_jobs(compile, until_, 4);
    std::vector<Job> execute = execute_jobs();
    run_jobs(execute, until_, 4);
    // One at a time: they load the links between the GPUs.
    std::vector<Job> peers = peer_jobs();
    run_jobs(peers, until_, 2);
    beside.join();
    std::vector<Experiment> all;
    for (auto* const jobs : {&compile, &execute, &peers, &torch}) {
      for (Job& job : *jobs) all.push_back(std::move(job.experiment));
    }
    for (Experiment& pair : pairs_) all.push_back(std::move(pair));
    conclude_facts(all);
    return all;
  }

 private:
  void ask_child(Experiment& experiment, std::vector<std::string> task, milliseconds deadline,
                 std::map<std::string, std::string> environment = {}) const {
    task.insert(task.begin(), "probe-child");
    conclude(experiment, run_child({.program = options_.program,
                                    .arguments = std::move(task),
                                    .environment = std::move(environment),
                                    .deadline = deadline}));
  }

  std::vector<std::string> architectures() const {
    std::vector<std::string> list = {"sm_120", "sm_120a", "sm_120f"};
    for (const Gpu* gpu : gpus_) {
      const std::string native = architecture_of(gpu->answer);
      if (!native.empty() && std::ranges::find(list, native) == list.end()) list.push_back(native);
    }
    return list;
  }

  std::vector<Job> compile_jobs() {
    std::vector<Job> jobs;
    const fs::path source = folder_.path() / "probe.cu";
    if (!folder_.path().empty()) std::ofstream(source) << trial_kernels();
    const auto add = [&](const std::string& compiler, const std::string& architecture,
                         const std::string& blocked, auto make) {
      const fs::path target = folder_.path() / fmt::format("{}-{}.cubin", jobs.size(), architecture);
      Job job;
      job.experiment.id = fmt::format("compile {} {}", architecture, compiler);
      job.experiment.fact = "deep." + architecture;
      job.blocked = folder_.path().empty() ? "no temporary folder can be made" : blocked;
      job.run = [this, make, architecture, target, compiler](Experiment& experiment, milliseconds left) {
        if (is_stuck(compiler)) {
          experiment.detail = "its compiler did not end before";
          return;
        }
        const milliseconds deadline = std::min(left, options_.compile_deadline);
        const Clock::time_point begin = Clock::now();
        make(experiment, target, deadline);
        if (Clock::now() - begin >= deadline) {
          const std::lock_guard lock(mutex_);
          stuck_.insert(compiler);
        }
        std::error_code error;
        if (experiment.state != "worked" || !fs::exists(target, error)) return;
        const std::lock_guard lock(mutex_);
        cubins_.push_back({architecture, compiler, target.string()});
      };
      jobs.push_back(std::move(job));
    };
    std::set<std::string> told;
    for (const Nvcc& nvcc : facts_.nvccs) {
      const std::string compiler = (nvcc.version.empty() ? nvcc.path : nvcc.version) + "-nvcc";
      if (!told.insert(compiler).second) continue;
      for (const std::string& architecture : architectures()) {
        add(compiler, architecture, nvcc.runs ? "" : nvcc.path + " has no run bit",
            [nvcc, architecture, source](Experiment& experiment, const fs::path& target,
                                         milliseconds deadline) {
              const ChildSaid said = run_child(
                  {.program = nvcc.path,
                   .arguments = {"-cubin", "-arch=" + architecture, "-o", target.string(), source.string()},
                   .environment = {},
                   .deadline = deadline});
              experiment.state = said.problem().empty() ? "worked" : "failed";
              experiment.detail = said.problem().empty() ? "compiled" : said.problem();
            });
      }
    }
    for (const Library& library : facts_.libraries) {
      if (library.kind != "libnvrtc" || library.path.find(".alt.") != std::string::npos) continue;
      const std::string compiler = (library.cuda.empty() ? library.path : library.cuda) + "-nvrtc";
      if (!told.insert(compiler).second) continue;
      for (const std::string& architecture : architectures()) {
        add(compiler, architecture, "",
            [this, library, architecture](Experiment& experiment, const fs::path& target,
                                          milliseconds deadline) {
              const std::string folder = fs::path(library.path).parent_path().string();
              const std::string others = box_.variable("LD_LIBRARY_PATH").value_or("");
              ask_child(
                  experiment, {"nvrtc", library.path, architecture, target.string()}, deadline,
                  {{"LD_LIBRARY_PATH", others.empty() ? folder : fmt::format("{}:{}", folder, others)}});
            });
      }
    }
    if (jobs.empty()) {
      Job none;
      none.experiment.id = "compile sm_120, sm_120a, sm_120f";
      none.blocked = "neither an nvcc nor an NVRTC was found";
      jobs.push_back(std::move(none));
    }
    return jobs;
  }

  bool is_stuck(const std::string& compiler) {
    const std::lock_guard lock(mutex_);
    return stuck_.contains(compiler);
  }

  // A cubin that runs on this GPU, or nothing.
  [[nodiscard]] std::string cubin_for(const Gpu& gpu) const {
    for (const auto& one : cubins_) {
      if (runs_on(one.architecture, architecture_of(gpu.answer))) return one.file;
    }
    return {};
  }

  std::vector<Job> execute_jobs() {
    std::vector<Job> jobs;
    for (const auto& cubin : cubins_) {
      const auto match = std::ranges::find_if(
          gpus_, [&](const Gpu* gpu) { return runs_on(cubin.architecture, architecture_of(gpu->answer)); });
      Job job;
      job.experiment.id = fmt::format("run {} {}", cubin.architecture, cubin.compiler);
      job.experiment.fact = "deep." + cubin.architecture;
      if (match == gpus_.end()) {
        job.blocked = no_gpu_.empty() ? "no GPU here is of that architecture" : no_gpu_;
      } else {
        const std::uint32_t ordinal = *(*match)->answer.ordinal;
        job.run = [this, file = cubin.file, ordinal](Experiment& experiment, milliseconds left) {
          ask_child(experiment, {"run", file, std::to_string(ordinal)}, std::min(left, milliseconds(15'000)));
        };
      }
      jobs.push_back(std::move(job));
    }
    Job cluster;
    cluster.experiment.id = "launch a thread-block cluster";
    cluster.experiment.fact = "deep.cluster";
    const std::string file = gpus_.empty() ? "" : cubin_for(*gpus_.front());
    const auto capability =
        gpus_.empty() ? std::nullopt : Version::parse(gpus_.front()->answer.compute_capability.value_or(""));
    if (!no_gpu_.empty()) {
      cluster.blocked = no_gpu_;
    } else if (capability && capability->part(0) < 9) {
      cluster.blocked = "compute capability 9.0 is the first with clusters";
    } else if (file.empty()) {
      cluster.blocked = "no compiler here made code for this GPU";
    } else {
      cluster.run = [this, file](Experiment& experiment, milliseconds left) {
        ask_child(experiment, {"cluster", file, std::to_string(*gpus_.front()->answer.ordinal)},
                  std::min(left, milliseconds(15'000)));
      };
    }
    jobs.push_back(std::move(cluster));
    for (const bool vmm : {true, false}) {
      Job job;
      job.experiment.id = vmm ? "VMM export and import" : "IPC between processes";
      job.experiment.fact = vmm ? "deep.vmm" : "deep.ipc";
      job.blocked = no_gpu_;
      if (no_gpu_.empty()) {
        const std::string first = std::to_string(*gpus_.front()->answer.ordinal);
        const std::string second =
            std::to_string(*gpus_[gpus_.size() > 1 && peers_claimed() ? 1 : 0]->answer.ordinal);
        job.run = [this, vmm, first, second](Experiment& experiment, milliseconds left) {
          ask_child(experiment, {vmm ? "vmm" : "ipc", first, second}, std::min(left, milliseconds(15'000)));
        };
      }
      jobs.push_back(std::move(job));
    }
    return jobs;
  }

  [[nodiscard]] bool peers_claimed() const {
    const auto found = facts_.map.find("p2p.all");
    return found != facts_.map.end() && found->second.value == "true";
  }

  // One job a source GPU; its pairs go into pairs_.
  std::vector<Job> peer_jobs() {
    std::vector<Job> jobs;
    const auto whole = [&](const std::string& why) {
      Job job;
      job.experiment.id = "every pair's peer path";
      job.blocked = why;
      jobs.push_back(std::move(job));
    };
    if (!no_gpu_.empty()) {
      whole(no_gpu_);
      return jobs;
    }
    if (gpus_.size() < 2) {
      whole("there is one GPU");
      return jobs;
    }
    for (const Gpu* from : gpus_) {
      std::vector<std::uint32_t> targets;
      for (const Gpu* to : gpus_) {
        if (to == from) continue;
        const bool claimed = std::ranges::any_of(facts_.pairs, [&](const PairAnswer& pair) {
          return pair.from == from->answer.index && pair.to == to->answer.index && pair.driver_access == true;
        });
        if (claimed) {
          targets.push_back(*to->answer.ordinal);
        } else {
          pairs_.push_back({.id = fmt::format("peer path {}>{}", *from->answer.ordinal, *to->answer.ordinal),
                            .fact = "deep.p2p",
                            .state = "not run",
                            .detail = "the driver does not offer it",
                            .seconds = 0});
        }
      }
      if (targets.empty()) continue;
      Job job;
      job.experiment.id = fmt::format("peer paths from {}", *from->answer.ordinal);
      job.run = [this, from, targets](Experiment& experiment, milliseconds left) {
        peers_of(experiment, *from, targets, std::min(left, milliseconds(20'000)));
      };
      jobs.push_back(std::move(job));
    }
    if (jobs.empty()) whole("the driver offers no peer access between any two GPUs");
    return jobs;
  }

  // A pair that hangs costs its process; the pairs after it get a new one.
  void peers_of(Experiment& experiment, const Gpu& from, std::vector<std::uint32_t> targets,
                milliseconds budget) {
    const std::string source = std::to_string(*from.answer.ordinal);
    const std::string cubin = cubin_for(from);
    const Clock::time_point until = Clock::now() + budget;
    std::size_t good = 0;
    std::size_t tried = 0;
    while (!targets.empty()) {
      const auto left = std::chrono::duration_cast<milliseconds>(until - Clock::now());
      std::vector<std::string> task = {"probe-child", "p2p", source, cubin.empty() ? "-" : cubin};
      for (const std::uint32_t target : targets) task.push_back(std::to_string(target));
      const ChildSaid said = left < milliseconds(500)
                                 ? ChildSaid{}
                                 : run_child({.program = options_.program,
                                              .arguments = task,
                                              .environment = {},
                                              .deadline = std::min(left, options_.pair_deadline)});
      std::set<std::uint32_t> done;
      std::optional<std::uint32_t> begun;
      for (const std::string& row : split_list(said.out, '\n')) {
        const std::vector<std::string> cells = split_list(row, ' ');
        if (cells.size() < 2) continue;
        const auto number = Version::parse(cells[1]);
        if (!number) continue;
        const auto target = static_cast<std::uint32_t>(number->part(0));
        if (cells[0] == "begin") begun = target;
        if (cells[0] != "worked" && cells[0] != "failed") continue;
        done.insert(target);
        begun.reset();
        add_pair(source, target, cells[0],
                 row.substr(std::min(row.size(), cells[0].size() + cells[1].size() + 2)));
        good += cells[0] == "worked" ? 1U : 0U;
        ++tried;
      }
      if (begun) {
        done.insert(*begun);
        add_pair(source, *begun, "failed", said.problem());
        ++tried;
      }
      if (done.empty()) {
        for (const std::uint32_t target : targets)
          add_pair(source, target, left < milliseconds(500) ? "not run" : "failed",
                   left < milliseconds(500) ? "the time for its GPU was up"
                   : said.problem().empty() ? "its process said nothing of it"
                                            : said.problem());
        tried += left < milliseconds(500) ? 0U : targets.size();
        break;
      }
      std::erase_if(targets, [&](std::uint32_t target) { return done.contains(target); });
    }
    experiment.state = tried == 0 ? "not run" : good == tried ? "worked" : "failed";
    experiment.detail = fmt::format("{} of {} pairs delivered what was written", good, tried);
  }

  void add_pair(const std::string& source, std::uint32_t target, const std::string& state,
                const std::string& detail) {
    const std::lock_guard lock(mutex_);
    pairs_.push_back({.id = fmt::format("peer path {}>{}", source, target),
                      .fact = "deep.p2p",
                      .state = state,
                      .detail = detail,
                      .seconds = 0});
  }

  std::vector<Job> torch_jobs() {
    std::vector<Job> jobs;
    const std::string& python = facts_.python.program;
    const bool has_torch = find_package(facts_, "torch") != nullptr;
    const std::string why = python.empty() ? "no Python was found"
                            : has_torch    ? ""
                                           : "PyTorch is not in this Python";
    Job ask;
    ask.experiment.id = "import torch and ask it";
    ask.blocked = why;
    ask.run = [python](Experiment& experiment, milliseconds left) {
      const ChildSaid said = run_child({.program = python,
                                        .arguments = {"-c", torch_question},
                                        .environment = {},
                                        .deadline = std::min(left, milliseconds(40'000))});
      experiment.state = said.problem().empty() ? "worked" : "failed";
      experiment.detail = said.problem().empty() ? one_line(said.out, 300) : said.problem();
    };
    jobs.push_back(std::move(ask));
    Job two_shot;
    two_shot.experiment.id = "torch two-shot allreduce";
    two_shot.experiment.fact = "deep.torch_two_shot";
    two_shot.blocked = !why.empty()       ? why
                       : !no_gpu_.empty() ? no_gpu_
                       : gpus_.size() < 2 ? "there is one GPU"
                       : !peers_claimed() ? "the GPUs do not offer peer access"
                                          : "";
    two_shot.run = [this, python](Experiment& experiment, milliseconds left) {
      const fs::path script = folder_.path() / "two_shot.py";
      std::ofstream(script) << torch_two_shot;
      const ChildSaid said = run_child(
          {.program = python,
           .arguments = {script.string()},
           // Two-shot needs no multicast, and making multicast objects is no experiment for a shared host.
           .environment = {{"TORCH_SYMM_MEM_DISABLE_MULTICAST", "1"}, {"NCCL_NVLS_ENABLE", "0"}},
           .deadline = std::min(left, milliseconds(50'000))});
      experiment.state = said.problem().empty() ? "worked" : "failed";
      experiment.detail = said.problem().empty() ? one_line(said.out, 200) : said.problem();
    };
    jobs.push_back(std::move(two_shot));
    return jobs;
  }

  // A fact is true when something worked and nothing failed; false when something failed, except that one
  // compiler is enough for an architecture.
  void conclude_facts(const std::vector<Experiment>& all) {
    std::map<std::string, std::pair<bool, bool>> by_fact;  // worked, failed
    for (const Experiment& one : all) {
      if (one.fact.empty()) continue;
      by_fact[one.fact].first |= one.state == "worked";
      by_fact[one.fact].second |= one.state == "failed";
    }
    for (const auto& [fact, said] : by_fact) {
      const bool any_is_enough = fact.starts_with("deep.sm_");
      if (any_is_enough ? said.first : said.first && !said.second) {
        set_known(facts_.map, fact, "true");
      } else if (said.second) {
        set_known(facts_.map, fact, "false");
      } else {
        set_unknown(facts_.map, fact, "its experiment was not run");
      }
    }
  }

  struct Cubin {
    std::string architecture;
    std::string compiler;
    std::string file;
  };
  const Box& box_;
  Facts& facts_;
  const DeepOptions& options_;
  Clock::time_point until_;
  std::vector<const Gpu*> gpus_;
  std::string no_gpu_;
  Folder folder_;
  std::mutex mutex_;
  std::vector<Cubin> cubins_;
  std::set<std::string> stuck_;  // compilers
  std::vector<Experiment> pairs_;
};

}  // namespace

std::vector<Experiment> run_experiments(const Box& box, Facts& facts, const DeepOptions& options) {
  return Deep(box, facts, options).run();
}

}  // namespace arb::probe
