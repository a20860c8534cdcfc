#include "proof.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "proof_engine.h"

namespace arb::emulator {

// ---------------------------------------------------------------- shape and buffers

void ProofEngine::reset(u32 ranks, u32 threads_a_rank) {
  if (ranks == 0 || ranks > max_ranks || threads_a_rank == 0 || threads_a_rank > 64)
    throw std::invalid_argument("a proof machine has 1 to 8 ranks of 1 to 64 threads");
  for (const u64 granule : touched_) index_[granule] = 0;
  touched_.clear();
  buffers_.clear();
  location_count_ = 0;
  used_bytes_ = gap_bytes;
  ranks_ = ranks;
  threads_a_rank_ = threads_a_rank;
}

char* ProofEngine::reserve(u32 first_rank, u32 rank_count, const std::string& area, u64 bytes,
                           u64 offset_bytes, u64 stride_bytes, const BufferTraits& traits) {
  if (rank_count > 1 && (stride_bytes % 256 != 0 || stride_bytes < bytes))
    throw std::invalid_argument("a stride is a multiple of 256 and holds the buffer");
  const u64 begin = reinterpret_cast<u64>(arena_.base()) + used_bytes_ + offset_bytes;
  for (u32 i = 0; i < rank_count; ++i) {
    const u64 at = begin + i * stride_bytes;
    buffers_.push_back({at, at + bytes, first_rank + i, area, traits});
  }
  const u64 length = offset_bytes + (rank_count - 1) * stride_bytes + bytes;
  used_bytes_ += (length + 255) / 256 * 256 + gap_bytes;
  if (used_bytes_ > arena_bytes) throw std::length_error("the proof machine's arena is full");
  return reinterpret_cast<char*>(begin);
}

const ProofEngine::Buffer* ProofEngine::buffer_at(u64 address) const {
  const auto after = std::upper_bound(buffers_.begin(), buffers_.end(), address,
                                      [](u64 a, const Buffer& buffer) { return a < buffer.begin; });
  if (after == buffers_.begin()) return nullptr;
  const Buffer& buffer = *(after - 1);
  return address < buffer.end ? &buffer : nullptr;
}

ProofEngine::Location* ProofEngine::make_location(u64 address, u32 bytes, u32 buffer) {
  if (location_count_ == locations_.size()) locations_.emplace_back();
  Location& location = locations_[location_count_++];
  location.address = address;
  location.buffer = buffer;
  location.bytes = bytes;
  location.partial = false;
  location.waited = false;
  location.writes.clear();
  location.readings.clear();
  location.seen.clear();
  location.mask = 0;
  const Buffer& home = buffers_[buffer];
  for (u32 half = 0; half < bytes / half_bytes; ++half) {
    const u64 at = address + u64{half} * half_bytes;
    if (at >= home.begin && at < home.end) location.mask |= 1u << half;
  }
  const u32 all = (1u << bytes / half_bytes) - 1;
  u64 word = home.traits.initial;
  const Party host{nobody, 0, 0, 0, all, true, Scope::system};
  const u64 offset = address < home.begin ? 0 : address - home.begin;
  bool unwritten = false;
  if (offset >= home.traits.initial_bytes) {
    unwritten = !home.traits.rest.has_value();
    word = home.traits.rest.value_or(word);
  }
  location.writes.push_back({host, word | word << 32, -1, host, unwritten});
  for (u64 at = address; at < address + bytes; at += sizeof(u32)) {
    const u64 granule = (at - reinterpret_cast<u64>(arena_.base())) / sizeof(u32);
    index_[granule] = static_cast<u32>(location_count_);
    touched_.push_back(granule);
  }
  return &location;
}

void ProofEngine::preset(void* address, u32 bytes, u64 value) {
  const u64 at = reinterpret_cast<u64>(address);
  const Buffer* buffer = buffer_at(at);
  if (buffer == nullptr || at % bytes != 0 || (bytes != 4 && bytes != 8))
    throw std::invalid_argument("preset: no such word");
  Location* location = make_location(at, bytes, static_cast<u32>(buffer - buffers_.data()));
  location->writes[0].value = value;
  location->writes[0].unwritten = false;
}

// ---------------------------------------------------------------- reports

std::string ProofEngine::name_party(u32 slot, u32 launch, u32 block) const {
  if (slot == nobody) return "the host";
  const Launch& in = program_of(rank_of(slot))[launch];
  return "rank " + std::to_string(rank_of(slot)) + " block " + std::to_string(block) + " thread " +
         std::to_string(slot % threads_a_rank_ - block * in.threads) + " in " + in.name;
}

std::string ProofEngine::name_self() const {
  std::string text = name_party(current_->slot, current_->launch, current_->thread.block);
  if (current_->last_site != nullptr) text += " (last site \"" + std::string(current_->last_site) + "\")";
  return text;
}

std::string ProofEngine::name_address(u64 address) const {
  const Buffer* buffer = buffer_at(address);
  if (buffer == nullptr) {
    // Name the nearest buffer below.
    const auto after = std::upper_bound(buffers_.begin(), buffers_.end(), address,
                                        [](u64 a, const Buffer& b) { return a < b.begin; });
    if (after == buffers_.begin()) return "an address in no buffer";
    const Buffer& below = *(after - 1);
    return "an address in no buffer, " + std::to_string(address - below.end) +
           " bytes past the end of (rank " + std::to_string(below.rank) + ", " + below.area + ")";
  }
  return "(rank " + std::to_string(buffer->rank) + ", " + buffer->area + ", offset " +
         std::to_string(address - buffer->begin) + ")";
}

void ProofEngine::fail(Failure::Kind kind, const std::string& text) {
  if (failure_) return;
  failure_ =
      Failure{kind, std::string(name_of(kind)) + ": " + text + "; seed " + std::to_string(options_.seed)};
}

std::string ProofEngine::deadlock_text() const {
  constexpr u32 most_lines = 12;
  std::string text = "nobody can run";
  u32 lines = 0;
  for (u32 slot = 0; slot < slots_; ++slot) {
    const Worker& worker = *workers_[slot];
    if (worker.state == State::idle || worker.state == State::runnable) continue;
    if (++lines > most_lines) continue;
    text += "\n  " + name_party(slot, worker.launch, worker.thread.block);
    if (worker.state == State::waiting && worker.waits_for_payload)
      text += " waits for rank " + std::to_string(worker.peer) + " in phase " + phase_name(worker.phase) +
              ": no payload yet at " + name_address(worker.waits_at->address);
    else if (worker.state == State::waiting)
      text += " waits for rank " + std::to_string(worker.peer) + " in phase " + phase_name(worker.phase) +
              ": expects " + std::to_string(worker.expected) + ", sees " + std::to_string(worker.seen) +
              " at " + name_address(worker.waits_at->address);
    else if (worker.state == State::at_previous)
      text += " waits for the kernels before it";
    else
      text += " is at a barrier that the rest of its block has not reached";
    if (worker.last_site != nullptr) text += ", site \"" + std::string(worker.last_site) + "\"";
  }
  if (lines > most_lines) text += "\n  and " + std::to_string(lines - most_lines) + " more";
  return text;
}

void ProofEngine::notify(Operation::Kind kind, const void* address, u32 bytes) {
  if (observer == nullptr) return;
  const Buffer* buffer = buffer_at(reinterpret_cast<u64>(address));
  observer->operation({kind, current_->thread.rank, buffer == nullptr ? current_->thread.rank : buffer->rank,
                       address, bytes});
}

std::optional<Change> ProofEngine::pass_site(const char* label, SiteKind kind) {
  if (label == nullptr) return std::nullopt;
  current_->last_site = label;
  if (!launch_of(*current_).contender) return std::nullopt;
  for (const PassedSite& site : sites)
    if (site.label == label && site.kind == kind) return site.change;
  // New, or the same text at another address: entries are compared as text when they are read out.
  std::optional<Change> change;
  if (options_.mutation && options_.mutation->site.kind == kind && options_.mutation->site.label == label)
    change = options_.mutation->change;
  sites.push_back({label, kind, change});
  return change;
}

// ---------------------------------------------------------------- machine calls

namespace {

// An access as a mutation leaves it.
Access mutated(Access access, std::optional<Change> change) {
  if (!change) return access;
  switch (*change) {
    case Change::relax:
      return {Order::relaxed, access.scope};
    case Change::narrow_device:
      return {access.order, Scope::device};
    case Change::narrow_block:
      return {access.order, Scope::block};
    case Change::drop:
    case Change::zero:
    case Change::keep:
      break;
  }
  return access;
}

}  // namespace

u64 ProofEngine::load(const void* address, u32 bytes, Access access, const char* site) {
  if (!switch_point()) return 0;
  const std::optional<Change> change = pass_site(site, SiteKind::acquire);
  if (change == Change::drop) return 0;
  u32 mask = 0;
  Location* location = locate(address, bytes, false, &mask);
  if (location == nullptr) return 0;
  notify(Operation::Kind::load, address, bytes);
  bool newest = false;
  return load_word(*location, mask, mutated(access, change), &newest);
}

void ProofEngine::store(void* address, u32 bytes, u64 value, Access access, const char* site) {
  if (!switch_point()) return;
  const std::optional<Change> change = pass_site(site, SiteKind::release);
  if (change == Change::drop) return;
  u32 mask = 0;
  Location* location = locate(address, bytes, true, &mask);
  if (location == nullptr) return;
  notify(access.order == Order::release ? Operation::Kind::flag : Operation::Kind::store, address, bytes);
  store_word(*location, mask, value, mutated(access, change), nullptr);
}

// Rule "atomicity": a read-modify-write reads the newest store.
void ProofEngine::add(void* address, u32 bytes, u64 addend, Access access, const char* site) {
  if (!switch_point()) return;
  const std::optional<Change> change = pass_site(site, SiteKind::generation);
  if (change == Change::drop) return;
  u32 mask = 0;
  Location* location = locate(address, bytes, true, &mask);
  if (location == nullptr) return;
  notify(Operation::Kind::store, address, bytes);
  const Write read = location->writes[newest_of(*location, mask & -mask)];
  const u64 whole = bytes == 8 ? ~u64{0} : (u64{1} << 8 * bytes) - 1;
  store_word(*location, mask, (read.value + addend) & whole, mutated(access, change), &read);
}

ProofEngine::Location* ProofEngine::poll(const u32* word, Access access, u32* seen, bool* newest) {
  u32 mask = 0;
  Location* const location = locate(word, sizeof(u32), false, &mask);
  if (location == nullptr) return nullptr;
  notify(Operation::Kind::load, word, sizeof(u32));
  *seen = static_cast<u32>(load_word(*location, mask, access, newest));
  return location;
}

// Rule "eventually": a waiting thread sees the newest store in the end, so it sleeps until there is one.
void ProofEngine::sleep_at(Location* location, Location* also, u32 expected, u32 seen, bool for_payload,
                           Phase phase, u32 peer) {
  Worker& worker = self();
  worker.waits_at = location;
  worker.waits_also_at = also;
  worker.waits_for_payload = for_payload;
  worker.expected = expected;
  worker.seen = seen;
  worker.phase = phase;
  worker.peer = peer;
  location->waited = true;
  if (also != nullptr) also->waited = true;
  block_until_runnable(State::waiting);
}

// Polls a word until reached(value); returns the value.
template <class Reached>
u32 ProofEngine::wait_until(const u32* word, Access access, Reached reached, u32 expected, bool for_payload,
                            Phase phase, u32 peer) {
  for (bool first = true;; first = false) {
    if (!first && !switch_point()) return expected;
    bool newest = false;
    u32 seen = expected;
    Location* const location = poll(word, access, &seen, &newest);
    if (location == nullptr || failure_ || reached(seen)) return seen;
    if (!newest) continue;
    sleep_at(location, nullptr, expected, seen, for_payload, phase, peer);
    if (failure_) return seen;
  }
}

void ProofEngine::wait_reached(const u32* flag, u32 expected, Access access, Phase phase, u32 peer,
                               const char* site) {
  if (!switch_point()) return;
  const std::optional<Change> change = pass_site(site, SiteKind::acquire);
  if (change == Change::drop) return;
  wait_until(
      flag, mutated(access, change), [&](u32 seen) { return static_cast<int>(seen - expected) >= 0; },
      expected, false, phase, peer);
}

u32 ProofEngine::wait_arrived(const u32* word, u32 absent, Access access, Phase phase, u32 peer) {
  if (!switch_point()) return 0;
  return wait_until(
      word, access, [&](u32 seen) { return seen != absent; }, 0, true, phase, peer);
}

u32 ProofEngine::wait_arrived_or_told(const u32* word, u32 absent, Access access, const u32* flag,
                                      u32 expected, Access flag_access, Phase phase, u32 peer,
                                      const char* site) {
  if (!switch_point()) return 0;
  const std::optional<Change> change = pass_site(site, SiteKind::acquire);
  for (bool told = change == Change::drop;;) {
    bool newest = false;
    u32 seen = 0;
    Location* const location = poll(word, access, &seen, &newest);
    if (location == nullptr || failure_ || told || seen != absent) return seen;
    // No switch between the two looks and the sleep: a store there would wake nobody.
    bool newest_flag = false;
    u32 flag_seen = 0;
    Location* const flag_location = poll(flag, mutated(flag_access, change), &flag_seen, &newest_flag);
    if (flag_location == nullptr || failure_) return seen;
    told = static_cast<int>(flag_seen - expected) >= 0;
    if (!told && newest && newest_flag) {
      sleep_at(location, flag_location, expected, flag_seen, false, phase, peer);
      if (failure_) return seen;
    }
    if (!switch_point()) return seen;
  }
}

void ProofEngine::refill(u32* word, u32 absent, Access access, const char* site) {
  if (!switch_point()) return;
  const std::optional<Change> change = pass_site(site, SiteKind::refill);
  if (change == Change::drop) return;
  u32 mask = 0;
  Location* location = locate(word, sizeof(u32), true, &mask);
  if (location == nullptr) return;
  notify(Operation::Kind::store, word, sizeof(u32));
  const u64 old = location->writes[newest_of(*location, mask & -mask)].value;
  store_word(*location, mask, change == Change::keep ? old : absent, mutated(access, change), nullptr);
}

// Also rule "kernel fence", where it holds.
void ProofEngine::wait_for_previous_kernel(const char* site) {
  if (!switch_point()) return;
  if (pass_site(site, SiteKind::previous_kernel) == Change::drop) return;
  Worker& worker = self();
  if (worker.follows_previous) return;
  const Rank& rank = rank_[worker.thread.rank];
  if (rank.ended < worker.launch) block_until_runnable(State::at_previous);
  if (failure_) return;
  join(worker.clock, rank.known.data());
  if (worker.has_pending) join(worker.clock, worker.pending);
  worker.fence = rank.fence;
  worker.follows_previous = true;
}

void ProofEngine::let_next_kernel_start() {
  if (!switch_point()) return;
  Worker& worker = self();
  Lane& lane = lane_of(worker);
  if (lane.lets_next_start[worker.thread.block]) return;
  lane.lets_next_start[worker.thread.block] = true;
  if (--lane.holding == 0) start_ready(worker.thread.rank);
}

// Rule "barrier": what any thread of the block did before is ordered before what any does after.
void ProofEngine::block_barrier(const char* site) {
  if (!switch_point()) return;
  if (pass_site(site, SiteKind::barrier) == Change::drop) return;
  Worker& worker = self();
  Barrier& barrier = lane_of(worker).barriers[worker.thread.block];
  if (barrier.arrived == 0) {
    barrier.site = site;
    std::fill(barrier.clock.begin(), barrier.clock.end(), 0);
  } else if (site != nullptr && barrier.site != nullptr && std::strcmp(site, barrier.site) != 0) {
    fail(Failure::Kind::misuse, name_self() + " meets threads of its block that are at the barrier \"" +
                                    std::string(barrier.site) + "\"");
    return;
  }
  join(barrier.clock.data(), worker.clock);
  if (++barrier.arrived < worker.thread.threads) {
    block_until_runnable(State::at_barrier);
    return;
  }
  barrier.arrived = 0;
  const u32 first = worker.slot - worker.thread.thread;
  for (u32 slot = first; slot < first + worker.thread.threads; ++slot) {
    Worker& other = worker_at(slot);
    std::copy(barrier.clock.begin(), barrier.clock.end(), other.clock);
    if (&other != &worker) make_runnable(other);
  }
}

u32 ProofEngine::choose_slot(u32 slot, const char* site) {
  if (!switch_point()) return 0;
  return pass_site(site, SiteKind::slot) ? 0 : slot;
}

// ---------------------------------------------------------------- the public face

ProofMachine::ProofMachine(u32 ranks, u32 threads_a_rank) : engine_(std::make_unique<ProofEngine>()) {
  engine_->reset(ranks, threads_a_rank);
}
ProofMachine::~ProofMachine() = default;

void ProofMachine::reset(u32 ranks, u32 threads_a_rank) {
  engine_->reset(ranks, threads_a_rank);
}

char* ProofMachine::allocate(const std::string& area, u64 bytes, u64 offset_bytes, u64 stride_bytes,
                             const BufferTraits& traits) {
  return engine_->reserve(0, engine_->rank_count(), area, bytes, offset_bytes, stride_bytes, traits);
}

char* ProofMachine::allocate_for(u32 rank, const std::string& area, u64 bytes, u64 offset_bytes,
                                 const BufferTraits& traits) {
  return engine_->reserve(rank, 1, area, bytes, offset_bytes, 0, traits);
}

void ProofMachine::preset(void* address, u32 bytes, u64 value) {
  engine_->preset(address, bytes, value);
}

std::optional<Failure> ProofMachine::run(const Program& program, const RunOptions& options) {
  return engine_->run(std::vector<const Program*>(engine_->rank_count(), &program), options);
}

std::optional<Failure> ProofMachine::run_each(const std::vector<Program>& programs,
                                              const RunOptions& options) {
  if (programs.size() != engine_->rank_count())
    throw std::invalid_argument("run_each: a program for every rank");
  std::vector<const Program*> each;
  each.reserve(programs.size());
  for (const Program& program : programs) each.push_back(&program);
  return engine_->run(std::move(each), options);
}

std::vector<SiteId> ProofMachine::sites() const {
  std::vector<SiteId> result;
  for (const auto& site : engine_->sites) {
    SiteId id{site.label, site.kind};
    if (std::find(result.begin(), result.end(), id) == result.end()) result.push_back(std::move(id));
  }
  return result;
}

std::uint64_t ProofMachine::operations() const {
  return engine_->operations;
}
std::uint64_t ProofMachine::trace_hash() const {
  return engine_->trace;
}
void ProofMachine::observe(Observer* observer) {
  engine_->observer = observer;
}

}  // namespace arb::emulator
