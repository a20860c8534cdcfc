// Where the worker processes of one run meet: each tells all others a few bytes, and perhaps a descriptor, at
// the same step. Rank 0 gathers and hands out, over one socket a peer.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "descriptor.h"

namespace arb {

// The processes can no longer go on together: one gave up, is gone, did not come in time, or is at another
// step; what() is one sentence that says which. Every later call throws the same.
class RendezvousError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Socket pairs for `ranks` processes, by rank: what each gives to its Rendezvous. Throws std::system_error.
std::vector<std::vector<Descriptor>> make_rendezvous_sockets(std::uint32_t ranks);

class Rendezvous {
 public:
  // What a rank contributes at a step.
  struct Part {
    std::vector<std::byte> bytes;
    Descriptor descriptor;  // of this process, newly made; none where the rank gave none
  };
  static constexpr std::size_t most_bytes_a_part = 8192;
  static constexpr std::size_t most_ranks = 16;

  // `sockets`: of rank 0 those to ranks 1, 2, ... in order; of any other rank the one to rank 0. `deadline`
  // is how long any rank may keep the others waiting.
  Rendezvous(std::uint32_t rank, std::uint32_t ranks, std::vector<Descriptor> sockets,
             std::chrono::milliseconds deadline);

  [[nodiscard]] std::uint32_t rank() const { return rank_; }
  [[nodiscard]] std::uint32_t ranks() const { return ranks_; }

  // Waits until every rank has called this with the same `doing` and gives all parts, by rank; the own part
  // comes back without its descriptor. Throws RendezvousError.
  std::vector<Part> exchange(std::string_view doing, std::span<const std::byte> bytes = {},
                             int descriptor = -1);
  // The same for ranks that have nothing to say.
  void barrier(std::string_view doing) { exchange(doing); }
  // The same with a limit of its own.
  void barrier(std::string_view doing, std::chrono::milliseconds deadline);
  // One value a rank, by rank. Throws RendezvousError.
  template <class Value>
  std::vector<Value> gather(std::string_view doing, const Value& own) {
    static_assert(std::is_trivially_copyable_v<Value>);
    const std::vector<Part> parts = exchange(doing, std::as_bytes(std::span(&own, 1)));
    std::vector<Value> values(parts.size());
    for (std::size_t rank = 0; rank < parts.size(); ++rank) {
      need_size(parts[rank], sizeof(Value), doing);
      std::memcpy(&values[rank], parts[rank].bytes.data(), sizeof(Value));
    }
    return values;
  }
  // As many values of every rank as of this one, by rank; cut into steps where they are many.
  template <class Value>
  std::vector<std::vector<Value>> gather_lists(std::string_view doing, std::span<const Value> own) {
    static_assert(std::is_trivially_copyable_v<Value>);
    constexpr std::size_t most = most_bytes_a_part / sizeof(Value);
    std::vector<std::vector<Value>> lists(ranks_, std::vector<Value>(own.size()));
    for (std::size_t begin = 0; begin < own.size(); begin += most) {
      const auto some = own.subspan(begin, std::min(most, own.size() - begin));
      const std::vector<Part> parts = exchange(doing, std::as_bytes(some));
      for (std::size_t rank = 0; rank < parts.size(); ++rank) {
        need_size(parts[rank], some.size_bytes(), doing);
        std::memcpy(lists[rank].data() + begin, parts[rank].bytes.data(), some.size_bytes());
      }
    }
    return lists;
  }

  // Tells the others that this rank cannot go on, and why, so that nobody waits for it.
  void abandon(std::string_view why) noexcept;

 private:
  struct Message;
  using Clock = std::chrono::steady_clock;

  std::vector<Part> gather_and_hand_out(std::string_view doing, std::span<const std::byte> bytes,
                                        int descriptor, std::chrono::milliseconds deadline);
  std::vector<Part> give_and_get(std::string_view doing, std::span<const std::byte> bytes, int descriptor,
                                 std::chrono::milliseconds deadline);
  // Throws where `part` has another size: the ranks then run different programs.
  void need_size(const Part& part, std::size_t bytes, std::string_view doing);
  // Tells all others, keeps the sentence and throws it.
  [[noreturn]] void give_up(const std::string& sentence);
  void tell_all(const std::string& sentence) noexcept;
  static int send_packet(int socket, const Message& message, std::span<const int> descriptors) noexcept;
  void send(std::uint32_t peer, const Message& message, std::span<const int> descriptors,
            std::string_view doing);
  // Waits until one of `peers` has said something or is gone.
  std::uint32_t first_heard(std::span<const std::uint32_t> peers, std::string_view doing,
                            Clock::time_point until, std::chrono::milliseconds deadline);
  // What the peer said; waits for nothing. Gives up where it gave up or is gone.
  Message receive(std::uint32_t peer, std::string_view doing);
  [[nodiscard]] int socket_of(std::uint32_t peer) const;

  std::uint32_t rank_;
  std::uint32_t ranks_;
  std::vector<Descriptor> sockets_;
  std::vector<std::byte> buffer_;
  std::chrono::milliseconds deadline_;
  std::uint64_t step_ = 0;
  std::string broken_;  // why nothing more can be exchanged; empty while all is well
};

}  // namespace arb
