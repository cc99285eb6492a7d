// SPDX-License-Identifier: Apache-2.0
// Room: one node and what is free on it. A value; what it refers to must outlive it.
#pragma once

#include "operator/observe/views.hpp"

namespace paceline::plan {

struct Room {
  const observe::NodeView* node = nullptr;
  observe::Resources free = {};
  const observe::FabricView* fabric = nullptr;  // the agent's report; null: there is none
  bool agent_alive = false;                     // by its Lease; known only while a job needs it
};

}  // namespace paceline::plan
