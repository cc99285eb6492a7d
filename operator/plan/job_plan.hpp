// SPDX-License-Identifier: Apache-2.0
// plan_job: what to do about one job now. Pure: everything it knows is in Observed, everything it
// wants is in Plan.
//
// The status in a Plan is written before any of its actions is carried out, so that attempt,
// incarnations and placement are on record before they are used and every action can be repeated by
// whoever reads the status next.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "operator/observe/views.hpp"
#include "operator/plan/scheduler.hpp"
#include "operator/status/training.hpp"

namespace paceline::plan {

/// Longest back-off after a refusal. A longer wait on record means that the clock was set back.
inline constexpr std::chrono::seconds kLongestBackOff{60};

/// How long a node where a job's preflight failed is not chosen for that job.
inline constexpr std::chrono::minutes kExclusion{60};

/// The nodes that are not to be chosen for the job now.
std::vector<std::string> excluded_nodes(const api::JobStatus& status, WallTime now);

/// What the operator knows of a job beyond the API server. Losing it in a crash costs a repetition,
/// never correctness.
struct Memory {
  std::optional<std::vector<std::string>> admission;  // of the scheduler: node per node rank
  bool admission_slots = false;                       // and with it: pods have slots there
  std::optional<Waiting> waiting;                     // of the scheduler
  std::string preempted_by;                           // of the scheduler: make room for this job
  std::map<int, std::string> replacement_nodes;       // of the scheduler, for single replicas
  std::optional<Waiting> refusal;                     // a dry run or a create was refused
  WallTime retry_at{};                                // back-off after a refusal or a time-out
  int retries = 0;
  std::set<std::string> gone;             // pods that a read just now did not find
  std::optional<status::Report> summary;  // of rank 0's launcher
  WallTime training_written{};
};

struct Observed {
  const observe::JobView& job;
  // owned by the job's UID
  std::vector<std::shared_ptr<const observe::PodView>> pods;
  // null: no such node
  std::function<std::shared_ptr<const observe::NodeView>(const std::string&)> node;
  WallTime now{};
  const Memory& memory;
  std::shared_ptr<const observe::ProfileView> profile =
      nullptr;  // the one that the job names, else the default; null: there is none
};

struct CreatePod {
  int node_rank = 0;
  int incarnation = 0;
  std::string node;
  bool gated = true;
};
struct DeletePod {
  std::string name;
  std::string uid;
  bool force = false;
  std::uint64_t version = 0;  // only while the pod is as it was seen; 0: in any case
};
struct PodRef {
  std::string name;
  std::string uid;
};

struct Plan {
  api::JobStatus status;
  std::vector<CreatePod> creates;
  std::vector<PodRef> ungates;
  std::vector<DeletePod> deletes;
  std::vector<std::string> check_gone;  // read these before believing that they are gone
  std::vector<int> find_nodes;          // node ranks whose replacement needs another node
  bool delete_job = false;
  bool queued = false;      // wants to be placed
  bool look_again = false;  // what the scheduler goes by may have changed without an event
  bool back_off = false;    // a set was removed: wait before the next try
  bool poll_training = false;
  std::optional<std::chrono::nanoseconds> requeue_after;

  bool acts() const {
    return !creates.empty() || !ungates.empty() || !deletes.empty() || delete_job;
  }
};

Plan plan_job(const Observed& observed);

}  // namespace paceline::plan
