// The memory model: which writes a load may return, what synchronises, and what is a race. docs/emulator.md
// explains the rules named here.
#include <algorithm>
#include <array>
#include <cstddef>

#include "proof_engine.h"

namespace arb::emulator {

ProofEngine::Location* ProofEngine::locate(const void* address, u32 bytes, bool is_store, u32* mask) {
  const u64 at = reinterpret_cast<u64>(address);
  const u64 arena = reinterpret_cast<u64>(arena_.base());
  const char* verb = is_store ? "store" : "load";
  const auto refuse = [&](Failure::Kind kind, const std::string& why) -> Location* {
    fail(kind, std::string(verb) + " of " + std::to_string(bytes) + " bytes at " + name_address(at) + why +
                   " by " + name_self());
    return nullptr;
  };
  if (at % bytes != 0) return refuse(Failure::Kind::misuse, ", which is not aligned to them,");
  if (at < arena || at >= arena + used_bytes_) return refuse(Failure::Kind::out_of_bounds, "");
  const u64 granule = (at - arena) / sizeof(u32);
  Location* location = nullptr;
  if (index_[granule] != 0) {
    location = &locations_[index_[granule] - 1];
  } else {
    const Buffer* buffer = buffer_at(at);
    if (buffer == nullptr) return refuse(Failure::Kind::out_of_bounds, "");
    location = make_location(bytes == 8 ? at : at / sizeof(u32) * sizeof(u32), bytes == 8 ? 8 : 4,
                             static_cast<u32>(buffer - buffers_.data()));
  }
  // Rule "one size": a word of 8 bytes is never accessed by its halves, nor two words together.
  if ((location->bytes == 8) != (bytes == 8) || (bytes == 8 && location->address != at))
    return refuse(Failure::Kind::misuse, ", a word that is also used with another size,");
  *mask = ((1u << bytes / half_bytes) - 1) << (at - location->address) / half_bytes;
  if ((*mask & ~location->mask) != 0) return refuse(Failure::Kind::out_of_bounds, "");
  const Buffer& home = buffers_[location->buffer];
  if (!home.traits.shared && home.rank != current_->thread.rank)
    return refuse(Failure::Kind::out_of_bounds, ", private to that rank,");
  if (is_store && !home.traits.writable && launch_of(*current_).contender)
    return refuse(Failure::Kind::out_of_bounds, ", which a kernel may only read,");
  return location;
}

bool ProofEngine::includes(const Party& a, const Party& b) const {
  if (a.scope == Scope::system || b.slot == nobody) return true;
  if (rank_of(a.slot) != rank_of(b.slot)) return false;
  return a.scope == Scope::device || (a.launch == b.launch && a.block == b.block);
}

ProofEngine::Party ProofEngine::party_of(const Worker& worker, u32 mask, Access access) const {
  return {worker.slot, worker.clock[worker.slot], worker.launch, worker.thread.block,
          mask,        is_strong(access.order),   access.scope};
}

// Rule "race": overlapping accesses, one of them a store, that happens-before does not order must be morally
// strong (PTX 8.6): both strong, each in the other's scope, the same bytes.
bool ProofEngine::check_writes(const Location& location, const Party& party, bool is_store) {
  if (!options_.races_fail) return true;
  const Worker& worker = *current_;
  for (const Write& write : location.writes) {
    if ((write.party.mask & party.mask) == 0 || knows(worker, write.party.slot, write.party.epoch) ||
        morally_strong(write.party, party))
      continue;
    fail(Failure::Kind::race, std::string(is_store ? "store" : "load") + " at " +
                                  name_address(location.address) + " by " + name_self() +
                                  " is not ordered with the store by " +
                                  name_party(write.party.slot, write.party.launch, write.party.block));
    return false;
  }
  return true;
}

bool ProofEngine::check_readings(const Location& location, const Party& party) {
  if (!options_.races_fail) return true;
  const Worker& worker = *current_;
  for (const Party& reading : location.readings) {
    if ((reading.mask & party.mask) == 0 || knows(worker, reading.slot, reading.epoch) ||
        morally_strong(reading, party))
      continue;
    fail(Failure::Kind::race, "store at " + name_address(location.address) + " by " + name_self() +
                                  " is not ordered with the load by " +
                                  name_party(reading.slot, reading.launch, reading.block));
    return false;
  }
  return true;
}

// Rule "stores in order": for words that are written by turns, a store that does not follow the newest one in
// its thread's view is a race even where both are strong.
bool ProofEngine::check_order(const Location& location, const Party& party) {
  if (!options_.races_fail || !party.strong || !buffers_[location.buffer].traits.stores_in_order) return true;
  for (u32 i = 0; i < location.bytes / half_bytes; ++i) {
    if ((party.mask >> i & 1) == 0) continue;
    const u32 newest = newest_of(location, 1u << i);
    if (floor_of(*current_, location, 1u << i) >= newest) continue;
    const Party& other = location.writes[newest].party;
    fail(Failure::Kind::race, "store at " + name_address(location.address) + " by " + name_self() +
                                  " neither follows nor precedes the store by " +
                                  name_party(other.slot, other.launch, other.block));
    return false;
  }
  return true;
}

long ProofEngine::keep_clock(const u32* clock) {
  released_.insert(released_.end(), clock, clock + slots_);
  return static_cast<long>(released_.size() / slots_) - 1;
}

// A thread has read `write`, which releases a clock.
void ProofEngine::read_release(const Write& write, const Party& party, Order order) {
  if (write.released < 0 || !mutual(write.releasing, party)) return;
  Worker& worker = *current_;
  const u32* clock = released_.data() + static_cast<std::size_t>(write.released) * slots_;
  if (order == Order::acquire) {
    // Rule "synchronises": an acquire that reads from a release, each in the other's scope, knows what the
    // releaser knew.
    join(worker.clock, clock);
  } else if (order == Order::relaxed && options_.boundaries_are_fences) {
    // Rule "kernel fence": a relaxed load acquires at the next fence.
    long& newest = worker.newest_pending[rank_of(write.releasing.slot)];
    if (newest == write.released) return;
    newest = write.released;
    worker.has_pending = true;
    join(worker.pending, clock);
  }
}

u32 ProofEngine::newest_of(const Location& location, u32 half) const {
  u32 i = static_cast<u32>(location.writes.size()) - 1;
  while ((location.writes[i].party.mask & half) == 0) --i;
  return i;
}

// Rule "coherence": a load returns no write older than the newest one that the thread knows, nor than one
// that a load known to the thread has returned.
u32 ProofEngine::floor_of(const Worker& worker, const Location& location, u32 half) const {
  u32 floor = static_cast<u32>(location.writes.size()) - 1;
  while (floor > 0) {
    const Party& party = location.writes[floor].party;
    if ((party.mask & half) != 0 && knows(worker, party.slot, party.epoch)) break;
    --floor;
  }
  for (const Seen& seen : location.seen)
    if ((seen.mask & half) != 0 && seen.write > floor && knows(worker, seen.slot, seen.epoch))
      floor = seen.write;
  return floor;
}

u64 ProofEngine::load_word(Location& location, u32 mask, Access access, bool* newest) {
  Worker& worker = self();
  ++worker.clock[worker.slot];
  const Party party = party_of(worker, mask, access);
  if (!check_writes(location, party, false)) return 0;

  const bool may_be_stale = is_strong(access.order) || !options_.races_fail;
  const u32 halves = location.bytes / half_bytes;
  std::array<u32, 4> chosen{};
  *newest = true;
  const auto draw = [&](u32 half) {
    const u32 last = newest_of(location, half);
    // A weak load without a race is ordered with every store: the newest is the only one left.
    if (!may_be_stale) return last;
    const u32 floor = floor_of(worker, location, half);
    if (floor == last || random_.below(4) >= staleness_) return last;
    u32 pick = floor + random_.below(last - floor + 1);
    while ((location.writes[pick].party.mask & half) == 0) --pick;
    return pick;
  };
  if (!location.partial) {
    chosen.fill(draw(mask & -mask));
    *newest = chosen[0] + 1 == location.writes.size();
  } else {
    for (u32 i = 0; i < halves; ++i)
      if ((mask >> i & 1) != 0) chosen[i] = draw(1u << i);
    // Rule "word atomicity": a store of a whole word is seen whole. A half may not be older than a whole-word
    // store that the other half was taken from.
    for (u32 i = 0; i < halves; ++i)
      for (u32 j = 0; j < halves; ++j)
        if ((mask >> i & 1) != 0 && (mask >> j & 1) != 0 && chosen[j] < chosen[i] &&
            (location.writes[chosen[i]].party.mask >> j & 1) != 0)
          chosen[j] = chosen[i];
    for (u32 i = 0; i < halves; ++i)
      if ((mask >> i & 1) != 0 && chosen[i] != newest_of(location, 1u << i)) *newest = false;
  }

  u64 value = 0;
  u32 shift = 0;
  for (u32 i = 0; i < halves; ++i) {
    if ((mask >> i & 1) == 0) continue;
    const Write& write = location.writes[chosen[i]];
    if (write.unwritten && options_.races_fail) {
      fail(Failure::Kind::unwritten, "load at " + name_address(location.address) + " by " + name_self() +
                                         " of memory that nobody has written");
      return 0;
    }
    value |= (write.value >> 16 * i & 0xffff) << shift;
    shift += 16;
    read_release(write, party, access.order);
  }

  const auto reading = std::find_if(location.readings.begin(), location.readings.end(), [&](const Party& p) {
    return p.slot == party.slot && p.mask == mask && p.strong == party.strong && p.scope == party.scope;
  });
  if (reading == location.readings.end())
    location.readings.push_back(party);
  else
    *reading = party;
  if (may_be_stale) {
    for (u32 i = 0; i < halves; ++i) {
      if ((mask >> i & 1) == 0) continue;
      const u32 covers = location.partial ? 1u << i : mask;
      const auto last = std::find_if(location.seen.rbegin(), location.seen.rend(), [&](const Seen& seen) {
        return seen.slot == worker.slot && (seen.mask & covers) == covers;
      });
      if (last == location.seen.rend() || last->write != chosen[i])
        location.seen.push_back({worker.slot, party.epoch, covers, chosen[i]});
      if (!location.partial) break;
    }
  }
  trace = (trace ^ value) * 0x100000001b3u;
  return value;
}

void ProofEngine::store_word(Location& location, u32 mask, u64 value, Access access, const Write* passes_on) {
  Worker& worker = self();
  ++worker.clock[worker.slot];
  const Party party = party_of(worker, mask, access);
  if (!check_writes(location, party, true) || !check_readings(location, party)) return;
  if (passes_on == nullptr && !check_order(location, party)) return;
  Write write{party, 0, -1, party, false};
  u32 shift = 0;
  for (u32 i = 0; i < location.bytes / half_bytes; ++i)
    if ((mask >> i & 1) != 0) {
      write.value |= (value >> shift & 0xffff) << 16 * i;
      shift += 16;
    }
  if (access.order == Order::release) {
    // Rule "cumulativity": a release carries all that its thread knows, also what it learnt from barriers and
    // acquires.
    write.released = keep_clock(worker.clock);
  } else {
    // Rule "kernel fence": a relaxed store releases what its thread knew at the last fence. An update also
    // passes on the release that it read.
    if (is_strong(access.order)) write.released = worker.fence;
    if (passes_on != nullptr && passes_on->released >= 0) {
      if (write.released < 0 || write.released == passes_on->released) {
        write.released = passes_on->released;
        write.releasing = passes_on->releasing;
      } else {
        const auto clock_at = [&](long index) {
          return released_.begin() + static_cast<std::ptrdiff_t>(index) * slots_;
        };
        std::vector<u32> both(clock_at(write.released), clock_at(write.released) + slots_);
        join(both.data(), &*clock_at(passes_on->released));
        write.released = keep_clock(both.data());
      }
    }
  }
  if (mask != (1u << location.bytes / half_bytes) - 1) location.partial = true;
  // Rule "order of execution": stores to a word enter its coherence order as they are executed.
  location.writes.push_back(write);
  if (location.waited) {
    location.waited = false;
    for (u32 slot = 0; slot < slots_; ++slot) {
      Worker& other = worker_at(slot);
      if (other.state == State::waiting && (other.waits_at == &location || other.waits_also_at == &location))
        make_runnable(other);
    }
  }
}

}  // namespace arb::emulator
