// SPDX-License-Identifier: Apache-2.0
// Laws: what must hold of the cluster after every single change, whatever failed before. Keeps
// Facts up to date from the stream of changes and notes the first law that was broken, by name.
//
// Refers to nothing. One thread. `on_change` is called by the cluster for every change, `on_delete`
// by the operator's API before a deletion is carried out.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "common/kube/fake/cluster.hpp"
#include "tests/sim/facts.hpp"

namespace paceline::sim {

enum class Law {
  kOnePodPerReplica,  // two pods of one replica are never alive at once
  kGatesOpenAsASet,   // no gate opens before every pod of its set was created, in every attempt
  // a pod is created only as its job's status says: placed, this node, this incarnation, this
  // acceleration
  kOnRecord,
  kQueuedHoldsNothing,     // at rest a job without a place has no live pod
  kRestartBudget,          // restarts stay within failurePolicy.maxRestarts
  kCountsNeverFall,        // attempt and restarts
  kFinishedStaysFinished,  // Succeeded and Failed are for ever
  // pods that ended by themselves outlive their job unless cleanPodPolicy is All
  kKeepsLogs,
  kDeletesItsOwn,      // pods of the job only, by UID
  kForcesOnLostNodes,  // grace period 0 only where nobody is left to end the pod
  kOwned,              // every pod has its job as owner, so that none is left when the job goes
  kRoom,               // pods on a node never ask for more than it has
  kQuota,              // a gang that the quota would cut is not started
  kFewWrites,          // coming to rest takes a bounded number of writes
  kComesToRest,        // when faults stop, so do the writes
  kEveryJobEnds,       // and every job that can run has run
  kNobodyWaits,        // at rest a finished job has no live pod
  kNothingLeft,        // when the jobs are deleted
};
std::string_view name_of(Law law);

struct Broken {
  Law law;
  std::string what;
};

class Laws {
 public:
  const Facts& facts() const { return facts_; }
  /// The first law that was broken.
  const std::optional<Broken>& broken() const { return broken_; }
  void report(Law law, std::string what);

  void on_change(const kube::FakeCluster::Sight& sight);
  /// The operator asks to delete a pod.
  void on_delete(const std::string& name, const std::string& uid, bool force);
  /// Two leaders may give away the same room; the scheduler and gangTimeout settle that.
  void expect_room(bool expected) { expect_room_ = expected; }
  /// Whether the change under way is the operator's.
  void set_operator_acts(bool acts) { operator_acts_ = acts; }

 private:
  void created(const PodFacts& pod);
  void opened(const PodFacts& pod);
  void check_job(const JobFacts& before, const JobFacts& after);
  void check_room(const std::string& node);

  Facts facts_;
  std::optional<Broken> broken_;
  // by owner and node rank: the live pod
  std::map<std::pair<std::string, int>, std::string> alive_;
  std::map<std::pair<std::string, int>, std::set<int>>
      gated_;  // by owner and incarnation: ranks created behind the gate
  bool expect_room_ = true;
  bool operator_acts_ = false;
};

}  // namespace paceline::sim
