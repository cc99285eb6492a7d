// SPDX-License-Identifier: Apache-2.0
// What a cluster knows of one of its nodes: the NodeFabric that its agent published, by the API
// server, and all findings of its checks, by the agent itself where it serves them.
//
// Plain functions that block for one request each. Failure names what could not be reached and what
// to do about it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "agent/checks/check.hpp"
#include "common/base/clock.hpp"
#include "common/base/error.hpp"
#include "common/http/transport.hpp"
#include "common/kube/api/api.hpp"

namespace paceline::cli {

struct NodeOptions {
  std::string name{};             // empty: no node of a cluster
  std::string agent_namespace{};  // where the agents' Leases are; empty: paceline-agents
  std::string kubeconfig{};       // empty: $KUBECONFIG, the pod's service account, ~/.kube/config
  std::string agent{};            // https://ADDRESS:PORT of its agent; empty: the NodeFabric alone
  std::string agent_ca{};
  std::string agent_token{};  // a file
  std::string agent_name{};   // that its certificate is issued for; empty: the address
};

/// The status of the NodeFabric, whose fields are of the types that the schema says or absent.
Result<nlohmann::json> node_status(kube::Api& api, const std::string& node);

/// Whether a node's agent lives, by its Lease: of a dead one the NodeFabric stays, and tells what
/// was.
struct AgentLife {
  std::optional<bool> alive;  // absent: it could not be told
  std::string says;           // what a person should know; empty where it lives
};
AgentLife agent_life(kube::Api& api, const NodeOptions& options, WallTime now);

/// Of `/v1/checks`: read from what `paceline doctor --json` writes.
Result<std::vector<agent::Finding>> read_findings(const std::string& text);

/// The agent that the options name, as a server that is asked with a token.
Result<std::shared_ptr<kube::Api>> connect_agent(const NodeOptions& options, const Clock& clock);

/// Where and how the options reach that agent: over TLS, with a token, or kInvalid.
Result<http::ServerUrl> agent_url(const NodeOptions& options);

}  // namespace paceline::cli
