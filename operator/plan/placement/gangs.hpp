// SPDX-License-Identifier: Apache-2.0
// What one pass of the scheduler is given and what it answers. Values.
#pragma once

#include <chrono>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "operator/plan/placement/placement.hpp"

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
  bool copies = false;  // takes no slots: agents of several releases serve them now
};

struct RunningGang {
  std::string id;
  std::string name;
  std::string queue;
  int priority = 0;
  WallTime started{};
  // being removed: its room will come back without further action
  bool stopping = false;
  // the node and the resources of each pod
  std::vector<std::pair<std::string, observe::Resources>> pods;
};

struct SchedulerInput {
  std::vector<QueuedGang> queued;
  std::vector<RunningGang> running;
  std::vector<Room> rooms;  // what is free now
  std::map<std::string, std::vector<observe::QuotaView>>
      quotas;  // by namespace; `used` includes placements whose pods do not exist yet
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
  // the placed gangs whose pods have slots
  std::set<std::string> slotted;
  std::map<std::string, Waiting> waiting;
  // from a running gang to the name of the gang that it makes room for
  std::map<std::string, std::string> preempt;
};

}  // namespace paceline::plan
