// SPDX-License-Identifier: Apache-2.0
// A numeric address and a port, as flags and PACELINE_* variables give them. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/error.hpp"

namespace paceline::net {

struct Address {
  // Always numeric: a static program has no resolver for names.
  std::string host;
  std::uint16_t port = 0;
};

/// "10.0.0.7:29400" or "[fd00::7]:29400".
Result<Address> parse_address(const std::string& text);
std::string to_string(const Address& address);

}  // namespace paceline::net
