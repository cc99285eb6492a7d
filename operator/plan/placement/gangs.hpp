// SPDX-License-Identifier: Apache-2.0
// What one pass of the scheduler is given and what it answers. Values.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "operator/plan/placement/placement.hpp"

namespace paceline::plan {

/// A placeholder that has found a node.
struct Held {
  std::string pod;  // UID
  int rank = 0;     // of the replica that it holds room for: its place among the gang's needs
  std::string node;
  observe::Resources amount;
};

/// The role of a gang that may have fewer pods than its need says.
struct Elasticity {
  std::size_t need = 0;  // position in QueuedGang::needs
  int fewest = 1;        // pods
};

/// From when a gang could run, it waits until then for one domain of this level.
struct Preference {
  Level level = Level::kLeaf;
  WallTime until{};
  bool waits = false;  // an earlier pass found that it could run
};

struct QueuedGang {
  std::string id;  // job UID
  std::string name;
  std::string ns;
  std::string queue;
  int priority = 0;
  WallTime created{};
  std::vector<Need> needs;
  std::optional<int> pods_per_node = std::nullopt;  // most pods of the gang on a node
  bool copies = false;  // takes no slots: agents of several releases serve them now
  std::optional<Level> required = std::nullopt;  // no placement crosses a domain of this level
  bool may_grow = false;                         // the cluster's autoscaler can be asked for nodes
  bool by_other = false;        // another scheduler chooses its nodes: it needs quota only
  std::vector<Held> held = {};  // by its placeholders; free for this gang, and for those before it
  std::optional<Elasticity> elastic = std::nullopt;
  std::optional<Preference> preferred = std::nullopt;
};

/// A running gang that wants more pods of one role.
struct GrowingGang {
  std::string id;
  std::string ns;
  int priority = 0;
  WallTime created{};
  Need need;                                        // of the pods to add: at most `count`
  std::optional<int> pods_per_node = std::nullopt;  // most pods of the gang on a node
  std::optional<Level> required = std::nullopt;
  std::vector<std::string> nodes = {};  // of the pods that it has
  bool may_grow = false;                // as of a queued gang
  std::vector<Held> held = {};          // by placeholders of the pods to add
};

/// Room that was found for more pods of a running gang.
struct Grown {
  std::vector<std::string> nodes;
  std::string where;  // of the whole gang then: Placement::where
  bool operator==(const Grown&) const = default;
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
  std::vector<GrowingGang> growing;
  std::vector<Room> rooms;  // what is free now
  std::map<std::string, std::vector<observe::QuotaView>>
      quotas;  // by namespace; `used` includes placements whose pods do not exist yet
  WallTime now{};
  std::chrono::nanoseconds ageing = std::chrono::hours(1);
};

/// The reason of a gang about which something was thrown: a bug, which delays no other gang.
inline constexpr const char* kInternalError = "InternalError";

struct Waiting {
  std::string reason;  // WaitingForRoom, TooLarge, GpuDirectNotReady, QuotaExceeded, Preempting
  std::string message;
  // of a gang that waits for a domain of the level that it prefers: when it stops to wait for that
  std::optional<WallTime> until = std::nullopt;
  bool operator==(const Waiting&) const = default;
};

struct SchedulerOutput {
  std::map<std::string, std::vector<std::string>> placements;  // node names in node-rank order
  std::map<std::string, std::string> where;  // Placement::where of the placed gangs
  // the placed gangs whose pods have slots
  std::set<std::string> slotted;
  // why a placed gang has fewer pods than it wants
  std::map<std::string, std::string> smaller;
  std::map<std::string, Grown> grown;   // of running gangs
  std::map<std::string, Waiting> full;  // why a running gang cannot grow
  std::map<std::string, Waiting> waiting;
  // from a running gang to the name of the gang that it makes room for
  std::map<std::string, std::string> preempt;
  // the gangs, queued and running, for which more nodes would help now, and what they need in
  // words
  std::map<std::string, std::string> grow;
  // UIDs of placeholders whose room another gang has got, by the gang that they hold it for
  std::map<std::string, std::set<std::string>> displaced;
};

}  // namespace paceline::plan
