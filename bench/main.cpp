// arbench: the command line, and nothing else. Letters are nccl-tests' where it has them.
#include <unistd.h>
#include <CLI/CLI.hpp>
#include <csignal>
#include <exception>
#include <iostream>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "errors.h"
#include "options.h"
#include "text.h"
#include "verbs.h"

namespace {

using arb::RunOptions;

// Options whose value is a size such as 64M.
CLI::Option* add_size(CLI::App& app, const std::string& names, std::optional<std::uint64_t>& target,
                      const std::string& help) {
  return app.add_option_function<std::string>(
      names,
      [&target, names](const std::string& text) {
        target = arb::size_from(text);
        if (!target)
          throw CLI::ValidationError(names, "'" + text + "' is no size; write 1024, 1K, 64M or 1G");
      },
      help);
}

CLI::Option* add_list(CLI::App& app, const std::string& names, std::vector<std::string>& target,
                      const std::string& help) {
  return app.add_option_function<std::vector<std::string>>(
      names,
      [&target](const std::vector<std::string>& texts) {
        for (const std::string& text : texts) {
          for (std::string& part : arb::split_list(text)) target.push_back(std::move(part));
        }
      },
      help);
}

void add_run_options(CLI::App& app, RunOptions& options) {
  add_size(app, "-b,--minbytes", options.min_bytes, "smallest message in bytes (1K; default 1K)");
  add_size(app, "-e,--maxbytes", options.max_bytes, "largest message (default 256M on GPUs, 1M emulated)");
  add_size(app, "-f,--stepfactor", options.factor, "factor between sizes (default 2)");
  add_size(app, "-i,--stepbytes", options.step_bytes, "step between sizes instead of a factor");
  app.add_option("-n,--iters", options.samples,
                 "samples a cell: graph replays (pipelined) or calls (isolated)");
  app.add_option("-w,--warmup_iters", options.warmups, "the same before timing starts");
  app.add_option("-c,--check", options.check,
                 "0 does not check results; such rows say unchecked (default 1)");
  add_list(app, "-d,--datatype", options.dtypes,
           "bfloat16, half, float, bf16, fp16, fp32, a list, or all (default bf16)");
  app.add_option("-g,--ngpus", options.gpus, "GPUs (default: all that reach each other)");
  add_list(app, "--contender", options.contenders, "contenders (default all; see arbench list)");
  add_list(app, "--toolkit", options.toolkits, "toolkits, such as 12.8 or 13.0-nvcc (default all, by NVRTC)");
  add_list(app, "--place", options.places, "out, in (default out)");
  add_list(app, "--mode", options.modes, "isolated, pipelined (default both)");
  add_list(app, "--cache", options.caches, "warm, cold (default warm)");
  app.add_option("--launches", options.launches,
                 "repeat the whole run with so many fresh sets of workers (default 1)");
  app.add_option("--nccl", options.nccl_paths,
                 "a libnccl.so.2 or its folder; repeatable (default: what the loader finds)");
  app.add_option("--bundles", options.bundles,
                 "folder of kernel bundles (default: bundles/ beside the program)");
  app.add_option("--results", options.results, "where results folders go (default ./results)");
  app.add_option("--world", options.world,
                 "threads: one process holds all ranks; processes: one each, as serving engines run (default "
                 "threads)")
      ->transform(CLI::CheckedTransformer(std::map<std::string, arb::World>{
          {"threads", arb::World::threads}, {"processes", arb::World::processes}}));
  app.add_flag("--emulate", options.emulate, "run on the emulated machine even where there are GPUs");
  app.add_option("--ranks", options.ranks, "ranks of the emulated machine (default 8)");
  app.add_option("--deadline", options.deadline_s, "seconds that a wait on a device may take (default 30)");
  app.add_option("--seed", options.seed, "of the inputs (default 1)");
  app.add_option("--format", options.format,
                 "what standard output gets: console, json or csv (default console)")
      ->transform(CLI::CheckedTransformer(std::map<std::string, arb::Format>{
          {"console", arb::Format::console}, {"json", arb::Format::json}, {"csv", arb::Format::csv}}));
  app.footer(
      "Google Benchmark's flags work too, but for how often a cell runs: --benchmark_filter=REGEX,\n"
      "--benchmark_list_tests, --benchmark_format=, --benchmark_out=, --benchmark_out_format=,\n"
      "--benchmark_counters_tabular=, --benchmark_context=KEY=VALUE.\n"
      "Exit status: 0 good, 1 usage, 2 wrong data or a hang, 5 the environment cannot do it, or "
      "interrupted.");
}

void add_verify_options(CLI::App& app, arb::VerifyOptions& options) {
  app.add_option_function<std::string>(
      "--for",
      [&options](const std::string& text) {
        options.for_s = arb::seconds_from(text);
        if (!options.for_s || *options.for_s == 0)
          throw CLI::ValidationError("--for", "'" + text + "' is no time; write 90s, 2m or 1h");
      },
      "how long to verify: 90s, 2m, 1h (default: 100000 calls of each contender on all GPUs, fewer on "
      "virtual "
      "ranks)");
  RunOptions& run = options.run;
  add_list(app, "--contender", run.contenders, "contenders (default all; see arbench list)");
  add_list(app, "--toolkit", run.toolkits, "toolkits, such as 12.8 or 13.0-nvcc (default all, by NVRTC)");
  app.add_option("-g,--ngpus", run.gpus, "GPUs (default: all that reach each other, or one)");
  app.add_option(
      "--ranks", run.ranks,
      "only so many ranks; they share GPUs where there are fewer (default: one a GPU, then 8, 3 and 5)");
  app.add_option_function<std::string>(
      "--case",
      [&options](const std::string& text) {
        if (text.find(',') != std::string::npos) {
          options.gate_case = text;
          return;
        }
        std::uint64_t number = 0;
        if (!CLI::detail::lexical_cast(text, number))
          throw CLI::ValidationError("--case", "'" + text + "' is no case; a failure names its own");
        options.case_number = number;
      },
      "only that case, as a failure names it");
  app.add_option("--seed", run.seed, "other cases (default 1)");
  app.add_option("--nccl", run.nccl_paths,
                 "a libnccl.so.2 or its folder; repeatable (default: what the loader finds)");
  app.add_option("--bundles", run.bundles, "folder of kernel bundles (default: bundles/ beside the program)");
  app.add_option("--results", run.results, "where results folders go (default ./results)");
  app.add_flag("--emulate", run.emulate, "on the emulated machine even where there are GPUs");
  app.add_option("--deadline", run.deadline_s, "seconds that a wait on a device may take (default 30)");
  app.footer(
      "Exit status: 0 good, 1 usage, 2 wrong data or a hang, 5 the environment cannot do it, or "
      "interrupted.");
}

std::string command_line(const std::vector<std::string>& arguments) {
  std::string text;
  for (const std::string& argument : arguments) {
    if (!text.empty()) text += ' ';
    const bool plain = argument.find_first_not_of(
                           "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                           "-_=+,.:/@%^") == std::string::npos;
    text += plain && !argument.empty() ? argument : "'" + argument + "'";
  }
  return text;
}

int run_program(std::vector<std::string> arguments) {
  RunOptions run_options;
  arb::VerifyOptions verify_options;
  arb::ListOptions list_options;
  std::string worker_config;
  // The record names the program, not where this machine has it.
  if (!arguments.empty()) arguments.front() = "arbench";
  run_options.command = command_line(arguments);

  CLI::App app(
      "Allreduce on this machine: who is fastest, is it right, and how far from the hardware's limit.",
      "arbench");
  app.require_subcommand(1);
  CLI::App* run = app.add_subcommand("run", "time every contender (or emulate them where there are no GPUs)");
  add_run_options(*run, run_options);
  CLI::App* verify = app.add_subcommand(
      "verify",
      "prove every contender right: changing data, graph replay, delays, virtual ranks, or emulated");
  add_verify_options(*verify, verify_options);
  CLI::App* list = app.add_subcommand("list", "contenders, kernel bundles, GPUs and NCCLs that are here");
  list->add_flag("--json", list_options.json, "as JSON");
  list->add_option("--bundles", list_options.bundles, "folder of kernel bundles");
  list->add_option("--nccl", list_options.nccl_paths, "a libnccl.so.2 or its folder; repeatable");
  CLI::App* worker = app.add_subcommand("worker", "");
  worker->group("");  // hidden: the coordinator starts it
  worker->add_option("--config", worker_config)->required();

  if (arguments.size() < 2) {
    std::cout << app.help();
    return arb::status_of(arb::ExitCode::usage);
  }
  // Google Benchmark's flags are not CLI11's.
  std::vector<std::string> ours;
  for (std::string& argument : arguments) {
    if (argument.starts_with("--benchmark_")) {
      run_options.benchmark_flags.push_back(std::move(argument));
    } else {
      ours.push_back(std::move(argument));
    }
  }
  std::vector<std::string> reversed(ours.rbegin(), ours.rend() - 1);
  try {
    app.parse(reversed);
  } catch (const CLI::Success& success) {
    return app.exit(success, std::cout, std::cerr);
  } catch (const CLI::ParseError& error) {
    std::cerr << "arbench: " << arb::one_line(error.what(), 400) << "; see arbench --help\n";
    return arb::status_of(arb::ExitCode::usage);
  }
  const arb::Terminal terminal{
      .out = std::cout, .err = std::cerr, .err_is_live = ::isatty(STDERR_FILENO) == 1};
  if (worker->parsed()) return arb::worker_verb(worker_config, terminal);
  if (!run->parsed() && !run_options.benchmark_flags.empty()) {
    std::cerr << "arbench: " << run_options.benchmark_flags.front() << " belongs to the verb run\n";
    return arb::status_of(arb::ExitCode::usage);
  }
  const arb::Interrupt interrupt;
  // A reader that goes away (`arbench run | head`) must not cost the results.
  std::signal(SIGPIPE, SIG_IGN);
  if (list->parsed()) return arb::list_verb(list_options, terminal, interrupt);
  if (verify->parsed()) {
    verify_options.run.command = run_options.command;
    return arb::verify_verb(verify_options, terminal, interrupt);
  }
  return arb::run_verb(run_options, terminal, interrupt);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run_program({argv, argv + argc});
  } catch (const std::exception& error) {
    std::cerr << "arbench: " << error.what() << '\n';
    return arb::status_of(arb::ExitCode::invalid_environment);
  }
}
