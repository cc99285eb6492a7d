// SPDX-License-Identifier: Apache-2.0
// The policies of plan_job, one per file, in the order in which plan_job asks them. A policy that
// returns true has decided: plan_job asks no further policy.
#pragma once

#include <string>
#include <vector>

#include "operator/plan/job/planner.hpp"

namespace paceline::plan {

/// after_the_end.cpp: cleans up a finished job and deletes it when its TTL ends. Does nothing if
/// the job is not finished.
void after_the_end(Planner& planner);
/// suspend.cpp
bool suspension(Planner& planner);
/// deadline.cpp: activeDeadline
bool deadline(Planner& planner);
/// admission.cpp: a job without a placement waits for one, or takes the one that was found.
void queue_up(Planner& planner);
/// alone.cpp: whether the replica's failure or loss leaves the rest of the gang running.
bool fails_alone(const api::Spec& spec, const api::Replica& replica);
/// alone.cpp: whether the gang runs, or would if the replicas that fail alone were there.
bool trains_on(const Planner& planner, const std::vector<ReplicaState>& replicas);
/// survey.cpp: every replica with its pod.
std::vector<ReplicaState> survey(Planner& planner);
/// gang.cpp: records that no pod runs yet.
void pods_start(Planner& planner, std::size_t pods);
/// gang.cpp: creates the pods that are on record and do not exist. False if none is missing.
bool create_missing(Planner& planner, const std::vector<ReplicaState>& replicas, bool gated);
/// gang.cpp: creates all pods. If they are gated, it opens all gates when the last one exists.
bool create_gang(Planner& planner, std::vector<ReplicaState>& replicas);
/// preflight.cpp: the nodes that the job may not be placed on now.
std::vector<std::string> excluded_nodes(const api::JobStatus& status, WallTime now);
/// preflight.cpp: a replica that fails alone becomes a lost one.
bool preflight(Planner& planner, std::vector<ReplicaState>& replicas);
/// mixed_releases.cpp: launchers of two releases are in one gang.
bool mixed_releases(Planner& planner, std::vector<ReplicaState>& replicas);
/// success.cpp: true if one launcher reported, now or earlier, that the whole gang has succeeded.
bool gang_succeeded(Planner& planner, const std::vector<ReplicaState>& replicas);
/// success.cpp
bool job_verdict(Planner& planner, const std::vector<ReplicaState>& replicas);
/// restart.cpp: creates the replacements that are on record and do not exist yet.
bool create_replacements(Planner& planner, const std::vector<ReplicaState>& replicas);
/// node_loss.cpp
bool lost_nodes(Planner& planner, const std::vector<ReplicaState>& replicas);
/// gang.cpp: gangTimeout
bool bind_gang(Planner& planner, const std::vector<ReplicaState>& replicas);
/// restart.cpp: puts replacements on record.
bool replace_lost(Planner& planner, std::vector<ReplicaState>& replicas);
/// progress.cpp: what the launchers measure, while node rank 0 runs.
void report_training(Planner& planner, const std::vector<ReplicaState>& replicas);
/// progress.cpp
void report_progress(Planner& planner, const std::vector<ReplicaState>& replicas);

}  // namespace paceline::plan
