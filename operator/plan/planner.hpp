// SPDX-License-Identifier: Apache-2.0
// Planner: the working state of one plan_job call, shared by the policies, which are free functions
// over it (one per file in policies/). Lives for one call; single-threaded.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "operator/plan/job_plan.hpp"
#include "operator/plan/policies/outcome.hpp"
#include "operator/status/phase.hpp"

namespace paceline::plan {

struct ReplicaState {
  api::Replica replica;
  int incarnation = 0;
  std::string node;  // where it is placed
  std::string pod_name;
  std::shared_ptr<const observe::PodView> pod;  // of this incarnation; null: none seen
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

  int incarnation(const api::Replica& replica) const;
  void set_incarnation(const api::Replica& replica, int incarnation);

  /// Deletes a pod, once; by force where its node is lost.
  void remove(const observe::PodView& pod, bool force = false);
  void remove_live_pods();
  /// Leaves a pod whose containers have all ended, for its logs, even before the kubelet has made
  /// it terminal.
  void remove_unended(const observe::PodView& pod);
  void remove_running_pods();
  bool any_live_pod() const;

  /// Takes the placement away and removes the whole set. The job is queued again unless it is
  /// suspended.
  void unplace(std::string_view reason, const std::string& message, bool back_off);
  /// Ends the job; nothing can undo it.
  void finish(bool success, std::string_view reason, const std::string& message);
  /// Takes over what the launchers counted and measured, never falling.
  void absorb(const status::Report& report);
};

/// One policy each; true means that it decided and nothing further is to be planned.
bool after_the_end(Planner& planner);  // policies/after_the_end.cpp: clean-up and TTL
bool suspension(Planner& planner);     // policies/suspend.cpp
bool deadline(Planner& planner);       // policies/deadline.cpp
void queue_up(Planner& planner);       // policies/admission.cpp: not placed yet
// policies/survey.cpp: every replica and its pod
std::vector<ReplicaState> survey(Planner& planner);
bool create_gang(Planner& planner,
                 // policies/gang.cpp: create all, then ungate all
                 std::vector<ReplicaState>& replicas);
// policies/gang.cpp: gangTimeout
bool bind_gang(Planner& planner, const std::vector<ReplicaState>& replicas);
bool create_replacements(Planner& planner,
                         // policies/restart.cpp: what is on record and not there yet
                         const std::vector<ReplicaState>& replicas);
// policies/node_loss.cpp
bool lost_nodes(Planner& planner, const std::vector<ReplicaState>& replicas);
// policies/preflight.cpp
bool preflight(Planner& planner, const std::vector<ReplicaState>& replicas);
// policies/success.cpp
bool job_verdict(Planner& planner, const std::vector<ReplicaState>& replicas);
// policies/restart.cpp
bool replace_lost(Planner& planner, std::vector<ReplicaState>& replicas);
// policies/progress.cpp
void report_progress(Planner& planner, const std::vector<ReplicaState>& replicas);

}  // namespace paceline::plan
