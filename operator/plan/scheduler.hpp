// SPDX-License-Identifier: Apache-2.0
// Which queued gangs start now, and where; why the others wait; which running gangs must make room.
// One pass over the whole queue, pure.
//
// Order: priority, then jobs that have waited longer than `ageing`, then the queue that has least,
// then age. The first gang that does not fit holds a reservation on the nodes it would need if all
// present gangs ended; later ones may use only what that leaves over, so they cannot delay it. A
// gang that could preempt lower priorities names whole gangs to remove, never single pods. A gang
// that quota keeps back keeps back its namespace, not the nodes.
#pragma once

#include <chrono>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "operator/plan/placement.hpp"

namespace paceline::plan {

struct QueuedGang {
  std::string id;  // job UID
  std::string name;
  std::string ns;
  std::string queue;
  int priority = 0;
  WallTime created{};
  std::vector<Need> needs;
  bool exclusive_nodes = false;
};

struct RunningGang {
  std::string id;
  std::string name;
  std::string queue;
  int priority = 0;
  WallTime started{};
  // being removed: its room comes back by itself
  bool stopping = false;
  std::vector<std::pair<std::string, observe::Resources>> pods;  // node and room of each
};

struct SchedulerInput {
  std::vector<QueuedGang> queued;
  std::vector<RunningGang> running;
  std::vector<Room> rooms;  // free now
  std::map<std::string, std::vector<observe::QuotaView>>
      quotas;  // by namespace, `used` including what is placed and not yet created
  WallTime now{};
  std::chrono::nanoseconds ageing = std::chrono::hours(1);
};

struct Waiting {
  std::string reason;  // WaitingForRoom, TooLarge, GpuDirectNotReady, QuotaExceeded, Preempting
  std::string message;
  bool operator==(const Waiting&) const = default;
};

struct SchedulerOutput {
  std::map<std::string, std::vector<std::string>> placements;  // node names in node-rank order
  // those of them that are placed with slots
  std::set<std::string> slotted;
  std::map<std::string, Waiting> waiting;
  // running gang to the name of the one it makes room for
  std::map<std::string, std::string> preempt;
};

/// The same with one slot of its node (contract::kRuntimeResource) for each pod. A gang is placed
/// so where that is possible without waiting; otherwise its pods copy the runtime, which every node
/// allows.
std::vector<Need> with_slots(std::vector<Need> needs);

SchedulerOutput schedule(SchedulerInput input);

}  // namespace paceline::plan
