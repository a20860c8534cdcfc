#include "counting.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

#include "fibre.h"

namespace arb::emulator {
namespace {

constexpr std::size_t stack_bytes = std::size_t{128} << 10;

// Leaves a kernel after the run has failed; never leaves its fibre.
struct Abandoned {};

bool reached(u32 seen, u32 expected) {
  return static_cast<int>(seen - expected) >= 0;
}

}  // namespace

void TrafficCounter::operation(const Operation& operation) {
  if (operation.owner == operation.rank) return;
  Traffic& traffic = traffic_[operation.rank];
  ++traffic.messages;
  if (operation.kind != Operation::Kind::flag) traffic.wire_bytes += operation.bytes;
}

void TrafficCounter::clear() {
  std::fill(traffic_.begin(), traffic_.end(), Traffic{});
}

class CountingMachine::Implementation final : public Engine {
 public:
  explicit Implementation(u32 ranks) : ranks_(ranks) {}

  std::optional<std::string> run(const std::vector<std::vector<Node>>& chains, u32 calls,
                                 const std::function<void(u32, u32)>& between);

  u64 load(const void* address, u32 bytes, Access, const char*) override {
    find(address, bytes, Operation::Kind::load);
    u64 value = 0;
    std::memcpy(&value, address, bytes);
    return value;
  }
  void store(void* address, u32 bytes, u64 value, Access access, const char*) override {
    find(address, bytes, access.order == Order::release ? Operation::Kind::flag : Operation::Kind::store);
    std::memcpy(address, &value, bytes);
  }
  void add(void* address, u32 bytes, u64 addend, Access, const char*) override {
    find(address, bytes, Operation::Kind::store);
    u64 value = 0;
    std::memcpy(&value, address, bytes);
    value += addend;
    std::memcpy(address, &value, bytes);
  }
  void wait_reached(const u32* flag, u32 expected, Access, Phase phase, u32 peer, const char* site) override;
  u32 wait_arrived(const u32* word, u32 absent, Access, Phase phase, u32 peer) override {
    wait_whole_arrived(word, sizeof(u32), absent, phase, peer);
    return *word;
  }
  // In counting messages are moved whole, and the flag alone says that they are there.
  u32 wait_arrived_or_told(const u32* word, u32, Access, const u32* flag, u32 expected, Access flag_access,
                           Phase phase, u32 peer, const char* site) override {
    wait_reached(flag, expected, flag_access, phase, peer, site);
    return *word;
  }
  void refill(u32* word, u32 absent, Access access, const char*) override {
    store(word, sizeof(u32), absent, access, nullptr);
  }
  void wait_whole_arrived(const void* address, u64 bytes, u32 absent, Phase phase, u32 peer) override;
  void block_barrier(const char*) override {}             // a block is one thread
  void wait_for_previous_kernel(const char*) override {}  // launches follow each other's end
  void let_next_kernel_start() override {}
  u32 choose_slot(u32 slot, const char*) override { return slot; }
  const void* whole_source(const void* address, u64 bytes) override {
    find(address, bytes, Operation::Kind::load);
    return address;
  }
  void* whole_target(void* address, u64 bytes) override {
    find(address, bytes, Operation::Kind::store);
    return address;
  }
  bool ranges_are_whole() const override { return true; }

  struct Buffer {
    const std::byte* begin;
    u64 bytes;
    u32 rank;
    std::string area;
  };
  std::vector<Buffer> buffers;  // by address
  Observer* observer = nullptr;

 private:
  struct Worker {
    Worker() : fibre(stack_bytes) {}
    Fibre fibre;
    Thread thread{};
    const u32* waits_at = nullptr;  // null: can run
    const u32* waits_to = nullptr;  // for payload up to here; null: for a flag
    u32 expected = 0;               // of the flag; of payload: the word that it is not
    Phase phase = Phase::none;
    u32 peer = 0;
  };

  void find(const void* address, u64 bytes, Operation::Kind kind);
  void wait(const u32* at, const u32* to, u32 expected, Phase phase, u32 peer);
  void work(const std::function<void()>& body);
  void fail(std::string sentence) {
    if (!failure_) failure_ = std::move(sentence);
  }
  static bool can_go_on(Worker& worker);
  void fail_waiting();

  u32 ranks_;
  std::vector<std::unique_ptr<Worker>> workers_;
  Worker* current_ = nullptr;
  std::optional<std::string> failure_;
};

// Checks that the bytes lie in one buffer, and reports the operation.
void CountingMachine::Implementation::find(const void* address, u64 bytes, Operation::Kind kind) {
  if (failure_) throw Abandoned{};
  const auto* begin = static_cast<const std::byte*>(address);
  const auto after =
      std::upper_bound(buffers.begin(), buffers.end(), begin,
                       [](const std::byte* at, const Buffer& buffer) { return at < buffer.begin; });
  const Buffer* buffer = after == buffers.begin() ? nullptr : &*(after - 1);
  if (buffer == nullptr || begin + bytes > buffer->begin + buffer->bytes) {
    fail("rank " + std::to_string(current_->thread.rank) + " touches " + std::to_string(bytes) +
         " bytes that lie in no buffer" +
         (buffer == nullptr ? ""
                            : ", at offset " + std::to_string(begin - buffer->begin) + " of rank " +
                                  std::to_string(buffer->rank) + "'s " + buffer->area));
    throw Abandoned{};
  }
  if (observer != nullptr) observer->operation({kind, current_->thread.rank, buffer->rank, address, bytes});
}

// Whether what the worker waits for is there; payload that is there is not looked at again.
bool CountingMachine::Implementation::can_go_on(Worker& worker) {
  if (worker.waits_at == nullptr) return true;
  if (worker.waits_to == nullptr) return reached(*worker.waits_at, worker.expected);
  while (worker.waits_at != worker.waits_to && *worker.waits_at != worker.expected) ++worker.waits_at;
  return worker.waits_at == worker.waits_to;
}

void CountingMachine::Implementation::wait_reached(const u32* flag, u32 expected, Access, Phase phase,
                                                   u32 peer, const char*) {
  find(flag, sizeof(u32), Operation::Kind::load);
  wait(flag, nullptr, expected, phase, peer);
}

void CountingMachine::Implementation::wait_whole_arrived(const void* address, u64 bytes, u32 absent,
                                                         Phase phase, u32 peer) {
  find(address, bytes, Operation::Kind::load);
  const u32* begin = static_cast<const u32*>(address);
  wait(begin, begin + bytes / sizeof(u32), absent, phase, peer);
}

void CountingMachine::Implementation::wait(const u32* at, const u32* to, u32 expected, Phase phase,
                                           u32 peer) {
  Worker& worker = *current_;
  worker.waits_at = at;
  worker.waits_to = to;
  worker.expected = expected;
  worker.phase = phase;
  worker.peer = peer;
  if (!can_go_on(worker)) worker.fibre.suspend();
  worker.waits_at = nullptr;
  if (failure_) throw Abandoned{};
}

void CountingMachine::Implementation::work(const std::function<void()>& body) {
  const u32 rank = current_->thread.rank;
  try {
    body();
  } catch (const Abandoned&) {  // the failure is recorded
  } catch (const std::exception& error) {
    fail("an exception left the kernel of rank " + std::to_string(rank) + ": " + error.what());
  } catch (...) {
    fail("an exception left the kernel of rank " + std::to_string(rank));
  }
}

void CountingMachine::Implementation::fail_waiting() {
  for (const auto& worker : workers_) {
    if (worker->fibre.finished() || worker->waits_at == nullptr) continue;
    fail("deadlock: rank " + std::to_string(worker->thread.rank) + " block " +
         std::to_string(worker->thread.block) + " waits for rank " + std::to_string(worker->peer) +
         " in phase " + phase_name(worker->phase) +
         (worker->waits_to == nullptr ? " (expects " + std::to_string(worker->expected) + ", sees " +
                                            std::to_string(*worker->waits_at) + ")"
                                      : " (" + std::to_string(worker->waits_to - worker->waits_at) +
                                            " words from the first missing one on)"));
  }
}

std::optional<std::string> CountingMachine::Implementation::run(
    const std::vector<std::vector<Node>>& chains, u32 calls, const std::function<void(u32, u32)>& between) {
  u32 most_blocks = 1;
  for (const std::vector<Node>& chain : chains)
    for (const Node& node : chain) most_blocks = std::max(most_blocks, node.blocks);
  while (workers_.size() < std::size_t{ranks_} * most_blocks) workers_.push_back(std::make_unique<Worker>());
  failure_.reset();
  struct Place {
    u32 call = 0;
    std::size_t node = 0;
  };
  std::vector<Place> places(ranks_);
  const auto launch = [&](u32 rank) {
    const Place& place = places[rank];
    if (place.node == 0) between(rank, place.call);
    if (place.call == calls) return;
    const Node& node = chains[rank][place.node];
    for (u32 block = 0; block < node.blocks; ++block) {
      Worker& worker = *workers_[rank * most_blocks + block];
      worker.thread = {this, rank, block, node.blocks, 0, 1};
      worker.waits_at = nullptr;
      worker.fibre.start([this, &node] { work(node.body); });
    }
  };
  const auto resume = [&](Worker& worker) {
    current_ = &worker;
    running = &worker.thread;
    worker.fibre.resume();
    running = nullptr;
  };
  for (u32 rank = 0; rank < ranks_; ++rank) launch(rank);
  for (bool progress = true; progress && !failure_;) {
    progress = false;
    for (u32 rank = 0; rank < ranks_ && !failure_; ++rank) {
      Place& place = places[rank];
      if (place.call == calls) continue;
      bool ended = true;
      for (u32 block = 0; block < most_blocks; ++block) {
        Worker& worker = *workers_[rank * most_blocks + block];
        if (worker.fibre.finished()) continue;
        if (can_go_on(worker)) {
          resume(worker);
          progress = true;
        }
        if (!worker.fibre.finished()) ended = false;
      }
      if (ended && !failure_) {
        if (++place.node == chains[rank].size()) place = {place.call + 1, 0};
        launch(rank);
        progress = true;
      }
    }
  }
  if (!failure_) fail_waiting();
  for (const auto& worker : workers_)
    while (!worker->fibre.finished()) resume(*worker);
  current_ = nullptr;
  return failure_;
}

CountingMachine::CountingMachine(u32 ranks) : implementation_(std::make_unique<Implementation>(ranks)) {}
CountingMachine::~CountingMachine() = default;

void CountingMachine::clear() {
  implementation_->buffers.clear();
}
void CountingMachine::add_buffer(u32 rank, const std::string& area, std::byte* begin, u64 bytes) {
  auto& buffers = implementation_->buffers;
  const auto at = std::upper_bound(buffers.begin(), buffers.end(), begin,
                                   [](const std::byte* a, const auto& buffer) { return a < buffer.begin; });
  buffers.insert(at, {begin, bytes, rank, area});
}
void CountingMachine::observe(Observer* observer) {
  implementation_->observer = observer;
}
std::optional<std::string> CountingMachine::run(const std::vector<std::vector<Node>>& chains, u32 calls,
                                                const std::function<void(u32 rank, u32 call)>& between) {
  return implementation_->run(chains, calls, between);
}

}  // namespace arb::emulator
