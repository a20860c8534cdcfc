#include "nccl_api/communicators.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "nccl_api/entries.h"

namespace arb::nccl {
namespace {

entry::DataType type_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::bf16:
      return entry::DataType::bfloat16;
    case Dtype::fp16:
      return entry::DataType::float16;
    case Dtype::fp32:
      break;
  }
  return entry::DataType::float32;
}

// NCCL's own text on one line; empty for none.
std::string one_line(const char* text) {
  std::string line = text == nullptr ? "" : text;
  std::ranges::replace(line, '\n', ' ');
  const std::size_t first = line.find_first_not_of(' ');
  if (first == std::string::npos) return "";
  return line.substr(first, line.find_last_not_of(' ') - first + 1);
}

std::string words_of(const entry::Entries& entries, entry::Result result, entry::Comm* comm) {
  std::string words = one_line(entries.get_error_string(result));
  const std::string detail = entries.get_last_error == nullptr ? "" : one_line(entries.get_last_error(comm));
  if (!detail.empty()) words += fmt::format(" ({})", detail);
  return words;
}

}  // namespace

UniqueId make_unique_id(const Library& library) {
  entry::UniqueId id{};
  const entry::Result result = library.entries().get_unique_id(&id);
  if (result != entry::Result::success) {
    throw Error(fmt::format("NCCL {} ({}) could not begin to set ranks up: {}", library.name(),
                            library.path(), words_of(library.entries(), result, nullptr)));
  }
  UniqueId bytes{};
  static_assert(sizeof(bytes) == sizeof(id));
  std::memcpy(bytes.data(), &id, sizeof(id));
  return bytes;
}

Communicators::Communicators(Library library, std::span<const std::uint32_t> devices)
    : library_(std::move(library)), all_ranks_(devices.size()) {
  if (devices.empty()) throw Error("NCCL needs at least one device; name the CUDA ordinals of the ranks");
  const std::vector<int> ordinals(devices.begin(), devices.end());
  for (std::size_t rank = 0; rank < ordinals.size(); ++rank) {
    if (std::ranges::count(ordinals, ordinals[rank]) > 1) {
      throw Error(fmt::format(
          "NCCL takes one rank a GPU and device {} is named twice; use at most as many ranks as GPUs",
          ordinals[rank]));
    }
  }
  comms_.resize(ordinals.size(), nullptr);
  const entry::Entries& entries = library_.entries();
  const entry::Result result =
      entries.comm_init_all(comms_.data(), static_cast<int>(ordinals.size()), ordinals.data());
  if (result != entry::Result::success) {
    // NCCL frees what it had begun; its handles are not ours to touch.
    comms_.clear();
    throw Error(fmt::format("NCCL {} ({}) could not set up {} ranks: {}", library_.name(), library_.path(),
                            ordinals.size(), words_of(entries, result, nullptr)));
  }
}

Communicators::Communicators(Library library, std::uint32_t rank, std::uint32_t count, const UniqueId& id)
    : library_(std::move(library)), first_rank_(rank), all_ranks_(count) {
  entry::UniqueId theirs{};
  std::memcpy(&theirs, id.data(), sizeof(theirs));
  entry::Comm* comm = nullptr;
  const entry::Result result =
      library_.entries().comm_init_rank(&comm, static_cast<int>(count), theirs, static_cast<int>(rank));
  if (result != entry::Result::success) {
    throw Error(fmt::format("NCCL {} ({}) could not set up rank {} of {}: {}", library_.name(),
                            library_.path(), rank, count, words_of(library_.entries(), result, nullptr)));
  }
  comms_.push_back(comm);
}

Communicators::Communicators(Communicators&& other) noexcept
    : library_(std::move(other.library_)),
      comms_(std::exchange(other.comms_, {})),
      windows_(std::exchange(other.windows_, {})),
      first_rank_(other.first_rank_),
      all_ranks_(other.all_ranks_),
      broken_(other.broken_) {}

Communicators::~Communicators() {
  try {
    if (!broken_) deregister_windows();
  } catch (const Error&) {
    broken_ = true;
  }
  if (broken_) {
    abort();
    return;
  }
  for (entry::Comm* const comm : comms_) library_.entries().comm_destroy(comm);
}

void Communicators::abort() noexcept {
  for (entry::Comm* const comm : comms_) library_.entries().comm_abort(comm);
  comms_.clear();
  windows_.clear();
}

void Communicators::expect(entry::Result result, const char* call, std::size_t rank) {
  if (result == entry::Result::success) return;
  broken_ = true;
  throw Error(fmt::format("{} failed on rank {} of {} with NCCL {}: {}", call, first_rank_ + rank, all_ranks_,
                          library_.name(), words_of(library_.entries(), result, comms_[rank])));
}

void Communicators::all_reduce(std::span<const void* const> inputs, std::span<void* const> outputs,
                               std::uint64_t count_elements, Dtype dtype, std::span<void* const> streams) {
  if (comms_.empty()) throw Error("these NCCL communicators were aborted; make new ones in a fresh process");
  if (inputs.size() != ranks() || outputs.size() != ranks() || streams.size() != ranks()) {
    throw Error(fmt::format(
        "an allreduce of {} ranks got {} inputs, {} outputs and {} streams; give one of each a rank", ranks(),
        inputs.size(), outputs.size(), streams.size()));
  }
  const entry::Entries& entries = library_.entries();
  expect(entries.group_start(), "ncclGroupStart", 0);
  entry::Result result = entry::Result::success;
  std::size_t rank = 0;
  for (; rank < ranks(); ++rank) {
    result =
        entries.all_reduce(inputs[rank], outputs[rank], count_elements, type_of(dtype), entry::Operation::sum,
                           comms_[rank], static_cast<entry::Stream*>(streams[rank]));
    if (result != entry::Result::success) break;
  }
  // An open group would swallow every later call of this thread, so it is closed also after a failure.
  const entry::Result ended = entries.group_end();
  if (result != entry::Result::success) expect(result, "ncclAllReduce", rank);
  expect(ended, "ncclGroupEnd", 0);
}

bool Communicators::register_windows(std::span<void* const> memory, std::uint64_t bytes) {
  if (!library_.window_problem().empty()) throw Error(library_.window_problem());
  if (memory.size() != ranks() || !windows_.empty()) {
    throw Error(fmt::format("a window of {} ranks got memory of {}, or there is one already", ranks(),
                            memory.size()));
  }
  const entry::Entries& entries = library_.entries();
  // NCCL fills these in when the group ends, or leaves them as they are.
  std::vector<entry::Window*> windows(ranks(), nullptr);
  expect(entries.group_start(), "ncclGroupStart", 0);
  entry::Result result = entry::Result::success;
  std::size_t rank = 0;
  for (; rank < ranks(); ++rank) {
    result = entries.comm_window_register(comms_[rank], memory[rank], bytes, &windows[rank],
                                          entry::window_symmetric);
    if (result != entry::Result::success) break;
  }
  const entry::Result ended = entries.group_end();
  if (result != entry::Result::success) expect(result, "ncclCommWindowRegister", rank);
  expect(ended, "registering windows (ncclGroupEnd)", 0);
  windows_ = std::move(windows);
  return std::ranges::find(windows_, nullptr) == windows_.end();
}

void Communicators::deregister_windows() {
  const std::vector<entry::Window*> windows = std::exchange(windows_, {});
  for (std::size_t rank = 0; rank < windows.size(); ++rank) {
    if (windows[rank] == nullptr) continue;
    expect(library_.entries().comm_window_deregister(comms_[rank], windows[rank]), "ncclCommWindowDeregister",
           rank);
  }
}

void Communicators::check() {
  for (std::size_t rank = 0; rank < ranks(); ++rank) {
    entry::Result found = entry::Result::success;
    expect(library_.entries().comm_get_async_error(comms_[rank], &found), "ncclCommGetAsyncError", rank);
    if (found != entry::Result::in_progress) expect(found, "work that NCCL had accepted", rank);
  }
}

}  // namespace arb::nccl
