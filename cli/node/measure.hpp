// SPDX-License-Identifier: Apache-2.0
// `paceline measure --node A --peer B`: has the agent of A measure the way to B, and prints what it
// found. Exit 0 measured, 2 not (said on `err`, with when to come again where it was too early).
#pragma once

#include <ostream>
#include <string>

#include "cli/node/source.hpp"

namespace paceline::cli {

struct MeasureOptions {
  NodeOptions node;
  std::string peer{};
  bool json = false;
};

/// Where the agent is asked, of its NodeFabric; for options that name no address.
Result<std::string> published_agent(kube::Api& api, const std::string& node);

/// Asks with the token, over the transport, which leads to the agent.
int measure_command(http::HttpTransport& agent, const std::string& token,
                    const MeasureOptions& options, std::ostream& out, std::ostream& err);

}  // namespace paceline::cli
