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

Handshake handshake_to(const PeerInfo& peer, std::uint32_t from, std::uint32_t purpose,
                       std::uint32_t flow) {
  Handshake handshake;
  std::copy_n(peer.nonce.begin(), handshake.nonce.size(), handshake.nonce.begin());
  handshake.from = from;
  handshake.purpose = purpose;
  handshake.flow = flow;
  return handshake;
}

bool shows_nonce(const Handshake& handshake, const PeerInfo& mine) {
  const Handshake proper;
  return handshake.magic == proper.magic &&
         std::equal(mine.nonce.begin(), mine.nonce.end(), handshake.nonce.begin());
}

base::Fd start_connecting(const PeerInfo& mine, const PeerInfo& peer, std::size_t endpoint) {
  const Address where =
      numeric_address(peer.endpoints[endpoint].address, peer.endpoints[endpoint].port);
  errno = EINVAL;
  if (where.length == 0) return {};
  base::Fd socket(::socket(where.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return {};
  prompt(socket);
  // With one network device the kernel chooses the route. With several, bind to this device's
  // address.
  const Address from = numeric_address(mine.endpoints[endpoint].address, 0);
  if (mine.endpoints.size() > 1 && from.storage.ss_family == where.storage.ss_family) {
    const int on = 1;  // connect chooses the port, which may be in use for other peers
    ::setsockopt(socket.get(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
    if (::bind(socket.get(), from.get(), from.length) != 0) return {};
  }
  if (::connect(socket.get(), where.get(), where.length) != 0 && errno != EINPROGRESS) return {};
  return socket;
}

int send_handshake(const base::Fd& socket, const PeerInfo& peer, std::uint32_t from,
                   std::uint32_t purpose, std::uint32_t flow) {
  int error = 0;
  socklen_t length = sizeof error;
  ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &length);
  if (error != 0) return error;
  const Handshake handshake = handshake_to(peer, from, purpose, flow);
  // The send buffer of a new connection always has room for the handshake.
  errno = EIO;
  return ::send(socket.get(), &handshake, sizeof handshake, MSG_NOSIGNAL) ==
                 static_cast<ssize_t>(sizeof handshake)
             ? 0
             : errno;
}

base::Fd accept_next(const base::Fd& listener) {
  base::Fd socket(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (socket) prompt(socket);
  return socket;
}

HandshakeRead read_handshake(PendingConnection& caller, const PeerInfo& mine,
                             Handshake& handshake) {
  const ssize_t got = ::recv(caller.socket.get(), caller.bytes.data() + caller.got,
                             caller.bytes.size() - caller.got, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return HandshakeRead::kIncomplete;
  if (got <= 0) return HandshakeRead::kWrong;
  caller.got += static_cast<std::size_t>(got);
  if (caller.got < caller.bytes.size()) return HandshakeRead::kIncomplete;
  std::memcpy(&handshake, caller.bytes.data(), sizeof handshake);
  return shows_nonce(handshake, mine) ? HandshakeRead::kComplete : HandshakeRead::kWrong;
}

}  // namespace paceline::comm
