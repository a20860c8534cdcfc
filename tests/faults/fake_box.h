// A box of two pretended GPUs: workers are fake_worker, bundles are made up, results go to a temporary folder.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>

#include "catalog.h"
#include "has.h"
#include "made_bundle.h"
#include "scratch.h"
#include "verbs.h"

namespace arb {

using test::has;

class FakeBox : public testing::Test {
 protected:
  // What a verb said and left.
  struct Result {
    int status = -1;
    std::string out;
    std::string err;
    std::filesystem::path folder;  // the one results folder, or empty
  };

  FakeBox() {
    for (const char* name : {"12.8-nvrtc", "13.0-nvrtc", "support"})
      test::make_bundle(scratch_.path() / "bundles", name);
    // No NCCL of this machine takes part; a test that wants one adds this file's name.
    test::write_file(nccl_path(), "");
  }

  [[nodiscard]] std::filesystem::path nccl_path() const { return scratch_.path() / "libnccl.so.2"; }
  [[nodiscard]] std::filesystem::path results_path() const { return scratch_.path() / "results"; }

  static const CatalogRow& first_of(Source source) {
    return *std::ranges::find(catalog(), source, &CatalogRow::source);
  }
  static std::string first_kernel() { return std::string(first_of(Source::kernel).contender); }
  static std::string first_nccl() { return std::string(first_of(Source::nccl).contender); }

  // A program to start workers from that behaves so (fake_worker.cpp).
  [[nodiscard]] std::filesystem::path worker(const std::string& behaviour) const {
    const std::filesystem::path program = scratch_.path() / ("fake-" + behaviour);
    test::write_file(program,
                     std::string("#!/bin/sh\nexec '") + ARB_FAKE_WORKER + "' " + behaviour + " \"$@\"\n");
    std::filesystem::permissions(program, std::filesystem::perms::owner_all);
    return program;
  }

  // What every verb on this box is given.
  [[nodiscard]] RunOptions box_options(const std::string& behaviour) const {
    RunOptions options;
    options.bundles = scratch_.path() / "bundles";
    options.results = results_path();
    options.deadline_s = 1;
    options.cell_allowance_s = 0;
    options.worker_program = worker(behaviour);
    return options;
  }

  // verb(terminal, interrupt) is one of verbs.h with its options. At most one results folder may be there then.
  template <class Verb>
  Result say(Verb verb) const {
    std::ostringstream out;
    std::ostringstream err;
    const Interrupt interrupt;
    Result result;
    result.status = verb(Terminal{.out = out, .err = err}, interrupt);
    result.out = out.str();
    result.err = err.str();
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(results_path(), error)) {
      EXPECT_FALSE(entry.path().filename().string().starts_with('.')) << "a temporary folder stayed behind";
      EXPECT_TRUE(result.folder.empty()) << entry.path();
      result.folder = entry.path();
    }
    return result;
  }

  // Runs `work`, which gives an exit status, in a process of its own and sends it a SIGINT once ready(). Gives that
  // status; -1 where a signal ended it.
  template <class Work, class Ready>
  static int interrupted(Work work, Ready ready) {
    const pid_t child = ::fork();
    if (child < 0) throw std::runtime_error("fork");
    if (child == 0) ::_exit(work());
    for (int i = 0; i < 500 && !ready(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    ::kill(child, SIGINT);
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  // Whether a worker that was told to hang does so: it says so in its log.
  [[nodiscard]] bool worker_hangs() const {
    std::error_code error;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(results_path(), error)) {
      if (entry.path().extension() == ".log" && has(test::read_file(entry.path()), "rank 0 waits"))
        return true;
    }
    return false;
  }

  test::Scratch scratch_;
};

}  // namespace arb
