// SPDX-License-Identifier: Apache-2.0
#include "agent/links/data_connection.hpp"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <memory>
#include <string_view>

#include "common/net/listener.hpp"

namespace paceline::agent {
namespace {

constexpr int kBacklog = 8;

struct FreeAddresses {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};

Result<std::unique_ptr<addrinfo, FreeAddresses>> numeric(const std::string& address,
                                                         std::uint16_t port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  if (::getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &list) != 0 ||
      list == nullptr)
    return fail(Code::kInvalid, Origin::kConfig, "\"" + address + "\" is no IP address");
  return std::unique_ptr<addrinfo, FreeAddresses>(list);
}

std::unexpected<Error> gone(const char* what, int error) {
  return fail(Code::kUnavailable, Origin::kSystem,
              error == 0 ? std::string("the peer closed the connection")
                         : fail_errno(what, error).error().message,
              true);
}

}  // namespace

Result<TicketBytes> read_ticket(const std::string& hex) {
  TicketBytes ticket{};
  bool good = hex.size() == 2 * kTicketBytes;
  for (std::size_t i = 0; good && i < kTicketBytes; ++i) {
    const char* const begin = hex.data() + 2 * i;
    const auto [end, error] = std::from_chars(begin, begin + 2, ticket[i], 16);
    good = error == std::errc() && end == begin + 2;
  }
  if (!good) return fail(Code::kInvalid, Origin::kProtocol, "a ticket is 64 hexadecimal digits");
  return ticket;
}

std::string ticket_text(const TicketBytes& ticket) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : ticket) {
    text += kDigits[byte >> 4U];
    text += kDigits[byte & 0xfU];
  }
  return text;
}

Result<UniqueFd> listen_on(const std::string& address, std::uint16_t port) {
  auto listener = net::listen_on({address, port}, kBacklog);
  if (!listener) {
    listener.error().message.insert(0, "for a measurement: ");
    return std::unexpected(listener.error());
  }
  return std::move(listener->socket);
}

std::uint16_t port_of(int fd) {
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &size) != 0) return 0;
  return ntohs(bound.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6*>(&bound)->sin6_port
                   : reinterpret_cast<const sockaddr_in*>(&bound)->sin_port);
}

void send_at_once(int fd) {
  const int yes = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
}

Result<UniqueFd> connect_to(const std::string& address, std::uint16_t port, const Until& until) {
  const auto where = numeric(address, port);
  if (!where) return std::unexpected(where.error());
  const addrinfo& info = **where;
  UniqueFd fd(::socket(info.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return fail_errno("a socket for a measurement", errno);
  send_at_once(fd.get());
  if (::connect(fd.get(), info.ai_addr, info.ai_addrlen) != 0) {
    if (errno != EINPROGRESS) return gone("connect", errno);
    if (auto ready = wait_for(fd.get(), POLLOUT, until); !ready)
      return std::unexpected(ready.error());
    int error = 0;
    socklen_t size = sizeof error;
    ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) return gone("connect", error);
  }
  return fd;
}

Status wait_for(int fd, short events, const Until& until) {
  constexpr std::chrono::milliseconds kSlice{100};  // how late a stop request may be noticed
  while (true) {
    if (until.stop.stop_requested()) return fail(Code::kCancelled, Origin::kSystem, "stopped");
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(until.deadline - until.clock.steady());
    if (left.count() <= 0)
      return fail(Code::kTimeout, Origin::kProtocol, "the peer took too long", true);
    pollfd entry{.fd = fd, .events = events, .revents = 0};
    const int ready = ::poll(&entry, 1, static_cast<int>(std::min(left, kSlice).count()));
    if (ready > 0) return {};
    if (ready < 0 && errno != EINTR) return fail_errno("poll", errno);
  }
}

Status send_all(int fd, std::span<const unsigned char> bytes, const Until& until) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent > 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(sent));
      // A peer that reads a byte at a time keeps the socket ready, so check the deadline here too.
      if (until.clock.steady() < until.deadline && !until.stop.stop_requested()) continue;
      if (bytes.empty()) break;
    } else if (sent < 0 && errno != EAGAIN && errno != EINTR) {
      return gone("send", errno);
    }
    if (auto ready = wait_for(fd, POLLOUT, until); !ready) return ready;
  }
  return {};
}

Status receive_all(int fd, std::span<unsigned char> bytes, const Until& until) {
  while (!bytes.empty()) {
    const ssize_t got = ::recv(fd, bytes.data(), bytes.size(), 0);
    if (got == 0) return gone("receive", 0);
    if (got > 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(got));
      if (until.clock.steady() < until.deadline && !until.stop.stop_requested()) continue;
      if (bytes.empty()) break;
    } else if (errno != EAGAIN && errno != EINTR) {
      return gone("receive", errno);
    }
    if (auto ready = wait_for(fd, POLLIN, until); !ready) return ready;
  }
  return {};
}

Status skip(int fd, std::uint64_t count, std::span<unsigned char> scratch, const Until& until) {
  while (count > 0) {
    const auto piece = static_cast<std::size_t>(std::min<std::uint64_t>(count, scratch.size()));
    if (auto got = receive_all(fd, scratch.first(piece), until); !got) return got;
    count -= piece;
  }
  return {};
}

std::vector<unsigned char> noise(std::size_t bytes) {
  std::vector<unsigned char> made(bytes);
  std::uint64_t state = 0x9e3779b97f4a7c15U;
  for (unsigned char& byte : made) {
    state ^= state << 13U;
    state ^= state >> 7U;
    state ^= state << 17U;
    byte = static_cast<unsigned char>(state >> 32U);
  }
  return made;
}

}  // namespace paceline::agent
