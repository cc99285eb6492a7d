// SPDX-License-Identifier: Apache-2.0
#include "common/net/socket_address.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>

namespace paceline::net {

SocketAddress numeric(const std::string& address, std::uint16_t port) {
  SocketAddress result;
  auto* v4 = reinterpret_cast<sockaddr_in*>(&result.storage);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&result.storage);
  if (::inet_pton(AF_INET, address.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(port);
    result.size = sizeof *v4;
  } else if (::inet_pton(AF_INET6, address.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(port);
    result.size = sizeof *v6;
  }
  return result;
}

std::uint16_t port_of(const UniqueFd& socket) {
  SocketAddress own;
  own.size = sizeof own.storage;
  if (!socket.valid() ||
      ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&own.storage), &own.size) != 0)
    return 0;
  return ntohs(own.storage.ss_family == AF_INET
                   ? reinterpret_cast<const sockaddr_in*>(&own.storage)->sin_port
                   : reinterpret_cast<const sockaddr_in6*>(&own.storage)->sin6_port);
}

}  // namespace paceline::net
