// SPDX-License-Identifier: Apache-2.0
// What the roles of a gang need, and which rooms they may use. Values; pure.
#pragma once

#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "operator/plan/placement/constraints.hpp"
#include "operator/plan/placement/room.hpp"

namespace paceline::plan {

/// What one pod of a role needs, as the API server admits it: with the defaults of LimitRanges, the
/// overhead of its RuntimeClass, and what webhooks add.
struct Admitted {
  observe::Resources each;
  Constraints constraints;
  bool held = false;  // by a scheduling gate that is not Paceline's
};

/// From a pod as the API server returned it.
Result<Admitted> read_admitted(const std::string& pod);

/// One role of a gang.
struct Need {
  std::string role;
  observe::Resources each;
  Constraints constraints;
  int count = 0;
  bool accelerators = false;  // the agent's report about GPUs matters for this role
  std::string prefer = {};    // a node to take if it is as sound as the others; may be empty
  bool operator==(const Need&) const = default;
};

/// Whether the distance between pods of this role and others counts: of roles with and without
/// accelerators, that of the roles with them.
bool is_close(const Need& need, const std::vector<Need>& all);

/// Which rooms pods with some constraints may use, however much is free there. Asks each room once
/// for each kind of constraints: in one pass of the scheduler hundreds of gangs have the same.
class Allowances {
 public:
  /// By room. Every call is about the same rooms.
  const std::vector<bool>& of(const Constraints& constraints, const std::vector<Room>& rooms);

 private:
  std::deque<std::pair<Constraints, std::vector<bool>>> known_;
};

/// Why a role does not fit, counted over the nodes: "worker: 1 of 2 pods fit; of 3 nodes 1 lacks
/// cpu, 1 is cordoned". `left`, by room: how many more pods of the gang it may have.
std::string explain(const Need& need, int fitting, const std::vector<Room>& rooms,
                    const std::vector<int>& left);

}  // namespace paceline::plan
