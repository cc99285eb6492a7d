// SPDX-License-Identifier: Apache-2.0
// Numeric socket addresses, IPv4 and IPv6.
//
// Ownership: values. Threads: pure, except own_address and local_address, which ask the system.
// Failure: length 0.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstdint>
#include <string>

namespace paceline::comm {

struct Address {
  sockaddr_storage storage{};
  socklen_t length = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

Address numeric_address(const std::string& text, std::uint16_t port);
Address abstract_address(const std::string& name);  // a local socket that has no file
std::string own_address();                          // the first address that is up, else loopback
std::string local_address(int socket);              // of this end of a connection

}  // namespace paceline::comm
