#include "peer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "call_deadline.h"
#include "size_to_hold.h"

namespace arb::worker {
namespace {

using Text = std::array<char, 1024>;

// One line of what a peer wrote, wherever it ends.
std::string line_of(const Text& text) {
  std::string line(text.begin(), std::ranges::find(text, '\0'));
  std::ranges::replace_if(
      line, [](char c) { return c == '\n' || c == '\r' || c == '\t'; }, ' ');
  const std::size_t first = line.find_first_not_of(' ');
  if (first == std::string::npos) return "";
  return line.substr(first, line.find_last_not_of(' ') - first + 1);
}

}  // namespace

void agree(Rendezvous& rendezvous, std::string_view doing, const std::string& problem) {
  Text own{};
  // Its end is what gets cut.
  std::copy_n(problem.begin(), std::min(problem.size(), own.size() - 1), own.begin());
  const std::vector<Text> all = rendezvous.gather(doing, own);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const std::string theirs = line_of(all[rank]);
    if (!theirs.empty()) throw PeerError(fmt::format("rank {}: {}", rank, theirs));
  }
}

Peer::Peer(const ArbPeer& callbacks) : callbacks_(&callbacks) {
  if (callbacks.abi != arb_peer_abi) {
    throw PeerError(fmt::format(
        "the peer's program speaks version {} of ArbPeer and this worker {}; take both from one build",
        callbacks.abi, static_cast<std::uint64_t>(arb_peer_abi)));
  }
  const bool whole =
      callbacks.last_error != nullptr && callbacks.start != nullptr && callbacks.version != nullptr &&
      callbacks.invite != nullptr && callbacks.join != nullptr && callbacks.allocate != nullptr &&
      callbacks.share != nullptr && callbacks.enqueue != nullptr && callbacks.finish != nullptr;
  if (!whole) throw PeerError("the peer's program leaves a function of ArbPeer out");
}

Peer::~Peer() {
  if (started_) callbacks_->finish();
}

std::string Peer::problem_of(int result, const char* doing) const {
  if (result == 0) return "";
  Text text{};
  callbacks_->last_error(text.data(), text.size());
  const std::string said = line_of(text);
  return said.empty() ? fmt::format("the peer failed at {} and does not say why", doing) : said;
}

void Peer::start(std::uint32_t device) {
  if (started_) return;
  if (start_problem_.empty()) start_problem_ = problem_of(callbacks_->start(device), "its start");
  if (!start_problem_.empty()) throw PeerError(start_problem_);
  started_ = true;
  Text text{};
  callbacks_->version(text.data(), text.size());
  version_ = line_of(text);
}

void Peer::join(Rendezvous& rendezvous, std::chrono::milliseconds deadline) {
  Text invitation{};
  std::string problem;
  if (rendezvous.rank() == 0)
    problem =
        problem_of(callbacks_->invite(invitation.data(), invitation.size()), "inviting the other ranks");
  agree(rendezvous, "inviting to a peer's group", problem);
  invitation = rendezvous.gather("handing out a peer's invitation", invitation).front();
  invitation.back() = '\0';
  // Its own sentence should come before ours.
  const auto told_ms = static_cast<std::uint32_t>(deadline.count() * 3 / 4);
  {
    const CallDeadline watch(deadline, "the peer", "making a group of all ranks");
    problem = problem_of(callbacks_->join(invitation.data(), rendezvous.rank(), rendezvous.ranks(), told_ms),
                         "making a group of all ranks");
  }
  agree(rendezvous, "joining a peer's group", problem);
  joined_ = true;
}

std::byte* Peer::reserve(std::uint64_t bytes, Rendezvous& rendezvous, std::chrono::milliseconds deadline) {
  if (!started_) throw PeerError("the peer was not started");
  if (!joined_) join(rendezvous, deadline);
  if (bytes <= bytes_) return data_;
  bytes_ = 0;
  data_ = nullptr;
  rendezvous.barrier("giving a peer's memory back");  // nobody uses another's any more
  const std::uint64_t new_bytes = size_to_hold(bytes);
  void* made = nullptr;
  std::string problem = problem_of(callbacks_->allocate(new_bytes, &made), "making memory");
  if (problem.empty() && made == nullptr) problem = "the peer gave no memory and did not say why";
  // Who shares waits for all, so nobody begins unless everybody can.
  agree(rendezvous, "making a peer's memory", problem);
  {
    const CallDeadline watch(deadline, "the peer", "sharing its memory");
    problem = problem_of(callbacks_->share(), "sharing its memory");
  }
  agree(rendezvous, "sharing a peer's memory", problem);
  data_ = static_cast<std::byte*>(made);
  bytes_ = new_bytes;
  return data_;
}

void Peer::enqueue(const Cell& cell, std::byte* input, std::byte* output, void* stream) {
  const std::string dtype(name_of(cell.dtype));
  const std::string problem =
      problem_of(callbacks_->enqueue(cell.contender.c_str(), dtype.c_str(),
                                     cell.bytes / size_of_bytes(cell.dtype), input, output, stream),
                 "enqueueing a call");
  if (!problem.empty()) throw PeerError(problem);
}

}  // namespace arb::worker
