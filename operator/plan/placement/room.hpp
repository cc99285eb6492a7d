// SPDX-License-Identifier: Apache-2.0
// Room: one node and what is free on it. A value; what it refers to must outlive it.
#pragma once

#include <array>
#include <string_view>

#include "operator/observe/views.hpp"

namespace paceline::plan {

/// The names of a node's domains by api::TopologyLevel; empty: nothing names them.
using Domains = std::array<std::string_view, api::kTopologyLevels.size()>;

struct Room {
  const observe::NodeView* node = nullptr;
  observe::Resources free = {};
  const observe::FabricView* fabric = nullptr;  // the agent's report; null: there is none
  bool agent_alive = false;                     // by its Lease; known only while a job needs it
  // where Kueue's Topologies name more levels; null: the node's own domains count
  const Domains* domains = nullptr;
};

}  // namespace paceline::plan
