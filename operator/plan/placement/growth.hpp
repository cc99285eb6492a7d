// SPDX-License-Identifier: Apache-2.0
// Growth: for which gangs the cluster's autoscaler is asked for nodes, and what their placeholders
// hold meanwhile. It is told of the waiting gangs in the order of the queue, then of the running
// gangs that want to grow. Pure.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "operator/plan/placement/gangs.hpp"

namespace paceline::plan {

/// "4 pods with 8 nvidia.com/gpu, 32 cpu and 256 GiB memory each (worker)".
std::string in_words(const std::vector<Need>& needs);

class Growth {
 public:
  /// A node, and what the rest of the queue may use of it; null: no such node.
  using RoomOf = std::function<Room*(const std::string& node)>;

  /// Before the first gang: what is free on the nodes where placeholders are.
  void begin(const SchedulerInput& input, const RoomOf& room_of);
  /// A gang has got this much of a node.
  void place(const std::string& node, const observe::Resources& amount);
  /// The gang was considered, and waits. If it waits for nodes, its placeholders keep their room
  /// and their part of the quota from the gangs after it.
  void consider(const QueuedGang& gang, const Waiting& waiting, const RoomOf& room_of,
                std::vector<observe::QuotaView>& quotas, SchedulerOutput& output);

 private:
  void begin(const std::vector<Held>& held, const RoomOf& room_of);

  // What is free beside the gangs that run or start. A reservation takes nothing here: it does not
  // keep a placeholder from its node.
  std::map<std::string, observe::Resources> free_;
  int gangs_ = 0;
  int pods_ = 0;
};

}  // namespace paceline::plan
