// SPDX-License-Identifier: Apache-2.0
#include "comm/bootstrap/handshake.hpp"

#include <netinet/tcp.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "comm/transport/address.hpp"

namespace paceline::comm {
namespace {

void prompt(const base::Fd& socket) {
  const int on = 1;
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

}  // namespace

Hello hello_to(const Card& peer, std::uint32_t from, std::uint32_t purpose, std::uint32_t flow) {
  Hello hello;
  std::copy_n(peer.nonce.begin(), hello.nonce.size(), hello.nonce.begin());
  hello.from = from;
  hello.purpose = purpose;
  hello.flow = flow;
  return hello;
}

bool is_proper(const Hello& hello, const Card& mine) {
  const Hello proper;
  return hello.magic == proper.magic &&
         std::equal(mine.nonce.begin(), mine.nonce.end(), hello.nonce.begin());
}

base::Fd dial(const Card& mine, const Card& peer, std::size_t endpoint) {
  const Address where =
      numeric_address(peer.endpoints[endpoint].address, peer.endpoints[endpoint].port);
  errno = EINVAL;
  if (where.length == 0) return {};
  base::Fd socket(::socket(where.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return {};
  prompt(socket);
  // With one device the system knows the way; of several, what leaves is to leave through this one.
  const Address from = numeric_address(mine.endpoints[endpoint].address, 0);
  if (mine.endpoints.size() > 1 && from.storage.ss_family == where.storage.ss_family) {
    const int on = 1;  // the port is chosen by connect: it may be in use for other peers
    ::setsockopt(socket.get(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
    if (::bind(socket.get(), from.get(), from.length) != 0) return {};
  }
  if (::connect(socket.get(), where.get(), where.length) != 0 && errno != EINPROGRESS) return {};
  return socket;
}

int greet(const base::Fd& socket, const Card& peer, std::uint32_t from, std::uint32_t purpose,
          std::uint32_t flow) {
  int error = 0;
  socklen_t length = sizeof error;
  ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &length);
  if (error != 0) return error;
  const Hello hello = hello_to(peer, from, purpose, flow);
  // A fresh connection takes so little at once.
  errno = EIO;
  return ::send(socket.get(), &hello, sizeof hello, MSG_NOSIGNAL) ==
                 static_cast<ssize_t>(sizeof hello)
             ? 0
             : errno;
}

base::Fd answer(const base::Fd& door) {
  base::Fd socket(::accept4(door.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (socket) prompt(socket);
  return socket;
}

Heard hear(Caller& caller, const Card& mine, Hello& hello) {
  const ssize_t got = ::recv(caller.socket.get(), caller.bytes.data() + caller.got,
                             caller.bytes.size() - caller.got, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return Heard::kMore;
  if (got <= 0) return Heard::kStranger;
  caller.got += static_cast<std::size_t>(got);
  if (caller.got < caller.bytes.size()) return Heard::kMore;
  std::memcpy(&hello, caller.bytes.data(), sizeof hello);
  return is_proper(hello, mine) ? Heard::kAll : Heard::kStranger;
}

}  // namespace paceline::comm
