// SPDX-License-Identifier: Apache-2.0
#include "share.hpp"

#include <poll.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "address.hpp"

namespace paceline::comm {
namespace {

Error memory_error(const std::string& what) {
  const int error = errno;
  return {PACELINE_ESYSTEM, -1, "shared memory: " + what + ": " + std::strerror(error)};
}

std::expected<void, Error> await(int fd, const Watch& watch, Clock::time_point deadline, std::uint32_t rank) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
  std::array<pollfd, 2> files{
      {{.fd = fd, .events = POLLIN, .revents = 0}, {.fd = watch.abort_fd(), .events = POLLIN, .revents = 0}}};
  if (left > 0) ::poll(files.data(), files.size(), static_cast<int>(std::min<std::int64_t>(left, 1'000'000)) + 1);
  if (watch.failed()) {
    const Failure failure = watch.failure();
    return std::unexpected(Error{PACELINE_COMM_EPEER, failure.rank, failure.text});
  }
  if (left <= 0)
    return std::unexpected(Error{PACELINE_COMM_EPEER, static_cast<int>(rank),
                                 "rank " + std::to_string(rank) +
                                     " has not done its part for shared memory in the time that timeout_ms allows"});
  return {};
}

// Room for one descriptor.
union Control {
  cmsghdr align;
  std::array<char, CMSG_SPACE(sizeof(int))> bytes;
};

bool send_file(int socket, int file) {
  char byte = 'm';
  iovec data{.iov_base = &byte, .iov_len = 1};
  Control control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes.data();
  message.msg_controllen = control.bytes.size();
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof file);
  std::memcpy(CMSG_DATA(header), &file, sizeof file);
  return ::sendmsg(socket, &message, MSG_NOSIGNAL) == 1;
}

Fd receive_file(int socket) {
  char byte = 0;
  iovec data{.iov_base = &byte, .iov_len = 1};
  Control control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes.data();
  message.msg_controllen = control.bytes.size();
  if (::recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT) != 1) return {};
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header == nullptr || header->cmsg_type != SCM_RIGHTS) return {};
  int file = -1;
  std::memcpy(&file, CMSG_DATA(header), sizeof file);
  return Fd(file);
}

bool is_own_user(int socket) {
  ucred credentials{};
  socklen_t length = sizeof credentials;
  return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &length) == 0 && credentials.uid == ::geteuid();
}

std::expected<void, Error> hand_out(const Fd& file, const Topology& topology, const Fd& door, const Watch& watch,
                                    Clock::time_point deadline) {
  for (std::size_t given = 1; given < topology.mates().size();) {
    if (auto waited = await(door.get(), watch, deadline, topology.mates()[given]); !waited) return waited;
    const Fd socket(::accept4(door.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (socket && is_own_user(socket.get()) && send_file(socket.get(), file.get())) ++given;
  }
  return {};
}

std::expected<Fd, Error> ask_for(const Card& card, std::uint32_t first, const Watch& watch,
                                 Clock::time_point deadline) {
  const Address where = abstract_address(card.door);
  const Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket || ::connect(socket.get(), where.get(), where.length) != 0)
    return std::unexpected(memory_error("connecting to rank " + std::to_string(first) +
                                        ", which has the same host name; give ranks that cannot share memory another"));
  if (auto waited = await(socket.get(), watch, deadline, first); !waited) return std::unexpected(waited.error());
  Fd file = receive_file(socket.get());
  if (!file) return std::unexpected(memory_error("rank " + std::to_string(first) + " gave none (another user?)"));
  return file;
}

}  // namespace

std::expected<std::unique_ptr<Region>, Error> share_region(const Topology& topology, const std::vector<Card>& cards,
                                                           const Fd& door, std::size_t chunk, const Watch& watch,
                                                           Clock::time_point deadline) {
  const auto ranks = static_cast<std::uint32_t>(topology.mates().size());
  const std::uint32_t first = topology.mates().front();
  Fd file;
  if (topology.local == 0) {
    file = Region::create(ranks, chunk);
    if (!file) return std::unexpected(memory_error("a memory file"));
    if (auto handed = hand_out(file, topology, door, watch, deadline); !handed) return std::unexpected(handed.error());
  } else {
    auto asked = ask_for(cards[first], first, watch, deadline);
    if (!asked) return std::unexpected(asked.error());
    file = std::move(*asked);
  }
  auto region = Region::map(file, ranks, chunk);
  if (region == nullptr) return std::unexpected(memory_error("mapping"));
  return region;
}

}  // namespace paceline::comm
