// SPDX-License-Identifier: Apache-2.0
// `paceline doctor --node NAME` and `paceline fabric --node NAME`: a node of a cluster instead of
// this machine. They change nothing. The exit code is doctor's: 0 nothing fails (what could not be
// told is shown), 1 something fails, 2 could not look (said on `err`). fabric only has 0 and 2.
// What an agent published that lives no more is shown, with its age on `err`, and ends with 2: it
// was so, and nobody looks now.
#pragma once

#include <ostream>

#include "cli/node/source.hpp"

namespace paceline::cli {

/// The conditions of the node's NodeFabric, what fails first.
int node_doctor(kube::Api& api, const NodeOptions& options, const Clock& clock, bool as_json,
                std::ostream& out, std::ostream& err);

/// Every finding, from the node's agent itself.
int agent_doctor(kube::Api& agent, bool as_json, std::ostream& out, std::ostream& err);

/// The devices of the node and the distances between them.
int node_fabric(kube::Api& api, const NodeOptions& options, const Clock& clock, bool as_json,
                std::ostream& out, std::ostream& err);

}  // namespace paceline::cli
