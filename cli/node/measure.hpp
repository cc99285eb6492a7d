// SPDX-License-Identifier: Apache-2.0
// How `paceline measure --node A --peer B` reaches the agent of A: with a token, over TLS; without
// one, by `kubectl exec` in the agent's pod, which asks itself. People who may exec there need
// neither a token nor a route to the pods.
#pragma once

#include <string>
#include <vector>

#include "cli/node/source.hpp"

namespace paceline::cli {

struct MeasureOptions {
  NodeOptions node;
  std::string peer{};
  bool json = false;
};

/// The address of the agent, from its NodeFabric; for options that name no address.
Result<std::string> published_agent(kube::Api& api, const std::string& node);

/// The words of the `kubectl exec`. The pod is the holder of the agent's Lease.
Result<std::vector<std::string>> exec_in_agent(kube::Api& api, const MeasureOptions& options);

}  // namespace paceline::cli
