// SPDX-License-Identifier: Apache-2.0
#include "common/net/listener.hpp"

#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>

#include "common/net/socket_address.hpp"

namespace paceline::net {
namespace {

/// 0, or the errno of the call that failed.
int open_listener(const Address& address, int backlog, Listener& listener) {
  const SocketAddress wanted = numeric(address.host, address.port);
  const bool v6 = wanted.storage.ss_family == AF_INET6;
  UniqueFd socket(
      ::socket(wanted.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return errno;
  const int yes = 1;
  const int no = 0;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  // The default is a setting of the machine (net.ipv6.bindv6only).
  if (v6) ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&wanted.storage), wanted.size) != 0)
    return errno;
  if (::listen(socket.get(), backlog) != 0) return errno;
  listener.port = port_of(socket);
  listener.v6 = v6;
  listener.socket = std::move(socket);
  return 0;
}

}  // namespace

Result<Listener> listen_on(const Address& address, int backlog) {
  if (numeric(address.host, address.port).size == 0) {
    return fail(Code::kInvalid, Origin::kConfig,
                "listen address \"" + address.host + "\" is not an IP address");
  }
  Listener listener;
  int error = open_listener(address, backlog, listener);
  if (address.host == "::" && (error == EAFNOSUPPORT || error == EADDRNOTAVAIL))
    error = open_listener({"0.0.0.0", address.port}, backlog, listener);
  if (error == 0) return listener;
  auto failure = fail_errno("listen on " + to_string(address), error);
  failure.error().code = error == EACCES || error == EPERM ? Code::kForbidden
                         : error == EADDRINUSE             ? Code::kAlreadyExists
                                                           : Code::kExhausted;
  return failure;
}

}  // namespace paceline::net
