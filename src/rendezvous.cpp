#include "rendezvous.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <numeric>
#include <system_error>

namespace arb {
namespace {

using std::chrono::milliseconds;

enum class Kind : std::uint32_t { part, all, gave_up };

constexpr std::size_t longest_doing = 96;
constexpr std::size_t most_ranks = Rendezvous::most_ranks;
// Rank 0 knows who is late: it speaks first, and the others wait so much longer for its word.
constexpr milliseconds patience_with_rank_0{2'000};

// Begins every message. One message is one packet.
struct Header {
  Kind kind;
  std::uint32_t rank;  // who speaks
  std::uint64_t step;
  std::array<char, longest_doing> doing;
  std::uint64_t descriptors;  // Kind::all: bit r: rank r gave one; they come in rank order
  std::array<std::uint32_t, most_ranks> lengths;  // Kind::all: bytes of each part
};

std::string_view doing_of(const Header& header) {
  const auto end = std::ranges::find(header.doing, '\0');
  return {header.doing.data(), static_cast<std::size_t>(end - header.doing.begin())};
}

std::string seconds_text(milliseconds time) {
  return fmt::format("{:g} s", static_cast<double>(time.count()) / 1000);
}

}  // namespace

struct Rendezvous::Message {
  Header header{};
  std::vector<std::byte> bytes;
  std::vector<Descriptor> descriptors;

  Message() = default;
  Message(Kind kind, std::uint32_t rank, std::uint64_t step, std::string_view doing) {
    header.kind = kind;
    header.rank = rank;
    header.step = step;
    std::ranges::copy(doing.substr(0, longest_doing - 1), header.doing.begin());
  }
  [[nodiscard]] std::string text() const {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
};

std::vector<std::vector<Descriptor>> make_rendezvous_sockets(std::uint32_t ranks) {
  std::vector<std::vector<Descriptor>> sockets(ranks);
  for (std::uint32_t rank = 1; rank < ranks; ++rank) {
    std::array<int, 2> pair{};
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair.data()) != 0) {
      throw std::system_error(errno, std::generic_category(), "socketpair");
    }
    sockets[0].emplace_back(pair[0]);
    sockets[rank].emplace_back(pair[1]);
  }
  return sockets;
}

Rendezvous::Rendezvous(std::uint32_t rank, std::uint32_t ranks, std::vector<Descriptor> sockets,
                       milliseconds deadline)
    : rank_(rank),
      ranks_(ranks),
      sockets_(std::move(sockets)),
      buffer_(ranks * most_bytes_a_part),
      deadline_(deadline) {
  if (ranks > most_ranks || rank >= ranks || sockets_.size() != (rank == 0 ? ranks - 1 : 1)) {
    throw RendezvousError(fmt::format("rank {} of {} was given {} sockets", rank, ranks, sockets_.size()));
  }
}

int Rendezvous::socket_of(std::uint32_t peer) const {
  return sockets_[rank_ == 0 ? peer - 1 : 0].get();
}

// Sends without waiting, since at most two packets are under way on a socket; 0 or errno.
int Rendezvous::send_packet(int socket, const Message& message, std::span<const int> descriptors) noexcept {
  std::array<iovec, 2> pieces = {iovec{const_cast<Header*>(&message.header), sizeof(Header)},
                                 iovec{const_cast<std::byte*>(message.bytes.data()), message.bytes.size()}};
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(most_ranks * sizeof(int))> control{};
  msghdr packet{};
  packet.msg_iov = pieces.data();
  packet.msg_iovlen = pieces.size();
  if (!descriptors.empty()) {
    packet.msg_control = control.data();
    packet.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* const rights = CMSG_FIRSTHDR(&packet);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(rights), descriptors.data(), descriptors.size_bytes());
  }
  while (::sendmsg(socket, &packet, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
    if (errno != EINTR) return errno;
  }
  return 0;
}

void Rendezvous::send(std::uint32_t peer, const Message& message, std::span<const int> descriptors,
                      std::string_view doing) {
  const int error = send_packet(socket_of(peer), message, descriptors);
  if (error == 0) return;
  // Gone: what it said before it went is more to the point.
  if (error == EPIPE || error == ECONNRESET) receive(peer, doing);
  give_up(fmt::format("rank {} cannot send to rank {} ({}): {}", rank_, peer, doing,
                      std::generic_category().message(error)));
}

std::uint32_t Rendezvous::first_heard(std::span<const std::uint32_t> peers, std::string_view doing,
                                      Clock::time_point until, milliseconds deadline) {
  std::array<pollfd, most_ranks> entries{};
  for (std::size_t i = 0; i < peers.size(); ++i) entries[i] = {socket_of(peers[i]), POLLIN, 0};
  for (;;) {
    const auto left = std::chrono::ceil<milliseconds>(until - Clock::now()).count();
    const int ready =
        ::poll(entries.data(), peers.size(), static_cast<int>(std::clamp<std::int64_t>(left, 0, 60'000)));
    if (ready < 0 && errno != EINTR) throw std::system_error(errno, std::generic_category(), "poll");
    for (std::size_t i = 0; ready > 0 && i < peers.size(); ++i) {
      if (entries[i].revents != 0) return peers[i];
    }
    if (Clock::now() < until) continue;
    give_up(fmt::format("rank {} waited for rank{} {} for more than {} ({})", rank_,
                        peers.size() > 1 ? "s" : "", fmt::join(peers, " and "), seconds_text(deadline),
                        doing));
  }
}

Rendezvous::Message Rendezvous::receive(std::uint32_t peer, std::string_view doing) {
  Message message;
  std::array<iovec, 2> pieces = {iovec{&message.header, sizeof(Header)},
                                 iovec{buffer_.data(), buffer_.size()}};
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(most_ranks * sizeof(int))> control{};
  msghdr packet{};
  packet.msg_iov = pieces.data();
  packet.msg_iovlen = pieces.size();
  packet.msg_control = control.data();
  packet.msg_controllen = control.size();
  ssize_t got = 0;
  do {
    // ECONNRESET says, once, that a peer went without having read everything; what it sent is still there.
    got = ::recvmsg(socket_of(peer), &packet, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  } while (got < 0 && (errno == EINTR || errno == ECONNRESET));
  if (got <= 0) give_up(fmt::format("rank {} is gone, found by rank {} ({})", peer, rank_, doing));
  for (cmsghdr* part = CMSG_FIRSTHDR(&packet); part != nullptr; part = CMSG_NXTHDR(&packet, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    for (std::size_t i = 0; i < (part->cmsg_len - CMSG_LEN(0)) / sizeof(int); ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof(int));
      message.descriptors.emplace_back(fd);
    }
  }
  if (static_cast<std::size_t>(got) < sizeof(Header) || (packet.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) {
    give_up(fmt::format("rank {} got half a message from rank {} ({})", rank_, peer, doing));
  }
  message.bytes.assign(buffer_.begin(), buffer_.begin() + static_cast<std::ptrdiff_t>(got) -
                                            static_cast<std::ptrdiff_t>(sizeof(Header)));
  if (message.header.kind == Kind::gave_up) give_up(message.text());
  return message;
}

std::vector<Rendezvous::Part> Rendezvous::exchange(std::string_view doing, std::span<const std::byte> bytes,
                                                   int descriptor) {
  if (!broken_.empty()) throw RendezvousError(broken_);
  if (bytes.size() > most_bytes_a_part) {
    give_up(fmt::format("rank {} has {} bytes to tell, and {} are the most ({})", rank_, bytes.size(),
                        most_bytes_a_part, doing));
  }
  return rank_ == 0 ? gather_and_hand_out(doing, bytes, descriptor, deadline_)
                    : give_and_get(doing, bytes, descriptor, deadline_);
}

void Rendezvous::barrier(std::string_view doing, milliseconds deadline) {
  if (!broken_.empty()) throw RendezvousError(broken_);
  if (rank_ == 0)
    gather_and_hand_out(doing, {}, -1, deadline);
  else
    give_and_get(doing, {}, -1, deadline);
}

std::vector<Rendezvous::Part> Rendezvous::gather_and_hand_out(std::string_view doing,
                                                              std::span<const std::byte> bytes,
                                                              int descriptor, milliseconds deadline) {
  const std::uint64_t step = ++step_;
  const Clock::time_point until = Clock::now() + deadline;
  Message all(Kind::all, 0, step, doing);
  std::vector<Part> parts(ranks_);
  parts[0].bytes.assign(bytes.begin(), bytes.end());
  std::vector<std::uint32_t> pending;
  for (std::uint32_t peer = 1; peer < ranks_; ++peer) pending.push_back(peer);
  while (!pending.empty()) {
    const std::uint32_t peer = first_heard(pending, doing, until, deadline);
    std::erase(pending, peer);
    Message message = receive(peer, doing);
    if (message.header.kind != Kind::part || message.header.step != step ||
        doing_of(message.header) != doing_of(all.header)) {
      give_up(fmt::format("the ranks are out of step: rank 0 is at {} ({}) and rank {} at {} ({})", step,
                          doing_of(all.header), peer, message.header.step, doing_of(message.header)));
    }
    if (!message.descriptors.empty()) parts[peer].descriptor = std::move(message.descriptors.front());
    parts[peer].bytes = std::move(message.bytes);
  }
  for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
    all.header.lengths[rank] = static_cast<std::uint32_t>(parts[rank].bytes.size());
    all.bytes.insert(all.bytes.end(), parts[rank].bytes.begin(), parts[rank].bytes.end());
  }
  for (std::uint32_t peer = 1; peer < ranks_; ++peer) {
    // All descriptors but the receiver's own.
    std::vector<int> descriptors;
    all.header.descriptors = 0;
    for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
      const int fd = rank == 0 ? descriptor : parts[rank].descriptor.get();
      if (fd < 0 || rank == peer) continue;
      all.header.descriptors |= std::uint64_t{1} << rank;
      descriptors.push_back(fd);
    }
    send(peer, all, descriptors, doing);
  }
  return parts;
}

std::vector<Rendezvous::Part> Rendezvous::give_and_get(std::string_view doing,
                                                       std::span<const std::byte> bytes, int descriptor,
                                                       milliseconds deadline) {
  Message own(Kind::part, rank_, ++step_, doing);
  own.bytes.assign(bytes.begin(), bytes.end());
  send(0, own, descriptor >= 0 ? std::span<const int>(&descriptor, 1) : std::span<const int>(), doing);
  const std::array<std::uint32_t, 1> rank_0{0};
  first_heard(rank_0, doing, Clock::now() + deadline + patience_with_rank_0, deadline);
  Message all = receive(0, doing);
  const auto& lengths = all.header.lengths;
  const std::size_t expected_bytes = std::accumulate(lengths.begin(), lengths.end(), std::size_t{0});
  if (all.header.kind != Kind::all || all.header.step != step_ || expected_bytes != all.bytes.size()) {
    give_up(fmt::format("the ranks are out of step: rank {} is at {} ({}) and rank 0 at {} ({})", rank_,
                        step_, doing, all.header.step, doing_of(all.header)));
  }
  std::vector<Part> parts(ranks_);
  auto from = all.bytes.begin();
  std::size_t next_descriptor = 0;
  for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
    const auto to = from + all.header.lengths[rank];
    parts[rank].bytes.assign(from, to);
    from = to;
    if ((all.header.descriptors >> rank & 1) != 0 && next_descriptor < all.descriptors.size()) {
      parts[rank].descriptor = std::move(all.descriptors[next_descriptor++]);
    }
  }
  return parts;
}

void Rendezvous::need_size(const Part& part, std::size_t bytes, std::string_view doing) {
  if (part.bytes.size() == bytes) return;
  give_up(fmt::format("the ranks are out of step: one tells {} bytes where rank {} tells {} ({})",
                      part.bytes.size(), rank_, bytes, doing));
}

void Rendezvous::tell_all(const std::string& sentence) noexcept {
  Message message(Kind::gave_up, rank_, step_, "");
  const auto bytes = std::as_bytes(std::span(sentence));
  message.bytes.assign(bytes.begin(), bytes.begin() + std::min<std::ptrdiff_t>(std::ssize(bytes), 2000));
  for (std::uint32_t peer = 0; peer < ranks_; ++peer) {
    if (peer == rank_ || (rank_ != 0 && peer != 0)) continue;
    // Who is gone already need not hear it.
    send_packet(socket_of(peer), message, {});
  }
}

void Rendezvous::give_up(const std::string& sentence) {
  const bool first = broken_.empty();
  broken_ = sentence;
  if (first) tell_all(sentence);
  throw RendezvousError(sentence);
}

void Rendezvous::abandon(std::string_view why) noexcept {
  if (!broken_.empty()) return;
  broken_ = fmt::format("rank {} gave up: {}", rank_, why);
  tell_all(broken_);
}

}  // namespace arb
