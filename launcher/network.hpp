// SPDX-License-Identifier: Apache-2.0
// Interfaces and free ports, as the launcher and `paceline run` need them. Thread-safe. Failure is
// returned as "" or 0.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/unique_fd.hpp"

namespace paceline::launcher {

/// Name of the interface that has this address.
std::string interface_of(const std::string& address);

/// A TCP port at this address that has no listener and that the kernel gives to no outgoing
/// connection. It is `preferred` if that port is free. Otherwise, or if `preferred` is 0, it is
/// drawn from 20000 to 24999 and held by no HeldPort.
std::uint16_t free_port(const std::string& address, std::uint16_t preferred);

/// Reserves a port for a program that this process starts and that listens later. While this object
/// lives, free_port draws the port for no other caller, and only a socket with SO_REUSEADDR, as
/// servers set it, can listen there. The port is 0 if none was free.
class HeldPort {
 public:
  explicit HeldPort(const std::string& address);
  std::uint16_t port() const { return port_; }

 private:
  UniqueFd socket_;
  std::uint16_t port_ = 0;
};

}  // namespace paceline::launcher
