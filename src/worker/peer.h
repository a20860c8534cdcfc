// A peer library in this process: its operations beside ours, enqueued on the stream that we capture. What it is
// stays behind C callbacks, which the worker's program (a Python script under scripts/peers) gives.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "cell.h"
#include "rendezvous.h"

extern "C" {

// The version of ArbPeer, to be raised with every change of it; scripts/peers/arb_peer.py has the same.
enum : std::uint64_t { arb_peer_abi = 1 };

// What a peer's program gives. All are called by the thread that called arb_worker_main, one at a time. Those that
// return a number give 0, or anything else after keeping a sentence for `last_error`. Nothing may be thrown. Texts are
// UTF-8 and end with 0 within the capacity.
struct ArbPeer {
  std::uint64_t abi;
  void (*last_error)(char* text, std::uint64_t capacity_bytes);
  // Imports the library and brings it up on a CUDA device; needs no other rank.
  int (*start)(std::uint32_t device);
  // "torch 2.11.0+cu130"; after start.
  void (*version)(char* text, std::uint64_t capacity_bytes);
  // Of rank 0: a text by which the others find it.
  int (*invite)(char* text, std::uint64_t capacity_bytes);
  // Makes a group of all ranks; waits for them, at most so long.
  int (*join)(const char* invitation, std::uint32_t rank, std::uint32_t ranks, std::uint32_t deadline_ms);
  // Makes device memory in which inputs may lie; gives the one before back. Needs no other rank.
  int (*allocate)(std::uint64_t bytes, void** data);
  // Makes that memory known to all ranks; waits for them.
  int (*share)(void);
  // Enqueues one sum over all ranks on a CUDA stream, which may be capturing, and waits for nothing. `input` lies in
  // the memory; `output` is it or is anywhere.
  int (*enqueue)(const char* contender, const char* dtype, std::uint64_t count_elements, void* input,
                 void* output, void* stream);
  // Gives everything back.
  void (*finish)(void);
};
}

namespace arb::worker {

// A peer refused or failed; what() is one sentence.
class PeerError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Peer {
 public:
  // `callbacks` must outlive this. Throws PeerError where they are of another version or not whole.
  explicit Peer(const ArbPeer& callbacks);
  ~Peer();
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;
  Peer(Peer&&) = delete;
  Peer& operator=(Peer&&) = delete;

  // Brings the library up on a CUDA device, once; this may take tens of seconds. Throws PeerError, also again.
  void start(std::uint32_t device);
  // "torch 2.11.0+cu130"; empty before start().
  [[nodiscard]] const std::string& version() const { return version_; }

  // Memory in which inputs may lie, of at least so many bytes; what it held is lost when it grows, and no work that
  // uses it may be under way. The first call makes the group of all ranks. A step that all processes take together: a
  // problem of one is thrown by all. Past `deadline` in the library the process ends (CallDeadline). Throws
  // PeerError, RendezvousError.
  std::byte* reserve(std::uint64_t bytes, Rendezvous& rendezvous, std::chrono::milliseconds deadline);
  // Enqueues one call of a cell on a stream (a CUstream), captured where that captures. Throws PeerError.
  void enqueue(const Cell& cell, std::byte* input, std::byte* output, void* stream);

 private:
  // The sentence of a call that failed; empty where it did not.
  [[nodiscard]] std::string problem_of(int result, const char* doing) const;
  void join(Rendezvous& rendezvous, std::chrono::milliseconds deadline);

  const ArbPeer* callbacks_;
  std::string version_;
  std::string start_problem_;
  bool started_ = false;
  bool joined_ = false;
  std::byte* data_ = nullptr;
  std::uint64_t bytes_ = 0;
};

// Meets the other processes: where one has a problem (one sentence), all throw PeerError with the first rank's.
void agree(Rendezvous& rendezvous, std::string_view doing, const std::string& problem);

}  // namespace arb::worker
