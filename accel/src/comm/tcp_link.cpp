// SPDX-License-Identifier: Apache-2.0
#include "tcp_link.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace paceline::comm {

Striped::Striped(std::vector<Fd> flows, std::uint32_t peer, Watch& watch) : peer_(peer), watch_(watch) {
  for (Fd& flow : flows) flows_.push_back({std::move(flow), flows_.size() * kStripe});
}

std::size_t Striped::holds() const {
  if (flows_.size() != 1) return 0;
  int room = 0;
  socklen_t length = sizeof room;
  ::getsockopt(flows_.front().connection.get(), SOL_SOCKET, SO_SNDBUF, &room, &length);
  // The kernel counts more than the bytes, and the other side's buffer takes so much from the start.
  constexpr int kMost = 16 * 1024;
  return static_cast<std::size_t>(std::min(room / 8, kMost));
}

template <typename Move>
Striped::Moved Striped::move_flow(Flow& flow, std::uint64_t end, std::size_t& left, const Move& move_some) {
  bool some = false;
  while (flow.next < end) {
    const std::uint64_t stripe_end = (flow.next / kStripe + 1) * kStripe;
    const std::size_t want = std::min(stripe_end, end) - flow.next;
    const ssize_t moved = move_some(flow.connection.get(), flow.next - position_, want);
    if (moved < 0 && errno == EINTR) continue;
    if (moved < 0 && errno == EAGAIN) break;
    if (moved <= 0) {
      watch_.broken(peer_, moved < 0 ? std::strerror(errno) : "closed by that side");
      return Moved::kBroken;
    }
    some = true;
    left -= static_cast<std::size_t>(moved);
    flow.next += static_cast<std::uint64_t>(moved);
    if (flow.next == stripe_end) flow.next += (flows_.size() - 1) * kStripe;
  }
  return some ? Moved::kSome : Moved::kBlocked;
}

bool Striped::wait(std::uint64_t end, short event) {
  std::vector<pollfd> files{{.fd = watch_.abort_fd(), .events = POLLIN, .revents = 0}};
  for (const Flow& flow : flows_)
    if (flow.next < end) files.push_back({.fd = flow.connection.get(), .events = event, .revents = 0});
  using std::chrono::milliseconds;
  const auto left = std::chrono::duration_cast<milliseconds>(watch_.deadline() - Clock::now()).count();
  if (left <= 0) {
    watch_.late(peer_);
    return false;
  }
  ::poll(files.data(), files.size(), static_cast<int>(std::min<std::int64_t>(left, 1'000'000)) + 1);
  return !watch_.failed();
}

template <typename Move>
bool Striped::move(std::size_t size, short event, const Move& move_some) {
  const std::uint64_t end = position_ + size;
  std::size_t left = size;
  while (left > 0) {
    bool some = false;
    for (Flow& flow : flows_) {
      const Moved moved = move_flow(flow, end, left, move_some);
      if (moved == Moved::kBroken) return false;
      some = some || moved == Moved::kSome;
    }
    if (left > 0 && !some && !wait(end, event)) return false;
    if (watch_.failed()) return false;
  }
  position_ = end;
  return true;
}

bool TcpSender::send(const std::byte* data, std::size_t size) {
  return striped_.move(size, POLLOUT, [data](int fd, std::size_t at, std::size_t want) {
    return ::send(fd, data + at, want, MSG_DONTWAIT | MSG_NOSIGNAL);
  });
}

bool TcpReceiver::receive(std::byte* data, std::size_t size) {
  return striped_.move(size, POLLIN, [data](int fd, std::size_t at, std::size_t want) {
    return ::recv(fd, data + at, want, MSG_DONTWAIT);
  });
}

}  // namespace paceline::comm
