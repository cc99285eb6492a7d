// SPDX-License-Identifier: Apache-2.0
// The two questions that the launcher has for the network stack. Stateless; thread-safe. Failure reads as "" and 0.
#pragma once

#include <cstdint>
#include <string>

namespace paceline::launcher {

/// Name of the interface that carries this address.
std::string interface_of(const std::string& address);

/// A TCP port that nobody listens on at this address at the moment and that no outgoing connection is given: `preferred` if
/// it is free, else (or for 0) one drawn from 20000 to 24999.
std::uint16_t free_port(const std::string& address, std::uint16_t preferred);

}  // namespace paceline::launcher
