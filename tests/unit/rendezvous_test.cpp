// Processes that meet: all parts reach all ranks, descriptors among them, and whoever is late, gone, out of
// step or giving up ends the wait of all others with one sentence.
#include "rendezvous.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <thread>

namespace arb {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds deadline{1'000};

// One process a rank, forked; each does `work` and ends with what that returns.
class Crowd {
 public:
  using Work = std::function<int(Rendezvous&)>;

  Crowd(std::uint32_t ranks, const Work& work) {
    auto sockets = make_rendezvous_sockets(ranks);
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      const pid_t pid = ::fork();
      if (pid == 0) {
        std::vector<Descriptor> own = std::move(sockets[rank]);
        sockets.clear();
        int status = 99;
        try {
          Rendezvous rendezvous(rank, ranks, std::move(own), deadline);
          status = work(rendezvous);
        } catch (const std::exception& error) {
          std::fprintf(stderr, "rank %u: %s\n", rank, error.what());
        }
        ::_exit(status);
      }
      pids_.push_back(pid);
    }
  }
  Crowd(const Crowd&) = delete;
  Crowd& operator=(const Crowd&) = delete;
  Crowd(Crowd&&) = delete;
  Crowd& operator=(Crowd&&) = delete;
  ~Crowd() { statuses(); }

  // Exit statuses by rank; 1000 + signal for one that was killed.
  std::vector<int> statuses() {
    std::vector<int> found;
    for (const pid_t pid : pids_) {
      int status = 0;
      ::waitpid(pid, &status, 0);
      found.push_back(WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status));
    }
    pids_.clear();
    return found;
  }

 private:
  std::vector<pid_t> pids_;
};

// 0 when the call ends with a sentence that has all `words`, in less than `limit`; also when it is tried
// again.
int ends_with(const std::function<void()>& call, std::initializer_list<const char*> words,
              milliseconds limit) {
  const Clock::time_point begin = Clock::now();
  for (int attempt = 0; attempt < 2; ++attempt) {
    try {
      call();
      return 1;
    } catch (const RendezvousError& error) {
      for (const char* word : words) {
        if (std::string(error.what()).find(word) != std::string::npos) continue;
        std::fprintf(stderr, "no '%s' in: %s\n", word, error.what());
        return 2;
      }
    }
  }
  return Clock::now() - begin < limit ? 0 : 3;
}

TEST(Rendezvous, AllPartsReachAllRanksInOrder) {
  for (const std::uint32_t ranks : {1u, 2u, 3u, 8u}) {
    Crowd crowd(ranks, [](Rendezvous& rendezvous) {
      for (std::uint32_t round = 0; round < 200; ++round) {
        const auto values = rendezvous.gather("counting", 1000 * round + rendezvous.rank());
        for (std::uint32_t rank = 0; rank < rendezvous.ranks(); ++rank) {
          if (values[rank] != 1000 * round + rank) return 1;
        }
        // Parts of other lengths, none among them.
        const std::vector<std::byte> own(rendezvous.rank() * round, std::byte(rendezvous.rank()));
        const auto parts = rendezvous.exchange("telling", own);
        for (std::uint32_t rank = 0; rank < rendezvous.ranks(); ++rank) {
          if (parts[rank].bytes != std::vector<std::byte>(rank * round, std::byte(rank))) return 2;
        }
        rendezvous.barrier("going on");
      }
      return 0;
    });
    EXPECT_EQ(crowd.statuses(), std::vector<int>(ranks, 0)) << ranks << " ranks";
  }
}

TEST(Rendezvous, ListsLongerThanAPacketArriveWhole) {
  Crowd crowd(3, [](Rendezvous& rendezvous) {
    std::vector<double> own(5000);
    for (std::size_t i = 0; i < own.size(); ++i) own[i] = static_cast<double>(i) + rendezvous.rank() * 1e6;
    const auto lists = rendezvous.gather_lists<double>("samples", own);
    for (std::uint32_t rank = 0; rank < 3; ++rank) {
      for (std::size_t i = 0; i < own.size(); ++i) {
        if (lists[rank][i] != static_cast<double>(i) + rank * 1e6) return 1;
      }
    }
    return 0;
  });
  EXPECT_EQ(crowd.statuses(), std::vector<int>(3, 0));
}

// What a buffer over processes needs: each rank makes memory, all map all of it.
TEST(Rendezvous, DescriptorsOpenTheSameMemoryEverywhere) {
  constexpr std::size_t bytes = 4096;
  for (const std::uint32_t ranks : {2u, 4u}) {
    Crowd crowd(ranks, [ranks](Rendezvous& rendezvous) {
      for (int round = 0; round < 50; ++round) {
        const Descriptor own(::memfd_create("part", MFD_CLOEXEC));
        if (::ftruncate(own.get(), bytes) != 0) return 1;
        // In the second half some give none.
        const bool gives = round < 25 || rendezvous.rank() % 2 == 1;
        auto parts = rendezvous.exchange("mapping", {}, gives ? own.get() : -1);
        std::vector<std::uint32_t*> mapped(ranks, nullptr);
        for (std::uint32_t rank = 0; rank < ranks; ++rank) {
          const bool mine = rank == rendezvous.rank();
          if (bool(parts[rank].descriptor) != (!mine && (round < 25 || rank % 2 == 1))) return 2;
          const int fd = mine ? own.get() : parts[rank].descriptor.get();
          if (fd < 0) continue;
          void* const at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
          if (at == MAP_FAILED) return 3;
          mapped[rank] = static_cast<std::uint32_t*>(at);
        }
        // Everyone writes into everyone's, at its own place.
        for (std::uint32_t rank = 0; rank < ranks; ++rank) {
          if (mapped[rank] != nullptr) mapped[rank][rendezvous.rank()] = 100 * rendezvous.rank() + rank + 1;
        }
        rendezvous.barrier("written");
        for (std::uint32_t writer = 0; gives && writer < ranks; ++writer) {
          if (mapped[rendezvous.rank()][writer] != 100 * writer + rendezvous.rank() + 1) return 4;
        }
        for (std::uint32_t* at : mapped) {
          if (at != nullptr) ::munmap(at, bytes);
        }
      }
      // None is left open: the next descriptor has a small number.
      const Descriptor next(::memfd_create("next", MFD_CLOEXEC));
      return next.get() < 32 ? 0 : 5;
    });
    EXPECT_EQ(crowd.statuses(), std::vector<int>(ranks, 0)) << ranks << " ranks";
  }
}

TEST(Rendezvous, WhoIsLateIsNamedAtTheDeadline) {
  Crowd crowd(3, [](Rendezvous& rendezvous) {
    rendezvous.barrier("together");
    if (rendezvous.rank() == 1) {
      std::this_thread::sleep_for(deadline + milliseconds(500));
      return ends_with([&] { rendezvous.barrier("opening the gate"); }, {"rank 0 waited for rank 1"},
                       milliseconds(500));
    }
    return ends_with([&] { rendezvous.barrier("opening the gate"); },
                     {"rank 0 waited for rank 1 for more than 1 s", "opening the gate"}, milliseconds(1'400));
  });
  EXPECT_EQ(crowd.statuses(), std::vector<int>(3, 0));
}

TEST(Rendezvous, ARank0ThatIsLateIsNamedToo) {
  Crowd crowd(2, [](Rendezvous& rendezvous) {
    if (rendezvous.rank() == 0) {
      std::this_thread::sleep_for(milliseconds(4'000));
      return 0;
    }
    return ends_with([&] { rendezvous.barrier("opening the gate"); }, {"rank 1 waited for rank 0"},
                     milliseconds(3'600));
  });
  EXPECT_EQ(crowd.statuses(), std::vector<int>(2, 0));
}

TEST(Rendezvous, OneThatDiesWakesTheOthersAtOnce) {
  for (const std::uint32_t victim : {0u, 1u, 2u}) {
    Crowd crowd(3, [victim](Rendezvous& rendezvous) {
      rendezvous.barrier("together");
      if (rendezvous.rank() == victim) {
        std::this_thread::sleep_for(milliseconds(100));
        ::raise(SIGKILL);
      }
      const std::string gone = "rank " + std::to_string(victim) + " is gone";
      return ends_with([&] { rendezvous.barrier("opening the gate"); }, {gone.c_str()}, milliseconds(500));
    });
    std::vector<int> expected(3, 0);
    expected[victim] = 1000 + SIGKILL;
    EXPECT_EQ(crowd.statuses(), expected) << "victim " << victim;
  }
}

TEST(Rendezvous, OtherStepsAreFoundByNameAndByNumber) {
  Crowd by_name(2, [](Rendezvous& rendezvous) {
    return ends_with([&] { rendezvous.barrier(rendezvous.rank() == 0 ? "filling" : "mapping"); },
                     {"out of step", "filling", "mapping"}, milliseconds(500));
  });
  EXPECT_EQ(by_name.statuses(), std::vector<int>(2, 0));
  Crowd by_size(2, [](Rendezvous& rendezvous) {
    return ends_with(
        [&] {
          if (rendezvous.rank() == 0)
            rendezvous.gather("telling", std::uint32_t{1});
          else
            rendezvous.gather("telling", std::uint64_t{1});
        },
        {"out of step", "telling"}, milliseconds(500));
  });
  EXPECT_EQ(by_size.statuses(), std::vector<int>(2, 0));
}

TEST(Rendezvous, WhyOneGaveUpReachesAll) {
  for (const std::uint32_t quitter : {0u, 1u, 2u}) {
    Crowd crowd(3, [quitter](Rendezvous& rendezvous) {
      rendezvous.barrier("together");
      if (rendezvous.rank() == quitter) {
        std::this_thread::sleep_for(milliseconds(50));
        rendezvous.abandon("no memory is left");
        if (quitter == 1) return 0;  // and its end is not what the others hear of
      }
      const std::string why = "rank " + std::to_string(quitter) + " gave up: no memory is left";
      return ends_with([&] { rendezvous.barrier("going on"); }, {why.c_str()}, milliseconds(500));
    });
    EXPECT_EQ(crowd.statuses(), std::vector<int>(3, 0)) << "quitter " << quitter;
  }
}

TEST(Rendezvous, SocketsThatDoNotFitAreRefused) {
  auto sockets = make_rendezvous_sockets(3);
  EXPECT_THROW(Rendezvous(0, 2, std::move(sockets[0]), deadline), RendezvousError);
  EXPECT_THROW(Rendezvous(2, 2, std::move(sockets[1]), deadline), RendezvousError);
}

}  // namespace
}  // namespace arb
