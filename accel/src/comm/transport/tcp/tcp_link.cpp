// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/tcp/tcp_link.hpp"

#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "comm/transport/address.hpp"

namespace paceline::comm {
namespace {

constexpr std::uint64_t kAligned = 64;

void ask_when_idle(const base::Fd& socket, std::chrono::milliseconds heartbeat_timeout) {
  const auto seconds =
      static_cast<int>(std::chrono::duration_cast<std::chrono::seconds>(heartbeat_timeout).count());
  const int idle = std::max(seconds / 2, 1);
  const int interval = std::max(seconds / 8, 1);
  const int times = std::max((seconds - idle) / interval, 1);
  const int on = 1;
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_KEEPCNT, &times, sizeof times);
  ::setsockopt(socket.get(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
}

}  // namespace

Striped::Striped(std::vector<base::Fd> flows, std::uint32_t peer, FailureDetector& detector)
    : peer_(peer), detector_(detector) {
  for (base::Fd& flow : flows) flows_.push_back({std::move(flow), 0});
  stripe(0);
}

void Striped::ask_when_idle(std::chrono::milliseconds heartbeat_timeout) const {
  for (const Flow& flow : flows_) comm::ask_when_idle(flow.connection, heartbeat_timeout);
}

void Striped::stripe(std::uint32_t flows) {
  used_ = flows == 0 ? flows_.size() : std::min<std::uint64_t>(flows, flows_.size());
  stripe_ = std::max(kAllStripes / used_ / kAligned * kAligned, kLeastStripe);
  position_ = 0;
  for (std::size_t i = 0; i < flows_.size(); ++i) flows_[i].next = i * stripe_;
}

std::size_t Striped::buffer_bytes() const {
  if (flows_.size() != 1) return 0;
  int room = 0;
  socklen_t length = sizeof room;
  ::getsockopt(flows_.front().connection.get(), SOL_SOCKET, SO_SNDBUF, &room, &length);
  // The kernel counts more than the payload, and the receive buffer holds this much from the start.
  constexpr int kMost = 16 * 1024;
  return static_cast<std::size_t>(std::min(room / 8, kMost));
}

template <typename Move>
Striped::Moved Striped::move_flow(Flow& flow, std::uint64_t end, std::size_t& left,
                                  const Move& move_some) {
  bool some = false;
  while (flow.next < end) {
    const std::uint64_t stripe_end = (flow.next / stripe_ + 1) * stripe_;
    const std::size_t want = std::min(stripe_end, end) - flow.next;
    const ssize_t moved = move_some(flow.connection.get(), flow.next - position_, want);
    if (moved < 0 && errno == EINTR) continue;
    if (moved < 0 && errno == EAGAIN) break;
    if (moved <= 0) {
      const std::string why = moved < 0 ? std::strerror(errno) : "closed by that side";
      detector_.connection_broke(peer_,
                                 why + " (from " + local_address(flow.connection.get()) + ")");
      return Moved::kBroken;
    }
    some = true;
    left -= static_cast<std::size_t>(moved);
    flow.next += static_cast<std::uint64_t>(moved);
    if (flow.next == stripe_end) flow.next += (used_ - 1) * stripe_;
  }
  return some ? Moved::kSome : Moved::kBlocked;
}

bool Striped::wait(std::uint64_t end, short event) {
  std::vector<pollfd> files{{.fd = detector_.abort_fd(), .events = POLLIN, .revents = 0}};
  for (std::size_t i = 0; i < used_; ++i)
    if (const Flow& flow = flows_[i]; flow.next < end)
      files.push_back({.fd = flow.connection.get(), .events = event, .revents = 0});
  const auto waiting = detector_.may_wait(peer_);
  if (!waiting) return false;
  using std::chrono::milliseconds;
  const auto left =
      std::chrono::duration_cast<milliseconds>(detector_.deadline() - Clock::now()).count();
  ::poll(files.data(), files.size(),
         static_cast<int>(std::clamp<std::int64_t>(left, 0, 1'000'000)) + 1);
  return !detector_.failed();
}

template <typename Move>
bool Striped::move(std::size_t size, short event, const Move& move_some) {
  const std::uint64_t end = position_ + size;
  std::size_t left = size;
  while (left > 0) {
    bool some = false;
    for (std::size_t i = 0; i < used_; ++i) {
      const Moved moved = move_flow(flows_[i], end, left, move_some);
      if (moved == Moved::kBroken) return false;
      some = some || moved == Moved::kSome;
    }
    if (left > 0 && !some && !wait(end, event)) return false;
    if (detector_.failed()) return false;
  }
  position_ = end;
  return true;
}

bool TcpSender::send(const std::byte* data, std::size_t size) {
  return striped_.move(size, POLLOUT, [data](int fd, std::size_t at, std::size_t want) {
    return ::send(fd, data + at, want, MSG_DONTWAIT | MSG_NOSIGNAL);
  });
}

TcpReceiver::TcpReceiver(std::vector<base::Fd> flows, std::uint32_t peer, FailureDetector& detector)
    : striped_(std::move(flows), peer, detector) {
  striped_.ask_when_idle(detector.heartbeat_timeout());
}

bool TcpReceiver::receive(std::byte* data, std::size_t size) {
  return striped_.move(size, POLLIN, [data](int fd, std::size_t at, std::size_t want) {
    return ::recv(fd, data + at, want, MSG_DONTWAIT);
  });
}

}  // namespace paceline::comm
