// SPDX-License-Identifier: Apache-2.0
// `paceline doctor --node NAME` and `paceline fabric --node NAME` show a node of a cluster instead
// of this machine. They change nothing. Exit codes: 0 nothing fails (unknown results are shown), 1
// a check fails, 2 the node could not be read (printed on `err`). fabric uses only 0 and 2. If the
// agent's lease has expired, they show its last report, print its age on `err`, and exit with 2.
#pragma once

#include <ostream>

#include "cli/node/source.hpp"

namespace paceline::cli {

/// The conditions of the node's NodeFabric, failures first.
int node_doctor(kube::Api& api, const NodeOptions& options, const Clock& clock, bool as_json,
                std::ostream& out, std::ostream& err);

/// All findings, from the node's agent itself.
int agent_doctor(kube::Api& agent, bool as_json, std::ostream& out, std::ostream& err);

/// The devices of the node and the distances between them.
int node_fabric(kube::Api& api, const NodeOptions& options, const Clock& clock, bool as_json,
                std::ostream& out, std::ostream& err);

}  // namespace paceline::cli
