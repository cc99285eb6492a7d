// SPDX-License-Identifier: Apache-2.0
// Free TCP ports, and the interface of an address. Thread-safe. On failure the result is "" or 0.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/unique_fd.hpp"

namespace paceline::net {

/// Name of the interface that carries this address.
std::string interface_of(const std::string& address);

/// A TCP port of this address on which no program listens now. `preferred` if it is free;
/// otherwise, or if it is 0, a port from 20000 to 24999 that no HeldPort holds. Outgoing
/// connections do not use that range.
std::uint16_t free_port(const std::string& address, std::uint16_t preferred);

/// Keeps a port for a program that this one starts and that listens only later. While the object
/// lives, free_port does not return the port, and only a socket with SO_REUSEADDR (which servers
/// set) can listen on it. The port is 0 if none is free.
class HeldPort {
 public:
  explicit HeldPort(const std::string& address);
  std::uint16_t port() const { return port_; }

 private:
  UniqueFd socket_;
  std::uint16_t port_ = 0;
};

/// Consecutive ports, free on this address, for programs that need not know of SO_REUSEADDR. While
/// the object lives, no other PortRange of this network namespace has one of them. They are from
/// 25000 to 28999, where neither free_port nor HeldPort draws.
class PortRange {
 public:
  PortRange(const std::string& address, int count);
  /// The first of them; 0 if there are not so many.
  std::uint16_t first() const { return first_; }

 private:
  std::vector<UniqueFd> claims_;
  std::uint16_t first_ = 0;
};

}  // namespace paceline::net
