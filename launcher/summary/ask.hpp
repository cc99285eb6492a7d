// SPDX-License-Identifier: Apache-2.0
// `paceline-launcher summary`: prints the summary of the launcher that runs in this container, for
// people who may `kubectl exec` here. The container's environment has its address and token.
// Blocks for a few seconds at most.
#pragma once

#include <string>

#include "common/base/error.hpp"
#include "common/net/address.hpp"

namespace paceline::summary {

/// The body of /v1/summary of the launcher that listens at `address`; of this machine if that is
/// any address.
Result<std::string> ask_launcher(const net::Address& address, const std::string& token);

}  // namespace paceline::summary
