// SPDX-License-Identifier: Apache-2.0
// Planner: the working state of one plan_job call, which all policies share. Lives for one call;
// single-threaded.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "operator/plan/job/node_guard.hpp"
#include "operator/plan/job/outcome.hpp"
#include "operator/plan/job/plan.hpp"
#include "operator/status/phase.hpp"

namespace paceline::plan {

struct ReplicaState {
  api::Replica replica;
  int incarnation = 0;
  std::string node;  // its placement
  std::string pod_name;
  std::shared_ptr<const observe::PodView> pod;  // of this incarnation; null: none was seen
  Judgement judgement;
  bool predecessor_alive = false;  // a pod of another incarnation may still run
};

class Planner {
 public:
  explicit Planner(const Observed& observed);

  const Observed& in;
  const api::Spec& spec;
  Plan out;

  WallTime now() const { return in.now; }
  api::JobStatus& status() { return out.status; }
  void set(std::string_view type, bool value, std::string_view reason, std::string message = {});
  void clear(std::string_view type, std::string_view reason, std::string message = {});
  void wake_after(std::chrono::nanoseconds delay);

  /// The present placement leaves the choice of nodes to another scheduler.
  bool placed_by_other() const { return out.status.placed() && !out.status.pod_group.empty(); }

  int incarnation(const api::Replica& replica) const;
  void set_incarnation(const api::Replica& replica, int incarnation);

  /// True if no kubelet is left to end the node's pods: the node is gone, or it has been silent for
  /// failurePolicy.forceDeleteAfter and NodeGuard counts it as lost. Otherwise plans to look again.
  bool is_lost(const std::string& node);
  /// Deletes a pod, once. Forced if its node is lost.
  void remove(const observe::PodView& pod, bool force = false);
  void remove_live_pods();
  /// Deletes a pod unless all its containers have ended. An ended pod stays for its logs, even
  /// before the kubelet reports its final phase.
  void remove_unended(const observe::PodView& pod);
  void remove_running_pods();
  /// A process of the job may still run. A pod that is over and kept by a finalizer uses no
  /// resources, and the next pods do not need its name, since they are of another incarnation.
  bool any_live_pod() const;

  /// Removes the placement and all pods. The job is queued again unless it is suspended.
  void unplace(std::string_view reason, const std::string& message, bool back_off);
  /// Asked before a pod is created for a placement on record. If an operator with another runtime
  /// contract placed the gang, removes the placement and returns true: the launchers of its pods
  /// would refuse the new one, or would not understand what it is told.
  bool changed_contract();
  /// Ends the job for good; plan_job then cleans up.
  void finish(bool success, std::string_view reason, const std::string& message);
  /// Takes over the counts and measurements of the launchers. Counts never fall.
  void absorb(const status::Report& report);
  /// Keeps what a report says of the job's time. Call it when the status is written anyway, since
  /// every report differs.
  void keep_goodput(const status::Report& report, WallTime as_of);
  void keep_checkpoint(const status::Report& report);
  /// Both, of a pod that has ended: of the job's time rank 0's word counts.
  void keep_last_words(const status::Report& report, int node_rank);
  /// The job's next pods do not count this time.
  void leave_out(std::chrono::nanoseconds pause);

 private:
  std::optional<NodeGuard> guard_;  // made when first needed
};

}  // namespace paceline::plan
