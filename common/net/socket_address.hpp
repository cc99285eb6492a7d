// SPDX-License-Identifier: Apache-2.0
// Addresses as the system calls for sockets take them. Pure, but for `port_of`.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>

#include "common/base/unique_fd.hpp"

namespace paceline::net {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;  // 0: the text is no numeric address
};

SocketAddress numeric(const std::string& address, std::uint16_t port);

/// The port that the socket is bound to; 0 on failure.
std::uint16_t port_of(const UniqueFd& socket);

}  // namespace paceline::net
