// Peer libraries in a run: who is started, with what, and what a peer that is not there does to the others.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "coordinator/peer_files.h"
#include "fake_box.h"
#include "results_folder.h"

namespace arb {
namespace {

namespace fs = std::filesystem;

class FakePeer : public FakeBox {
 protected:
  // The fake worker is also the Python; what a build puts beside arbench is beside it.
  FakePeer() {
    for (const CatalogRow& row : catalog()) {
      if (row.source == Source::peer) test::write_file(scratch_.path() / "peers" / row.peer_script, "");
    }
    test::write_file(scratch_.path() / "lib" / "libarb_worker.so", "");
  }

  static std::string peer() { return std::string(first_of(Source::peer).peer); }
  static std::vector<std::string> contenders() {
    std::vector<std::string> names;
    for (const CatalogRow& row : catalog()) {
      if (row.peer == peer()) names.emplace_back(row.contender);
    }
    return names;
  }

  // One kernel of ours and all contenders of one peer.
  [[nodiscard]] RunOptions options(const std::string& behaviour) const {
    RunOptions options = box_options("good");
    options.min_bytes = 1024;
    options.max_bytes = 4096;
    options.samples = 9;
    options.modes = {"pipelined"};
    options.toolkits = {"13.0"};
    options.world = World::processes;
    options.contenders = contenders();
    options.contenders.push_back(first_kernel());
    options.peers = {peer() + "=" + worker(behaviour).string()};
    return options;
  }
  [[nodiscard]] Result run(const RunOptions& options) const {
    return say([&](const Terminal& terminal, const Interrupt& interrupt) {
      return run_verb(options, terminal, interrupt);
    });
  }
  [[nodiscard]] static bool started(const Result& result) {
    return fs::exists(result.folder / ("worker-" + peer() + "-rank0.log"));
  }
};

TEST_F(FakePeer, ItRunsBesideOursAProcessARank) {
  const Result result = run(options("talks"));
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_TRUE(started(result));
  EXPECT_TRUE(fs::exists(result.folder / ("worker-" + peer() + "-rank1.log")));
  const std::vector<Row> rows = read_results(result.folder).rows;
  EXPECT_EQ(rows.size(), 3 * (contenders().size() + 1));
  std::size_t of_peers = 0;
  for (const Row& row : rows) {
    EXPECT_TRUE(row.timed()) << row->contender;
    EXPECT_EQ(row->world, "processes");
    if (row->contender == first_kernel()) continue;
    ++of_peers;
    EXPECT_EQ(row->toolkit + row->compiler + row->nccl, "");
  }
  EXPECT_EQ(of_peers, 3 * contenders().size());
  EXPECT_TRUE(has(result.out, " " + peer() + " ")) << result.out;
}

TEST_F(FakePeer, NobodyIsStartedForNoCell) {
  RunOptions asked = options("talks");
  asked.contenders = {first_kernel()};
  const Result result = run(asked);
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_FALSE(started(result));
}

TEST_F(FakePeer, WithoutItsOptionItIsRefusedByNameAndElseNotMissed) {
  RunOptions asked = options("talks");
  asked.peers = {};
  const Result named = run(asked);
  EXPECT_EQ(named.status, 1);
  EXPECT_TRUE(has(named.err, "--peer " + peer())) << named.err;
  asked.contenders = {};
  asked.nccl_paths = {nccl_path().string()};
  const Result all = run(asked);
  EXPECT_EQ(all.status, 0) << all.err;
  EXPECT_FALSE(has(all.err, contenders().front())) << all.err;
  EXPECT_FALSE(started(all));
}

TEST_F(FakePeer, ThreadsLeaveItOut) {
  RunOptions asked = options("talks");
  asked.world = {};
  const Result beside = run(asked);
  EXPECT_EQ(beside.status, 0) << beside.err;
  EXPECT_TRUE(has(beside.err, contenders().front() + " is left out: a peer runs one process a rank"))
      << beside.err;
  EXPECT_EQ(read_results(beside.folder).rows.size(), 3u);
  fs::remove_all(results_path());
  asked.contenders = contenders();
  const Result alone = run(asked);
  EXPECT_EQ(alone.status, 1) << alone.err;
  EXPECT_TRUE(has(alone.err, "--world processes")) << alone.err;
}

TEST_F(FakePeer, WhatIsNotThereFailsItsCellsAloneAndIsTriedOnce) {
  for (const std::string behaviour : {"no_peer", "dies_at_once"}) {
    const Result result = run(options(behaviour));
    EXPECT_EQ(result.status, 5) << behaviour << ": " << result.err;
    for (const Row& row : read_results(result.folder).rows)
      EXPECT_EQ(row.timed(), row->contender == first_kernel()) << row->contender;
    EXPECT_TRUE(has(result.err, behaviour == "no_peer" ? " did not run: its library cannot be imported"
                                                       : "ended with status 5"))
        << result.err;
    if (behaviour == "no_peer") {
      EXPECT_EQ(test::read_file(result.folder / ("worker-" + peer() + "-rank0.log")), "started\n");
    }
    fs::remove_all(results_path());
  }
}

TEST_F(FakePeer, ARankWithoutItIsEnough) {
  const Result result = run(options("rank1:no_peer"));
  EXPECT_EQ(result.status, 5) << result.err;
  EXPECT_TRUE(has(result.err, "its library cannot be imported")) << result.err;
}

TEST_F(FakePeer, ALostWorkerIsItsOwn) {
  RunOptions asked = options("crash");
  const Result result = run(asked);
  EXPECT_EQ(result.status, 2) << result.err;
  for (const Row& row : read_results(result.folder).rows)
    EXPECT_EQ(row.timed(), row->contender == first_kernel() || row->bytes != 2048) << row->contender;
}

TEST_F(FakePeer, NamesAreChecked) {
  const auto sentence = [&](const std::string& named) {
    RunOptions asked = options("good");
    asked.peers = {named};
    const Result result = run(asked);
    EXPECT_EQ(result.status, 1) << named;
    EXPECT_TRUE(result.folder.empty());
    return result.err;
  };
  EXPECT_TRUE(has(sentence("nobody"), "there are " + peer())) << sentence("nobody");
  EXPECT_TRUE(has(sentence("=x"), "no such peer"));
  EXPECT_TRUE(has(sentence(peer() + "=/nowhere/python"), "there is no such program"));
  EXPECT_TRUE(has(sentence(peer() + "="), "there is no such program"));
  RunOptions twice = options("good");
  twice.peers.push_back(twice.peers.front());
  EXPECT_EQ(run(twice).status, 1);
  fs::remove(scratch_.path() / "lib" / "libarb_worker.so");
  EXPECT_EQ(run(options("good")).status, 5);
}

TEST_F(FakePeer, ThePythonIsStartedByItsOwnName) {
  // A link, as in a virtual environment, whose packages are found by where the link is.
  const fs::path link = scratch_.path() / "environment" / "python";
  fs::create_directories(link.parent_path());
  const fs::path real = scratch_.path() / "real";
  test::write_file(
      real, std::string("#!/bin/sh\necho \"I am $0\" >&2\nexec '") + ARB_FAKE_WORKER + "' good \"$@\"\n");
  fs::permissions(real, fs::perms::owner_all);
  fs::create_symlink(real, link);
  const auto programs = peer_programs({peer() + "=" + link.string()}, scratch_.path());
  EXPECT_EQ(programs.at(peer()).python, link);
  RunOptions asked = options("good");
  asked.peers = {peer() + "=" + link.string()};
  const Result result = run(asked);
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_TRUE(
      has(test::read_file(result.folder / ("worker-" + peer() + "-rank0.log")), "I am " + link.string()));
}

TEST_F(FakePeer, VerifyLeavesItOutAndSaysSoByName) {
  VerifyOptions asked;
  asked.run = options("good");
  asked.run.contenders = contenders();
  const Result result = say([&](const Terminal& terminal, const Interrupt& interrupt) {
    return verify_verb(asked, terminal, interrupt);
  });
  EXPECT_EQ(result.status, 1);
  EXPECT_TRUE(has(result.err, "verify drives all ranks from one process")) << result.err;
}

TEST_F(FakePeer, ListNamesItsOption) {
  ListOptions list;
  list.bundles = scratch_.path() / "bundles";
  list.nccl_paths = {nccl_path().string()};
  list.worker_program = worker("good");
  const auto listed = [&] {
    return say([&](const Terminal& terminal, const Interrupt& interrupt) {
      return list_verb(list, terminal, interrupt);
    });
  };
  EXPECT_TRUE(has(listed().out, "with --peer " + peer() + " --world processes"));
  list.json = true;
  for (const auto& contender : nlohmann::json::parse(listed().out)["contenders"]) {
    const CatalogRow& row = *find_contender(contender["contender"].get<std::string>());
    EXPECT_EQ(contender["source"] == "peer", row.source == Source::peer);
    EXPECT_EQ(contender.contains("peer"), row.source == Source::peer);
  }
}

}  // namespace
}  // namespace arb
