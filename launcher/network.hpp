// SPDX-License-Identifier: Apache-2.0
// What launchers ask of the network stack. Thread-safe. Failure reads as "" and 0.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/unique_fd.hpp"

namespace paceline::launcher {

/// Name of the interface that carries this address.
std::string interface_of(const std::string& address);

/// A TCP port that nobody listens on at this address at the moment and that no outgoing connection
/// is given: `preferred` if it is free, else (or for 0) one drawn from 20000 to 24999 that no
/// HeldPort holds.
std::uint16_t free_port(const std::string& address, std::uint16_t preferred);

/// A port as free_port draws one, kept for a program that this one starts and that listens there
/// only later: until this object ends nobody else is drawn it, and only who sets SO_REUSEADDR, as
/// servers do, can listen there. 0 where there is none.
class HeldPort {
 public:
  explicit HeldPort(const std::string& address);
  std::uint16_t port() const { return port_; }

 private:
  UniqueFd socket_;
  std::uint16_t port_ = 0;
};

}  // namespace paceline::launcher
