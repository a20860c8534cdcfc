#include "worker_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "rendezvous.h"

namespace arb {
namespace {

// The larger of two that may be missing.
void raise_to(std::optional<std::uint64_t>& value, const std::optional<std::uint64_t>& other) {
  if (other && (!value || *value < *other)) value = other;
}

Hello merged_hello(std::vector<Reply>& replies) {
  Hello hello = std::move(*replies.front().hello);
  for (std::size_t rank = 1; rank < replies.size(); ++rank) {
    const Hello& other = *replies[rank].hello;
    for (std::size_t i = 0; i < std::min(hello.bundles.size(), other.bundles.size()); ++i) {
      if (hello.bundles[i].problem.empty()) hello.bundles[i].problem = other.bundles[i].problem;
    }
    if (hello.nccl_problem.empty()) hello.nccl_problem = other.nccl_problem;
    if (hello.peer_problem.empty()) hello.peer_problem = other.peer_problem;
  }
  return hello;
}

}  // namespace

Outcome merged(std::span<const Outcome> by_rank) {
  Outcome all;
  for (const Outcome& outcome : by_rank) {
    if (all.wrong.empty()) all.wrong = outcome.wrong;
    if (all.failure.empty()) all.failure = outcome.failure;
  }
  if (all.wrong.empty() && !all.failure.empty()) {
    Outcome failed;
    failed.failure = std::move(all.failure);
    return failed;
  }
  // A wrong cell is the answer of those ranks that saw it; one that failed, and not only gave up because of them, may
  // be why they did.
  if (!all.failure.empty() && all.failure.find(all.wrong) == std::string::npos)
    all.wrong += fmt::format("; another rank failed: {}", all.failure);
  all.failure.clear();
  all.correct = true;
  std::size_t first = by_rank.size();  // the first rank that ran
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    const Outcome& outcome = by_rank[rank];
    if (!outcome.failure.empty()) {
      all.correct = false;
      continue;
    }
    all.correct = all.correct && outcome.correct;
    all.max_error = std::max(all.max_error, outcome.max_error);
    if (all.ran.empty()) all.ran = outcome.ran;
    for (const std::string& flag : outcome.flags) {
      if (std::ranges::find(all.flags, flag) == all.flags.end()) all.flags.push_back(flag);
    }
    raise_to(all.messages, outcome.messages);
    raise_to(all.wire_bytes, outcome.wire_bytes);
    if (first == by_rank.size()) {
      first = rank;
      all.samples_us = outcome.samples_us;
      all.output_hash = outcome.output_hash;
      continue;
    }
    if (outcome.output_hash != all.output_hash && all.wrong.empty()) {
      all.wrong =
          fmt::format("ranks differ: the result of rank {} has the hash {} and that of rank {} has {}", first,
                      all.output_hash, rank, outcome.output_hash);
    }
    if (outcome.samples_us.size() != all.samples_us.size() && all.wrong.empty()) {
      Outcome failed;
      failed.failure = fmt::format("rank {} gave {} samples and rank {} gave {}", first,
                                   all.samples_us.size(), rank, outcome.samples_us.size());
      return failed;
    }
    for (std::size_t i = 0; i < std::min(all.samples_us.size(), outcome.samples_us.size()); ++i) {
      all.samples_us[i] = std::max(all.samples_us[i], outcome.samples_us[i]);
    }
  }
  if (!all.wrong.empty()) all.correct = false;
  if (!all.correct) all.samples_us.clear();
  return all;
}

WorkerGroup::WorkerGroup(std::vector<WorkerLaunch> launches) {
  // Ours are closed once every worker has its own, so that a worker's end is its peers' to see.
  const auto sockets = launches.size() > 1
                           ? make_rendezvous_sockets(static_cast<std::uint32_t>(launches.size()))
                           : std::vector<std::vector<Descriptor>>(1);
  for (std::size_t rank = 0; rank < launches.size(); ++rank) {
    for (const Descriptor& socket : sockets[rank]) launches[rank].descriptors.push_back(socket.get());
    workers_.push_back(std::make_unique<WorkerProcess>(std::move(launches[rank])));
    pointers_.push_back(workers_.back().get());
  }
}

Reply WorkerGroup::request(const Request& request, std::chrono::milliseconds deadline,
                           std::string_view doing) {
  std::vector<Reply> replies = WorkerProcess::request_all(pointers_, request, deadline, doing);
  if (replies.size() == 1) return std::move(replies.front());
  for (Reply& reply : replies) {
    if (!reply.error.empty()) return std::move(reply);
  }
  Reply all = replies.front();
  if (request.op == Op::hello) all.hello = merged_hello(replies);
  if (request.op == Op::run) {
    std::vector<Outcome> outcomes;
    for (Reply& reply : replies) outcomes.push_back(std::move(*reply.outcome));
    all.outcome = merged(outcomes);
  }
  return all;
}

void WorkerGroup::quit(std::chrono::milliseconds patience) noexcept {
  WorkerProcess::quit_all(pointers_, patience);
}

bool WorkerGroup::alive() const {
  return std::ranges::all_of(workers_, &WorkerProcess::alive);
}

}  // namespace arb
