// What an emulated run can end with, and what can be planted to make it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "engine.h"

namespace arb::emulator {

struct Failure {
  enum class Kind : std::uint8_t {
    race,           // two accesses, one a store, not ordered and not morally strong
    deadlock,       // nobody can run
    out_of_bounds,  // outside every buffer, in a peer's private one, or a store to a read-only one
    unwritten,      // a load of memory that nobody has written
    misuse,         // a barrier that not all threads reach, one word used with several sizes
    endless,        // too many operations
    wrong_value,    // found by the checks after a run, not by the machine
  };
  Kind kind;
  std::string text;  // who, where, what, in one or several lines
};

constexpr std::string_view name_of(Failure::Kind kind) {
  switch (kind) {
    case Failure::Kind::race:
      return "race";
    case Failure::Kind::deadlock:
      return "deadlock";
    case Failure::Kind::out_of_bounds:
      return "out of bounds";
    case Failure::Kind::unwritten:
      return "unwritten";
    case Failure::Kind::misuse:
      return "misuse";
    case Failure::Kind::endless:
      return "endless";
    case Failure::Kind::wrong_value:
      break;
  }
  return "wrong value";
}

// An ordering call of a kernel: Site("label") together with what it labels.
struct SiteId {
  std::string label;
  SiteKind kind;

  friend bool operator==(const SiteId&, const SiteId&) = default;
};

// What can be done to a site.
enum class Change : std::uint8_t {
  drop,           // the call does nothing
  relax,          // it orders nothing, but still stores or waits
  narrow_device,  // it orders within its GPU only
  narrow_block,   // it orders within its block only
  zero,           // a slot is always 0
  keep,           // a refill stores again what was there
};

constexpr std::string_view name_of(Change change) {
  switch (change) {
    case Change::drop:
      return "drop";
    case Change::relax:
      return "relax";
    case Change::narrow_device:
      return "narrow to device";
    case Change::narrow_block:
      return "narrow to block";
    case Change::keep:
      return "keep the old word";
    case Change::zero:
      break;
  }
  return "always slot 0";
}

struct Mutation {
  SiteId site;
  Change change;
};

}  // namespace arb::emulator
