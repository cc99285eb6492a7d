// SPDX-License-Identifier: Apache-2.0
// The policies of plan_job, one per file, in the order in which plan_job asks them. A policy that
// returns true has decided: plan_job asks no further policy.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/failure/rules.hpp"
#include "operator/plan/job/planner.hpp"

namespace paceline::plan {

/// after_the_end.cpp: cleans up a finished job and deletes it when its TTL ends. Does nothing if
/// the job is not finished.
void after_the_end(Planner& planner);
/// suspend.cpp: true if the spec was changed while the job was placed: suspended, edited and
/// resumed before the operator looked. Statuses of older operators have no fingerprint.
bool spec_changed(const Planner& planner);
/// suspend.cpp
bool suspension(Planner& planner);
/// deadline.cpp: activeDeadline
bool deadline(Planner& planner);
/// resize.cpp: the replicas of each role in a gang of so many pods; empty if the spec does not
/// allow such a gang.
std::vector<int> sizes_of(const api::Spec& spec, std::size_t pods);
/// resize.cpp: status.elastic of elastic jobs, and of no others.
void note_elastic(Planner& planner);
/// resize.cpp: records the size of a placement. `why`: it is not as large as wanted.
void record_size(Planner& planner, int size, const std::string& why);
/// resize.cpp: what status.elastic says of a job with so many of the wanted replicas; "" if it has
/// all.
std::string runs_smaller(int size, int wanted, const std::string& why);
/// What status.elastic says of a job of Kueue with fewer replicas than wanted.
inline constexpr const char* kAdmitsNoMore =
    "Kueue has admitted no more; suspend the job and resume it to ask anew";
/// resize.cpp: pods of the former size may still exist.
bool stops_old_size(const Planner& planner);
/// resize.cpp: waits until the gang of the former size has saved and is gone.
bool stops_for_resize(Planner& planner, const std::vector<ReplicaState>& replicas);
/// resize.cpp: goes on without the lost replicas that no node takes (Plan::find_nodes). `nodes`: of
/// all replicas, as far as there are any. `what` was lost.
bool shrink(Planner& planner, const std::vector<std::string>& nodes, const std::string& what);
/// resize.cpp: gives a running gang the size that the spec wants, if there is room.
bool resize(Planner& planner, const std::vector<ReplicaState>& replicas);
/// kueue.cpp: whether a job without a placement must wait for Kueue's admission.
bool waits_for_quota(Planner& planner);
/// kueue.cpp: Kueue has taken back the quota of the placement.
bool quota_lost(Planner& planner);
/// kueue.cpp: what Kueue has to be told of the job. Called when all else is decided.
void tend_workload(Planner& planner);
/// other_scheduler.cpp: whether the PodGroup of the last placement has to go first.
bool waits_for_last_group(Planner& planner);
/// other_scheduler.cpp: if another scheduler chooses the nodes of a placement that is recorded now,
/// records that, and that the gang waits for it.
void leave_to_other(Planner& planner);
/// other_scheduler.cpp: no pod is bound yet, and as long as that is so nothing bounds the wait.
bool waits_for_other(Planner& planner, const std::vector<ReplicaState>& replicas);
/// other_scheduler.cpp: deletes the unbound pods that keep off a node which their job no longer
/// avoids. False: there are none.
bool ask_again(Planner& planner, const std::vector<ReplicaState>& replicas);
/// other_scheduler.cpp: records the nodes of a gang that the other scheduler has bound whole.
void note_nodes(Planner& planner, const std::vector<ReplicaState>& replicas);
/// other_scheduler.cpp: the PodGroup goes with the last pod. Called when all else is decided.
void tend_pod_group(Planner& planner);
/// admission.cpp: a job without a placement waits for one, or takes the one that was found.
void queue_up(Planner& planner);
/// provision.cpp: what a waiting job is told, with what its placeholders have reached.
Waiting told_of_growth(const Planner& planner, Waiting waiting);
/// provision.cpp: creates the placeholders of a job for which more nodes would help, and removes
/// all others.
void provision(Planner& planner);
/// alone.cpp: whether the replica's failure or loss leaves the rest of the gang running.
bool fails_alone(const api::Spec& spec, const api::Replica& replica);
inline bool is_evaluator(const api::Spec& spec, const api::Replica& replica) {
  return spec.roles[static_cast<std::size_t>(replica.role)].kind == api::RoleKind::kEvaluator;
}
/// alone.cpp: the replica's pod runs, or has done its work.
inline bool is_present(const ReplicaState& state) {
  return state.judgement.outcome == Outcome::kRunning ||
         state.judgement.outcome == Outcome::kSucceeded;
}
/// alone.cpp: the gang trains without the replicas that are away. They fail alone, and no more of
/// those with spares are away than there are spares.
bool enough_there(const api::Spec& spec, const std::vector<ReplicaState>& replicas);
/// alone.cpp: the job runs if rank 0's launcher says that spares have the places of all replicas
/// that are away.
void note_stand_ins(Planner& planner, const std::vector<ReplicaState>& replicas);
/// alone.cpp: the gang starts again before these lost replicas are replaced, as spares take their
/// places.
bool does_without(const api::Spec& spec, const std::vector<const ReplicaState*>& lost);
/// alone.cpp: others of the lost ones are replaced now. Until these are, they have no node on
/// record, since theirs may be given to another. If the loss of those with pods is `charged` with
/// the others', their pods go.
void leave_for_later(Planner& planner, const std::vector<const ReplicaState*>& lost, bool charged,
                     std::vector<std::string>& nodes);
/// alone.cpp: the replica has no node on record. Its loss is charged already, so its next pod costs
/// nothing, and if its last one is still there, that one has to go.
bool is_paid_for(const Planner& planner, const ReplicaState& state);
/// alone.cpp: the gang does not run, and will without the replicas that are lost.
bool gathers_without(const Planner& planner, const std::vector<ReplicaState>& replicas);
/// alone.cpp: no node takes node rank 0, whose place no spare can take. So a spare leaves its node.
/// False: there is none, or others are away, too.
bool vacate_for_host(Planner& planner, const std::vector<ReplicaState>& replicas);
/// alone.cpp: whether the gang runs, or would if the replicas that fail alone were there.
bool trains_on(const Planner& planner, const std::vector<ReplicaState>& replicas);
/// survey.cpp: every replica with its pod.
std::vector<ReplicaState> survey(Planner& planner);
/// gang.cpp: records that no pod runs yet.
void pods_start(Planner& planner, std::size_t pods);
/// gang.cpp: pods are created open, and not all of them are bound yet.
bool starts_open(const Planner& planner);
/// gang.cpp: creates the pods that are on record and do not exist. False if none is missing.
bool create_missing(Planner& planner, const std::vector<ReplicaState>& replicas, bool gated);
/// gang.cpp: creates all pods. If they are gated, it opens all gates when the last one exists.
bool create_gang(Planner& planner, std::vector<ReplicaState>& replicas);
/// exclusion.cpp: the nodes that the job may not be placed on now.
std::vector<std::string> excluded_nodes(const api::JobStatus& status, WallTime now);
/// exclusion.cpp: the node is ready, and the job does not avoid it.
bool takes_new_pods(const Planner& planner, const std::string& node);
/// exclusion.cpp: keeps the job away from the node of a replica whose pod failed there. False: this
/// pod's failure is on record.
bool exclude_node(Planner& planner, const ReplicaState& state);
/// rules.cpp: the rule of failurePolicy that decides about the replica's lost pod; nullopt: none.
std::optional<failure::Decision> rule_for(const Planner& planner, const ReplicaState& state);
/// disruptions.cpp: true if failurePolicy.maxDisruptions allows no further one: the job has failed.
bool disruptions_exhausted(Planner& planner, const std::string& what);
/// preflight.cpp: a replica that fails alone becomes a lost one.
bool preflight(Planner& planner, std::vector<ReplicaState>& replicas);
/// mixed_releases.cpp: launchers of two releases are in one gang.
bool mixed_releases(Planner& planner, std::vector<ReplicaState>& replicas);
/// success.cpp: true if one launcher reported, now or earlier, that the whole gang has succeeded.
bool gang_succeeded(Planner& planner, const std::vector<ReplicaState>& replicas);
/// success.cpp
bool job_verdict(Planner& planner, const std::vector<ReplicaState>& replicas);
/// replacements.cpp: the condition that tells of replacements on record which do not exist yet;
/// empty if there are none.
std::string_view replacing(Planner& planner);
/// replacements.cpp: the replica stays away: an operator with another runtime contract placed the
/// gang, whose launchers would refuse it. A gang does not stop for an evaluator, or for one that
/// has a spare.
bool left_out(const Planner& planner, const api::Replica& replica);
/// replacements.cpp: creates the replacements that are on record and do not exist yet.
bool create_replacements(Planner& planner, const std::vector<ReplicaState>& replicas);
/// node_loss.cpp
bool lost_nodes(Planner& planner, const std::vector<ReplicaState>& replicas);
/// gang.cpp: gangTimeout
bool bind_gang(Planner& planner, const std::vector<ReplicaState>& replicas);
/// restart.cpp: puts replacements on record.
bool replace_lost(Planner& planner, std::vector<ReplicaState>& replicas);
/// progress.cpp: what the launchers measure, while node rank 0 runs.
void report_training(Planner& planner, const std::vector<ReplicaState>& replicas);
/// progress.cpp: the same of a gang that trains, with all its pods or with spares in their places.
void report_if_it_trains(Planner& planner, const std::vector<ReplicaState>& replicas);
/// progress.cpp
void report_progress(Planner& planner, const std::vector<ReplicaState>& replicas);

}  // namespace paceline::plan
