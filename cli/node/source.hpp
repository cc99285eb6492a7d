// SPDX-License-Identifier: Apache-2.0
// What a cluster knows about one of its nodes: the NodeFabric that its agent published (from the
// API server), and all findings of its checks (from the agent itself, if it serves them).
//
// Plain functions that block for one request each. Errors name what could not be reached and what
// to do.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "agent/inspect/inspect.hpp"
#include "common/base/clock.hpp"
#include "common/base/error.hpp"
#include "common/http/transport.hpp"
#include "common/kube/api/api.hpp"

namespace paceline::cli {

struct NodeOptions {
  std::string name{};             // empty: this machine, not a node
  std::string agent_namespace{};  // of the agents' Leases; empty: paceline-agents
  std::string kubeconfig{};       // empty: $KUBECONFIG, the pod's service account, ~/.kube/config
  std::string agent{};            // https://ADDRESS:PORT of its agent; empty: the NodeFabric alone
  std::string agent_ca{};
  std::string agent_token{};  // a file
  std::string agent_name{};   // the name in its certificate; empty: the address
};

/// The status of the NodeFabric. Every field is absent or of the type that the schema demands.
Result<nlohmann::json> node_status(kube::Api& api, const std::string& node);

/// Whether a node's agent is alive, by its Lease. The NodeFabric of a dead agent stays and shows
/// the past.
struct AgentLife {
  std::optional<bool> alive;  // nullopt: unknown
  std::string says;           // what to tell the user; empty if it is alive
};
AgentLife agent_life(kube::Api& api, const NodeOptions& options, WallTime now);

/// Reads `/v1/checks`, which has the format of `paceline doctor --json`.
Result<std::vector<agent::Finding>> read_findings(const std::string& text);

/// The agent that the options name, as a server that needs a token.
Result<std::shared_ptr<kube::Api>> connect_agent(const NodeOptions& options, const Clock& clock);

/// How to reach that agent: over TLS, with a token; otherwise kInvalid.
Result<http::ServerUrl> agent_url(const NodeOptions& options);

}  // namespace paceline::cli
