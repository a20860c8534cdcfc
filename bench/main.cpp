// arbench: the command line, and nothing else. Letters are nccl-tests' where it has them.
#include <unistd.h>
#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <csignal>
#include <exception>
#include <filesystem>
#include <initializer_list>
#include <iostream>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compare.h"
#include "errors.h"
#include "options.h"
#include "text.h"
#include "verb_probe.h"
#include "verbs.h"

namespace {

using arb::CompareOptions;
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

// Options whose value is one of a few words.
template <class Value, class Target>
void add_choice(CLI::App& app, const std::string& name, Target& target, const std::string& help,
                const std::vector<std::pair<std::string, Value>>& choices) {
  app.add_option_function<std::string>(
      name,
      [&target, name, choices](const std::string& text) {
        std::vector<std::string> words;
        for (const auto& [word, value] : choices) {
          if (word == text) {
            target = value;
            return;
          }
          words.push_back(word);
        }
        throw CLI::ValidationError(name, "'" + text + "' is none of " + arb::enumerate(words));
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

// CLI11's words for what it could not read, as a sentence that says what would work.
std::string sentence_of(const CLI::ParseError& error, const CLI::App& app, const std::string& first) {
  std::vector<std::string> verbs;
  bool known = first.starts_with('-');
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; })) {
    known = known || verb->get_name() == first;
    if (!verb->get_group().empty()) verbs.push_back(verb->get_name());
  }
  if (!known) return "no verb '" + first + "'; there are " + arb::enumerate(verbs);
  std::string text = arb::one_line(error.what(), 400);
  constexpr std::string_view unread = "Could not convert: ";  // every number here is a count
  if (text.starts_with(unread)) text = text.substr(unread.size()) + " is no whole number from 0 on";
  return text + "; see arbench --help";
}

// Strict, where CLI11 takes -1 for the largest number.
void add_seed(CLI::App& app, std::uint64_t& seed, const char* help) {
  app.add_option_function<std::string>(
      "--seed",
      [&seed](const std::string& text) {
        const char* const end = text.data() + text.size();
        const auto [stop, error] = std::from_chars(text.data(), end, seed);
        if (error != std::errc() || stop != end)
          throw CLI::ValidationError("--seed", "'" + text + "' is no seed; write a whole number from 0 on");
      },
      help);
}

// Which cells, on which GPUs, from which files: the same letters for every verb that times.
void add_cell_options(CLI::App& app, RunOptions& options) {
  add_size(app, "-b,--minbytes", options.min_bytes, "smallest message in bytes (1K; default 1K)");
  add_size(app, "-e,--maxbytes", options.max_bytes, "largest message (default 256M on GPUs, 1M emulated)");
  add_size(app, "-f,--stepfactor", options.factor, "factor between sizes (default 2)");
  add_size(app, "-i,--stepbytes", options.step_bytes, "step between sizes instead of a factor");
  app.add_option("-n,--iters", options.samples,
                 "samples a cell: graph replays (pipelined) or calls (isolated)");
  app.add_option("-w,--warmup_iters", options.warmups, "the same before timing starts");
  app.add_option("-c,--check", options.check,
                 "0 does not check results; such rows have unchecked in flags (default 1)");
  add_list(app, "-d,--datatype", options.dtypes,
           "bfloat16, half, float, bf16, fp16, fp32, a list, or all (default bf16)");
  app.add_option("-g,--ngpus", options.gpus, "GPUs (default: all that reach each other)");
  add_list(app, "--contender", options.contenders, "contenders (default all; see arbench list)");
  app.add_option("--tuning", options.tuning,
                 "what `auto` chooses by: a file that arbench tune wrote here (default: a rule of its own)");
  add_list(app, "--toolkit", options.toolkits, "toolkits, such as 12.8 or 13.0-nvcc (default all, by NVRTC)");
  add_list(app, "--place", options.places, "out, in (default out)");
  add_list(app, "--mode", options.modes, "isolated, pipelined (default both)");
  add_list(app, "--cache", options.caches, "warm, cold (default warm)");
  app.add_option("--nccl", options.nccl_paths,
                 "a libnccl.so.2 or its folder; repeatable (default: what the loader finds)");
  app.add_option("--peer", options.peers,
                 "a peer library beside ours: torch (by python3), or torch=PYTHON; needs --world processes")
      ->allow_extra_args(false);
  app.add_option("--bundles", options.bundles,
                 "folder of kernel bundles (default: bundles/ beside the program)");
  app.add_option("--results", options.results, "where results folders go (default ./results)");
  add_choice<arb::World>(
      app, "--world", options.world,
      "threads: one process holds all ranks; processes: one each, as serving engines run (default threads)",
      {{"threads", arb::World::threads}, {"processes", arb::World::processes}});
  app.add_option(
      "--islands", options.island_ranks,
      "ranks of one island of GPUs that are close to each other (default: by NUMA node; emulated: half)");
  app.add_option("--deadline", options.deadline_s, "seconds that a wait on a device may take (default 30)");
  add_seed(app, options.seed, "of the inputs (default 1)");
}

bool is_one_of(const CLI::Option& option, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, option.get_name()) != names.end();
}

// What a comparison that is gone on with may be told anew: what becomes of its verdicts.
struct ResumedOutput {
  std::optional<arb::CompareFormat> format;
  std::optional<std::filesystem::path> results;
  bool strict = false;
};

// Throws UsageError on an option that would change what is measured.
ResumedOutput resumed_output(const CLI::App& compare, const CompareOptions& options) {
  ResumedOutput output;
  for (const CLI::Option* const option : compare.get_options()) {
    if (option->count() == 0) continue;
    if (is_one_of(*option, {"--json", "--markdown", "--format"})) {
      output.format = options.format;
    } else if (is_one_of(*option, {"--results"})) {
      output.results = options.run.results;
    } else if (is_one_of(*option, {"--strict"})) {
      output.strict = options.strict;
    } else if (!is_one_of(*option, {"--resume"})) {
      throw arb::UsageError("--resume goes on with the options that the comparison began with; leave out " +
                            option->get_name());
    }
  }
  return output;
}

void add_run_options(CLI::App& app, RunOptions& options) {
  add_cell_options(app, options);
  app.add_option("--launches", options.launches,
                 "repeat the whole run with so many fresh sets of workers (default 1)");
  app.add_flag("--emulate", options.emulate, "run on the emulated machine even where there are GPUs");
  app.add_option("--ranks", options.ranks, "ranks of the emulated machine (default 8)");
  add_choice<arb::Format>(
      app, "--format", options.format, "what standard output gets: console, json or csv (default console)",
      {{"console", arb::Format::console}, {"json", arb::Format::json}, {"csv", arb::Format::csv}});
  app.footer(
      "Google Benchmark's flags work too, but for how often a cell runs: --benchmark_filter=REGEX,\n"
      "--benchmark_list_tests, --benchmark_format=, --benchmark_out=, --benchmark_out_format=,\n"
      "--benchmark_counters_tabular=, --benchmark_context=KEY=VALUE.\n"
      "Exit status: 0 good, 1 usage, 2 wrong data or a hang, 5 the environment cannot do it, or "
      "interrupted.");
}

void add_compare_options(CLI::App& app, CompareOptions& options) {
  app.add_option(
         "--a", options.a,
         "one arm: toolkit=12.8, bundle=DIR, nccl=PATH, contender=NAME, arbench=PATH or NAME=VALUE (an "
         "environment variable); several with commas")
      ->allow_extra_args(false);
  app.add_option("--b", options.b, "the other arm")->allow_extra_args(false);
  app.add_option("sides", options.sides,
                 "instead of arms: two folders of `arbench run`, or two bundles with --static")
      ->expected(0, 2);
  CLI::Option* const as_compiled =
      app.add_flag("--static", options.static_only, "compare two bundles as compiled; needs no GPU");
  app.add_option("--blocks", options.blocks, "blocks of A, B and a placebo (default 12)");
  app.add_flag("--extend", options.extend,
               "plan one extension to twice the blocks, with half the alarm rate at each look");
  app.add_flag("--attribute", options.attribute,
               "cross compilers and NCCLs and name the cause of each change");
  app.add_flag("--strict", options.strict,
               "exit 4 where something stays INCONCLUSIVE, 5 where a gate is unchecked");
  app.add_option("--resume", options.resume, "go on with an interrupted comparison, by its folder alone");
  app.add_option("--history", options.history, "history of nightly runs, for the drift between two runs");
  app.add_flag_callback(
      "--markdown", [&options] { options.format = arb::CompareFormat::markdown; },
      "print markdown for a pull request");
  app.add_flag_callback(
      "--json", [&options] { options.format = arb::CompareFormat::json; }, "print strict JSON");
  add_choice<arb::CompareFormat>(app, "--format", options.format,
                                 "table, markdown, json, csv or smaller-is-better (default table)",
                                 {{"table", arb::CompareFormat::table},
                                  {"markdown", arb::CompareFormat::markdown},
                                  {"json", arb::CompareFormat::json},
                                  {"csv", arb::CompareFormat::csv},
                                  {"smaller-is-better", arb::CompareFormat::smaller_is_better}});
  add_cell_options(app, options.run);
  // What has no effect on compiled code is refused, so that nobody believes it had one.
  for (CLI::Option* const option : app.get_options()) {
    if (!is_one_of(*option, {"--static", "--help", "--bundles", "sides", "--json", "--markdown", "--format"}))
      as_compiled->excludes(option);
  }
  app.footer(
      "Cells are by default pipelined, 1K to 64M. Exit status: 0 good, 1 usage, 2 wrong data or a hang, 3 "
      "something\n"
      "is SLOWER, 4 INCONCLUSIVE with --strict, 5 no GPUs, a failed gate, or interrupted.");
}

void add_probe_options(CLI::App& app, arb::ProbeVerbOptions& options) {
  app.add_flag("--deep", options.probe.deep,
               "make experiments too: compile, launch, share memory, write every pair's peer path (60 s)");
  app.add_option("--python", options.probe.python,
                 "the Python program or environment that serves the model (default: the active one)");
  app.add_option("--what-if", options.what_if,
                 "what would change: toolkit=13.1, or with libraries toolkit=13.1,flashinfer=0.7.4");
  app.add_flag("--sources", options.probe.sources, "end with where each rule is from");
  app.add_flag("--json", options.json, "as JSON, see docs/probe.md");
  app.add_flag("--markdown", options.markdown,
               "as Markdown for a bug report, without host and user names and home paths");
  app.add_flag("--with-names", options.with_names, "leave the names in the Markdown");
  app.add_option("--box", options.probe.box, "a recorded box (root/ and box.json) instead of this machine");
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
  add_list(app, "--contender", run.contenders,
           "contenders (default all; see arbench list); auto is those that it may choose");
  app.add_option("--tuning", run.tuning, "what auto chooses by: a file that arbench tune wrote here");
  add_list(app, "--toolkit", run.toolkits, "toolkits, such as 12.8 or 13.0-nvcc (default all, by NVRTC)");
  app.add_option("-g,--ngpus", run.gpus, "GPUs (default: all that reach each other, or one)");
  app.add_option("--ranks", run.ranks,
                 "only so many ranks; they share GPUs where there are fewer (default: one a GPU, 8, 3, 5, "
                 "4, 2, and what has GPUs)");
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
  add_seed(app, run.seed, "other cases (default 1)");
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

void add_tune_options(CLI::App& app, arb::TuneOptions& options) {
  RunOptions& run = options.run;
  add_size(app, "-b,--minbytes", run.min_bytes, "smallest message in bytes (default 1K)");
  add_size(app, "-e,--maxbytes", run.max_bytes, "largest message (default 64M)");
  add_size(app, "-f,--stepfactor", run.factor, "factor between sizes (default 2)");
  add_list(app, "-d,--datatype", run.dtypes, "the type to time; choices serve all (default bf16)");
  app.add_option("-g,--ngpus", run.gpus, "GPUs (default: all that reach each other)");
  add_list(app, "--contender", run.contenders,
           "what to choose from, and NCCL to see it beside (default: all that can be chosen, and NCCL)");
  add_list(app, "--toolkit", run.toolkits, "the toolkit to tune with (default: the newest, by NVRTC)");
  app.add_option("--nccl", run.nccl_paths, "a libnccl.so.2 or its folder (default: what the loader finds)");
  app.add_option("--bundles", run.bundles, "folder of kernel bundles (default: bundles/ beside the program)");
  app.add_option("--results", run.results, "where results folders go (default ./results)");
  app.add_option("-o,--output", options.output, "where the tuning goes beside the results folder");
  app.add_option("--launches", options.launches,
                 "fresh launches that decide between the best few (default 3)");
  app.add_option("--islands", run.island_ranks, "ranks of one island of close GPUs (default: by NUMA node)");
  app.add_option("--deadline", run.deadline_s, "seconds that a wait on a device may take (default 30)");
  add_seed(app, run.seed, "of the inputs and of the order of cells (default 1)");
  app.footer(
      "docs/tuning.md says how it searches. Exit status: 0 good, 1 usage, 2 wrong data or a hang, 5 the "
      "environment\n"
      "cannot do it, or interrupted (nothing is kept).");
}

void add_limits_options(CLI::App& app, RunOptions& options) {
  app.add_option("-g,--ngpus", options.gpus, "GPUs (default: all that reach each other)");
  app.add_option("--bundles", options.bundles,
                 "folder of kernel bundles (default: bundles/ beside the program)");
  app.add_option("--results", options.results, "where results folders go (default ./results)");
  app.add_option("--deadline", options.deadline_s, "seconds that a wait on a device may take (default 30)");
  add_choice<arb::Format>(app, "--format", options.format,
                          "what standard output gets: console or json (default console)",
                          {{"console", arb::Format::console}, {"json", arb::Format::json}});
  app.footer(
      "Takes less than a minute; docs/limits.md says how to read it. A warning changes no exit status.\n"
      "Exit status: 0 good, 1 usage, 2 a hang, 5 the environment cannot do it, or interrupted.");
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

// `resumed`: the arguments are those of an interrupted comparison, with --resume FOLDER at their end.
int run_program(std::vector<std::string> arguments, const std::optional<ResumedOutput>& resumed = {}) {
  RunOptions run_options;
  CompareOptions compare_options;
  arb::VerifyOptions verify_options;
  arb::TuneOptions tune_options;
  RunOptions limits_options;
  arb::ListOptions list_options;
  arb::ProbeVerbOptions probe_options;
  std::string worker_config;
  // The record names the program, not where this machine has it.
  if (!arguments.empty()) arguments.front() = "arbench";
  if (arguments.size() > 1 && arguments[1] == "probe-child") {  // a process of the probe's own
    return arb::probe_child_verb({arguments.begin() + 2, arguments.end()});
  }
  for (arb::RunOptions* const options :
       {&run_options, &compare_options.run, &verify_options.run, &tune_options.run, &limits_options}) {
    options->command = command_line(arguments);
    options->probe_program = "/proc/self/exe";
  }
  // Without the program's name and --resume FOLDER.
  const std::ptrdiff_t left_out = resumed ? 2 : 0;
  if (std::ssize(arguments) > 1 + left_out)
    compare_options.arguments.assign(arguments.begin() + 1, arguments.end() - left_out);

  CLI::App app(
      "Allreduce on this machine: who is fastest, is it right, and how far from the hardware's limit.",
      "arbench");
  app.require_subcommand(1);
  app.set_version_flag("--version", "arbench " ARB_VERSION);
  CLI::App* run = app.add_subcommand("run", "time every contender (or emulate them where there are no GPUs)");
  add_run_options(*run, run_options);
  CLI::App* compare = app.add_subcommand(
      "compare", "is B faster than A? two toolkits, NCCLs, contenders, settings or finished runs");
  add_compare_options(*compare, compare_options);
  CLI::App* verify = app.add_subcommand(
      "verify",
      "prove every contender right: changing data, graph replay, delays, virtual ranks, or emulated");
  add_verify_options(*verify, verify_options);
  CLI::App* limits = app.add_subcommand(
      "limits",
      "what this machine itself can do: nodes, flags, bytes a second of every pair, and known illnesses");
  add_limits_options(*limits, limits_options);
  CLI::App* tune = app.add_subcommand(
      "tune", "search the fastest contender and launch shape of each size on this machine, for auto");
  add_tune_options(*tune, tune_options);
  CLI::App* list = app.add_subcommand("list", "contenders, kernel bundles, GPUs and NCCLs that are here");
  list->add_flag("--json", list_options.json, "as JSON");
  list->add_option("--bundles", list_options.bundles, "folder of kernel bundles");
  list->add_option("--nccl", list_options.nccl_paths, "a libnccl.so.2 or its folder; repeatable");
  CLI::App* probe = app.add_subcommand(
      "probe", "what stack this is, which allreduces it can run, and what an upgrade would open");
  add_probe_options(*probe, probe_options);
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
  const std::string first = ours.size() > 1 ? ours[1] : "-";
  std::vector<std::string> reversed(ours.rbegin(), ours.rend() - 1);
  try {
    app.parse(reversed);
  } catch (const CLI::Success& success) {
    return app.exit(success, std::cout, std::cerr);
  } catch (const CLI::ParseError& error) {
    std::cerr << "arbench: " << sentence_of(error, app, first) << '\n';
    return arb::status_of(arb::ExitCode::usage);
  }
  const arb::Terminal terminal{
      .out = std::cout, .err = std::cerr, .err_is_live = ::isatty(STDERR_FILENO) == 1};
  if (worker->parsed()) return arb::worker_verb(worker_config, terminal);
  if (!run->parsed() && !run_options.benchmark_flags.empty()) {
    std::cerr << "arbench: " << run_options.benchmark_flags.front() << " belongs to the verb run\n";
    return arb::status_of(arb::ExitCode::usage);
  }
  if (compare->parsed() && !compare_options.resume.empty() && !resumed) {
    // The command of the interrupted comparison is read again, as if it had been typed with --resume.
    std::vector<std::string> before = {"arbench"};
    ResumedOutput output;
    try {
      output = resumed_output(*compare, compare_options);
      for (std::string& argument : arb::arguments_to_resume(compare_options.resume))
        before.push_back(std::move(argument));
    } catch (const arb::UsageError& error) {
      std::cerr << "arbench: " << error.what() << '\n';
      return arb::status_of(arb::ExitCode::usage);
    } catch (const std::exception& error) {
      std::cerr << "arbench: " << error.what() << '\n';
      return arb::status_of(arb::ExitCode::invalid_environment);
    }
    before.insert(before.end(), {"--resume", compare_options.resume.string()});
    return run_program(std::move(before), output);
  }
  if (resumed) {
    compare_options.format = resumed->format.value_or(compare_options.format);
    compare_options.run.results = resumed->results.value_or(compare_options.run.results);
    compare_options.strict = compare_options.strict || resumed->strict;
  }
  const arb::Interrupt interrupt;
  // A reader that goes away (`arbench run | head`) must not cost the results.
  std::signal(SIGPIPE, SIG_IGN);
  if (probe->parsed()) return arb::probe_verb(probe_options, terminal);
  if (tune->parsed()) return arb::tune_verb(tune_options, terminal, interrupt);
  if (limits->parsed()) return arb::limits_verb(limits_options, terminal, interrupt);
  if (list->parsed()) return arb::list_verb(list_options, terminal, interrupt);
  if (compare->parsed()) return arb::compare_verb(compare_options, terminal, interrupt);
  if (verify->parsed()) return arb::verify_verb(verify_options, terminal, interrupt);
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
