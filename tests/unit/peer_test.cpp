// A peer as the worker sees it: what it is asked for and in which order, and what a rank's problem is to the others.
#include "worker/peer.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

namespace arb::worker {
namespace {

using std::chrono::milliseconds;

// Each thread is a rank and has a library of its own, as each process has.
struct Library {
  std::vector<std::string> calls;
  std::map<std::string, std::string> problems;  // by call; an empty one fails without a word
  std::string last_error;
  std::uint64_t memory_bytes = 0;
};
thread_local Library library;

int noted(const std::string& call, const std::string& with = "") {
  library.calls.push_back(call + with);
  const auto found = library.problems.find(call);
  if (found == library.problems.end()) return 0;
  library.last_error = found->second;
  return 1;
}
void put(const std::string& from, char* text, std::uint64_t capacity_bytes) {
  std::strncpy(text, from.c_str(), capacity_bytes);
}

ArbPeer callbacks() {
  ArbPeer made{};
  made.abi = arb_peer_abi;
  made.last_error = [](char* text, std::uint64_t capacity_bytes) {
    put(library.last_error, text, capacity_bytes);
  };
  made.start = [](std::uint32_t device) { return noted("start", " " + std::to_string(device)); };
  made.version = [](char* text, std::uint64_t capacity_bytes) { put(" stand-in 1\n", text, capacity_bytes); };
  made.invite = [](char* text, std::uint64_t capacity_bytes) {
    put("the place", text, capacity_bytes);
    return noted("invite");
  };
  made.join = [](const char* invitation, std::uint32_t rank, std::uint32_t ranks, std::uint32_t deadline_ms) {
    return noted("join", " " + std::string(invitation) + " " + std::to_string(rank) + " of " +
                             std::to_string(ranks) + (deadline_ms > 0 ? "" : " without a deadline"));
  };
  made.allocate = [](std::uint64_t bytes, void** data) {
    library.memory_bytes = bytes;
    *data = library.problems.contains("nothing") ? nullptr : &library;
    return noted("allocate");
  };
  made.share = [] { return noted("share"); };
  made.enqueue = [](const char* contender, const char* dtype, std::uint64_t count_elements, void* input,
                    void* output, void* stream) {
    const bool right = input == &library && output == nullptr && stream == &library.calls;
    return noted("enqueue", " " + std::string(contender) + " " + dtype + " " +
                                std::to_string(count_elements) + (right ? "" : " with other pointers"));
  };
  made.finish = [] { noted("finish"); };
  return made;
}

// What each of two ranks ends with; an exception is its sentence.
std::vector<std::string> both(const std::function<std::string(Peer&, Rendezvous&)>& act) {
  auto sockets = make_rendezvous_sockets(2);
  std::vector<std::string> ends(2);
  std::vector<std::thread> threads;
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      Rendezvous rendezvous(rank, 2, std::move(sockets[rank]), milliseconds(5'000));
      const ArbPeer functions = callbacks();
      try {
        Peer peer(functions);
        ends[rank] = act(peer, rendezvous);
      } catch (const std::exception& error) {
        ends[rank] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return ends;
}

std::string called() {
  std::string text;
  for (const std::string& call : library.calls) text += (text.empty() ? "" : ", ") + call;
  return text;
}

TEST(Peer, MemoryGrowsInStepAndTheGroupIsMadeOnce) {
  const auto ends = both([](Peer& peer, Rendezvous& rendezvous) {
    peer.start(3);
    peer.start(3);
    EXPECT_EQ(peer.version(), "stand-in 1");
    for (const std::uint64_t bytes : {1ull << 10, 2ull << 20, 3ull << 20, 1ull << 20, 300ull << 20}) {
      EXPECT_EQ(static_cast<void*>(peer.reserve(bytes, rendezvous, milliseconds(4'000))), &library);
      EXPECT_GE(library.memory_bytes, bytes);
      EXPECT_EQ(library.memory_bytes % (2 << 20), 0u);
    }
    Cell cell;
    cell.contender = "x";
    cell.dtype = Dtype::fp32;
    cell.bytes = 64;
    peer.enqueue(cell, reinterpret_cast<std::byte*>(&library), nullptr, &library.calls);
    return called();
  });
  const std::string rest = "allocate, share, allocate, share, allocate, share, enqueue x fp32 16";
  EXPECT_EQ(ends[0], "start 3, invite, join the place 0 of 2, " + rest);
  EXPECT_EQ(ends[1], "start 3, join the place 1 of 2, " + rest);
}

TEST(Peer, AProblemOfOneRankIsEverybodysBeforeAnyoneWaits) {
  for (const std::string call : {"invite", "join", "allocate", "share"}) {
    for (const std::uint32_t broken : {0u, 1u}) {
      if (call == "invite" && broken == 1) continue;
      const auto ends = both([&](Peer& peer, Rendezvous& rendezvous) {
        peer.start(0);
        if (rendezvous.rank() == broken) library.problems[call] = "no room\nat frame 7";
        try {
          peer.reserve(64, rendezvous, milliseconds(4'000));
        } catch (const PeerError& error) {
          EXPECT_EQ(called().find("share") != std::string::npos, call == "share") << called();
          return std::string(error.what());
        }
        return std::string("all well");
      });
      for (const std::string& end : ends)
        EXPECT_EQ(end, "rank " + std::to_string(broken) + ": no room at frame 7") << call;
    }
  }
}

TEST(Peer, WhatSaysNothingHasASentenceToo) {
  const auto ends = both([](Peer& peer, Rendezvous& rendezvous) {
    peer.start(0);
    if (rendezvous.rank() == 1) library.problems["nothing"] = "";
    try {
      peer.reserve(64, rendezvous, milliseconds(4'000));
    } catch (const PeerError& error) {
      return std::string(error.what());
    }
    return std::string();
  });
  EXPECT_EQ(ends[0], "rank 1: the peer gave no memory and did not say why");
  EXPECT_EQ(ends[1], ends[0]);
  library = {};
  library.problems["start"] = "";
  const ArbPeer functions = callbacks();
  Peer peer(functions);
  for (int again = 0; again < 2; ++again) {
    try {
      peer.start(0);
      FAIL();
    } catch (const PeerError& error) {
      EXPECT_STREQ(error.what(), "the peer failed at its start and does not say why");
    }
  }
  EXPECT_EQ(called(), "start 0") << "tried once";
}

TEST(Peer, FinishBelongsToAStart) {
  library = {};
  const ArbPeer functions = callbacks();
  { const Peer never_started(functions); }
  EXPECT_EQ(called(), "");
  {
    Peer started(functions);
    started.start(1);
    EXPECT_THROW(
        {
          library.problems["enqueue"] = "it takes no such type";
          started.enqueue({}, nullptr, nullptr, nullptr);
        },
        PeerError);
  }
  EXPECT_TRUE(called().ends_with("finish")) << called();
}

TEST(Peer, CallbacksOfAnotherVersionOrNotWholeAreRefused) {
  ArbPeer other = callbacks();
  other.abi = arb_peer_abi + 1;
  EXPECT_THROW(Peer{other}, PeerError);
  ArbPeer partial = callbacks();
  partial.share = nullptr;
  EXPECT_THROW(Peer{partial}, PeerError);
}

}  // namespace
}  // namespace arb::worker
