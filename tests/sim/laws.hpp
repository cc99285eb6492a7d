// SPDX-License-Identifier: Apache-2.0
// Laws: what must hold for the cluster after every single change, whatever failed before. Updates
// Facts from the stream of changes and records the first broken law by name.
//
// One thread. The cluster calls `on_change` for every change; the operator's API calls `on_delete`
// before it carries out a deletion.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "common/base/clock.hpp"
#include "common/kube/fake/cluster.hpp"
#include "operator/apply/warnings/warned_nodes.hpp"
#include "tests/sim/facts.hpp"

namespace paceline::sim {

enum class Law {
  kOnePodPerReplica,  // two pods of one replica are never alive at once
  kGatesOpenAsASet,   // no gate opens before every pod of its set was created, in every attempt
  kTakenBackAsASet,   // if a pod of a new set is refused, the whole set goes
  // a pod is created only as its job's status says: placed, on this node, with this incarnation,
  // this acceleration and this account of time, and not on a node that the job avoids. A
  // placeholder is created only for a job that has not ended, and that has no placement or fewer
  // workers than it wants
  kOnRecord,
  kQueuedHoldsNothing,  // at rest a job without a placement has no live pod
  kRestartBudget,       // restarts stay within failurePolicy.maxRestarts
  kRestartsHaveACause,  // each is a failure of the job's own; evictions by others are free
  kFailuresCost,        // the replacement of a pod that failed by itself costs a restart
  kGoesAlone,           // a gang trains on without the replicas that it does not wait for
  kNamesMissingImages,  // a job names the image that cannot be pulled, within a minute
  // attempt, restarts, disruptions, the time that is accounted for, and the step that was saved
  kCountsNeverFall,
  kFinishedStaysFinished,  // Succeeded and Failed are final
  // pods that ended by themselves outlive their job unless cleanPodPolicy is All
  kKeepsLogs,
  kDeletesItsOwn,      // pods of the job only, by UID
  kForcesOnLostNodes,  // a grace period of 0 only if no kubelet is left to end the pod
  kNotInAnOutage,      // no pod is deleted by force while most nodes are silent together
  kHonoursTaints,      // without faults, no pod is created for a node that is tainted or cordoned
  kOneLeaf,            // the pods of a job that requires one leaf are under one
  kWithinBounds,       // an elastic job has from minReplicas to maxReplicas workers
  kOneSize,            // no pod is created beside one that waits for a gang of another size
  kOneSpec,            // all live pods of a gang come from one spec
  kRunsOnce,           // a gang that has reported success does not lose its placement
  kOwned,              // every pod has its job as owner, so that no pod outlives the deleted job
  kRoom,               // pods on a node never request more than it has
  kOwnPorts,           // no two live pods of a node declare the same port of it
  kQuota,              // a gang of which the quota admits only a part is not started
  // a pod that another scheduler binds is created only while its PodGroup exists, and a PodGroup
  // goes only when no pod of its job lives
  kInItsGroup,
  kKueueQuota,    // a job of Kueue has no more live pods than its Workload reserves quota for
  kFewWrites,     // coming to rest takes a bounded number of writes
  kComesToRest,   // within ten minutes after the last fault the writes stop
  kEveryJobEnds,  // by then every job that can run has run
  // while nodes of a gang that trains are only cordoned or tainted, it keeps its pods, its place
  // and its counts
  kMarksCostNothing,
  kWarnsInTime,     // it is told of a node that is cordoned, within a minute
  kWarnsSparingly,  // it is told of marked nodes only, and not of the same ones twice at once
  kSavesOnce,       // its ranks save once for each mark
  kStraysGo,        // at rest no pod lives that a late request created, and that is not on record
  kAsksSparingly,   // while the operator lacks a right, it asks for it a few times a minute
  kNamesMissingRights,  // and says of a job which one it lacks
  kNobodyWaits,         // at rest a finished job has no live pod
  kNothingLeft,         // no object of a job is left when the jobs are deleted
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
  /// A gang starts anew in its pods, and nobody is to blame.
  void on_restart(const std::string& uid, int attempt);
  /// The API server refuses to create this pod.
  void on_refusal(const nlohmann::json& pod);
  /// A pod's container was killed for want of memory, or the pod exceeded a limit of its own.
  void on_kill(const PodFacts& pod, bool oom);
  /// A rank failed, which its launchers count. `attempt`: of the gang after that.
  void on_failure(const std::string& uid, int attempt);
  /// Whether the launchers of this job have all come together, and have lost none that they await.
  void on_training(const std::string& uid, bool trains);
  /// Rank 0's launcher of this job is told that these nodes may soon be lost.
  void on_warning(const std::string& uid, const apply::Warnings& warned, SteadyTime now);
  bool was_told(const std::string& uid, const std::string& node) const {
    return told_.contains(uid) && told_.at(uid).contains(node);
  }
  /// The ranks of this job have saved because it may lose these nodes. `host`: a number of the life
  /// of rank 0's launcher, which alone knows for which nodes they have.
  void on_save(const std::string& uid, int host, const std::vector<std::string>& nodes);
  /// A new operator starts, which knows of no refusal and may complete a set. It knows of no
  /// warning either.
  void on_new_operator() {
    refused_.clear();
    asked_.clear();
  }
  /// Two leaders may place two gangs on the same room. The scheduler and gangTimeout resolve that.
  void expect_room(bool expected) { expect_room_ = expected; }
  /// True if caches never lag, so that the operator knows what is true.
  void expect_knowledge(bool expected) { expect_knowledge_ = expected; }
  /// True if faults have stopped and the operator has seen the present state.
  void set_at_peace(bool peace) { at_peace_ = peace; }
  /// True if the operator makes the current change.
  void set_operator_acts(bool acts) { operator_acts_ = acts; }
  /// True while a request is carried out that was sent long ago.
  void set_late(bool late) { late_ = late; }

 private:
  bool is_on_record(const PodFacts& pod) const;
  void follow_node(const nlohmann::json& object, bool gone);
  void follow_placeholder(const PodFacts& pod, bool gone, bool made);
  void created(const PodFacts& pod);
  void opened(const PodFacts& pod);
  void check_job(const JobFacts& before, const JobFacts& after);
  void check_restarts(const JobFacts& before, const JobFacts& after);
  void check_alone(const JobFacts& before, const JobFacts& after);
  void check_spares(const JobFacts& before, const JobFacts& after);
  bool holds_together(const JobFacts& job) const;
  void follow(const PodFacts& pod, bool gone);
  void check_room(const std::string& node, bool with_foreign);
  void check_ports(const PodFacts& pod, bool with_foreign);
  void note_untouched(const std::string& uid);
  void follow_untouched(const PodFacts& pod, bool gone);
  void check_untouched(const JobFacts& before, const JobFacts& after);
  void follow_marks(const NodeFacts& node, const NodeFacts* before);
  int live_pods(const std::string& owner) const;
  void follow_workload(const nlohmann::json& workload, bool gone);
  void follow_group(const nlohmann::json& group, bool gone);

  Facts facts_;
  std::optional<Broken> broken_;
  // by owner and node rank: the live pod
  std::map<std::pair<std::string, int>, std::string> alive_;
  std::map<std::pair<std::string, int>, std::set<int>>
      gated_;  // by owner and incarnation: the ranks created behind the gate
  // jobs of which a pod was refused while its set was created, by UID
  std::set<std::string> refused_;
  std::map<std::string, int> failures_;  // by UID of the job: its own failures
  std::map<std::string, int> attempts_;  // by UID of the job: as its launchers count
  std::set<std::string> killed_;         // pods that failed by themselves, by UID
  std::set<std::string> gathered_;       // jobs whose launchers say that they train
  std::set<std::string> training_;       // of those, the ones whose status has said so since then
  // jobs whose gangs train, and to which nothing has happened since but marks of their nodes
  std::set<std::string> untouched_;
  struct Asked {
    SteadyTime at;
    apply::Warnings warned;
  };
  std::map<std::string, Asked> asked_;                 // by UID of the job: the last warning
  std::map<std::string, std::set<std::string>> told_;  // by UID of the job: the nodes of it
  std::map<std::string, int> closings_;                // by node: how often it was marked
  std::map<std::tuple<std::string, int, std::string>, int>
      saved_for_;  // by job, life of its host and node: the last mark that its ranks saved for
  // jobs whose Workload reserves quota, by UID: for how many pods
  std::map<std::string, int> reserved_;
  bool expect_room_ = true;
  bool expect_knowledge_ = false;
  bool at_peace_ = false;
  // by owner and node rank: the incarnation that was recorded at peace
  std::map<std::pair<std::string, int>, int> recorded_at_peace_;
  bool operator_acts_ = false;
  bool late_ = false;
  std::set<std::string> gone_nodes_;  // names of nodes that were once deleted
};

}  // namespace paceline::sim
