// SPDX-License-Identifier: Apache-2.0
// Kueue: a simulated controller with one LocalQueue. It admits the Workloads that fit its quota of
// pods, if need be in part, and evicts some. It gives quota to others only after the operator has
// given it back. A Topology names the leaves of its nodes.
#pragma once

#include <nlohmann/json.hpp>

#include "common/kube/fake/cluster.hpp"
#include "tests/sim/faulty_api.hpp"

namespace paceline::sim {

inline constexpr const char* kKueueQueue = "kueue-team";

class Kueue {
 public:
  /// Both must outlive it.
  Kueue(kube::FakeCluster& cluster, Chaos& chaos);

  /// Creates the LocalQueue, a ResourceFlavor of all nodes, and its Topology.
  void start(kube::Api& api, int pods);
  /// Admits what fits, as much of it as fits, and sometimes evicts.
  void act();

 private:
  void write(const nlohmann::json& workload, nlohmann::json status);
  void change();

  kube::FakeCluster& cluster_;
  Chaos& chaos_;
  int pods_ = 0;         // quota; 0: Kueue does not run here
  int quota_ = 0;        // of now, which an administrator may have lowered
  bool offers_ = false;  // the LocalQueue's status names its flavor
};

}  // namespace paceline::sim
