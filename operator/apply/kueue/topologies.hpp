// SPDX-License-Identifier: Apache-2.0
// Which domains of the network nodes are in by the Topologies of Kueue, beside those that every
// cluster's labels name. A Topology counts for the nodes of the ResourceFlavors that name it. And
// what a job's Workload asks of them.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "operator/apply/stores.hpp"
#include "operator/plan/placement/room.hpp"

namespace paceline::apply {

/// The domains of each node; they refer to the nodes. Empty if no Topology names a level, as in
/// every cluster without Kueue. A label that domain_by_labels reads wins over a Topology's. Of
/// several ResourceFlavors with such a Topology that a node belongs to, the first by name counts.
std::vector<plan::Domains> domains_by_topologies(
    const Stores& stores, const std::vector<std::shared_ptr<const observe::NodeView>>& nodes);

/// What the job's Workload is to ask of Kueue's topology; nullopt: Kueue has not said which flavors
/// the job's queue has. Kueue admits a Workload that asks only to flavors with that label. So
/// nothing is asked unless each flavor's Topology names the job's level by the same label, and no
/// other label names it on their nodes.
std::optional<api::LevelAsk> level_to_ask(const Stores& stores, const api::TrainingJob& job);

}  // namespace paceline::apply
