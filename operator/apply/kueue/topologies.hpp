// SPDX-License-Identifier: Apache-2.0
// Which domains of the network nodes are in by the Topologies of Kueue, beside those that every
// cluster's labels name. A Topology counts for the nodes of the ResourceFlavors that name it.
#pragma once

#include <memory>
#include <vector>

#include "operator/apply/stores.hpp"
#include "operator/plan/placement/room.hpp"

namespace paceline::apply {

/// The domains of each node; they refer to the nodes. Empty if no Topology names a level, as in
/// every cluster without Kueue. A label that domain_by_labels reads wins over a Topology's. Of
/// several ResourceFlavors with such a Topology that a node belongs to, the first by name counts.
std::vector<plan::Domains> domains_by_topologies(
    const Stores& stores, const std::vector<std::shared_ptr<const observe::NodeView>>& nodes);

}  // namespace paceline::apply
