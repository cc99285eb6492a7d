// SPDX-License-Identifier: Apache-2.0
// `paceline measure --node A --peer B`: asks the agent of A to measure the link to B, and prints
// the result. Exit code 0 if measured, otherwise 2 (printed on `err`; if it was too early, with the
// time to try again).
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

/// The address of the agent, from its NodeFabric; for options that name no address.
Result<std::string> published_agent(kube::Api& api, const std::string& node);

/// Asks the agent with the token, over a transport that leads to the agent.
int measure_command(http::HttpTransport& agent, const std::string& token,
                    const MeasureOptions& options, std::ostream& out, std::ostream& err);

}  // namespace paceline::cli
