// SPDX-License-Identifier: Apache-2.0
// What plan_job knows of one job (Observed) and what it wants (Plan). Values.
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
#include "operator/plan/placement/gangs.hpp"
#include "operator/status/training.hpp"

namespace paceline::plan {

/// The longest back-off after a refusal. A longer recorded wait means that the clock was set back.
inline constexpr std::chrono::seconds kLongestBackOff{60};

/// How long a job avoids a node where its preflight failed.
inline constexpr std::chrono::minutes kExclusion{60};

/// What the operator knows of a job beyond the API server. Losing it in a crash costs a repetition,
/// never correctness.
struct Memory {
  // from the scheduler: a node for each node rank
  std::optional<std::vector<std::string>> admission;
  bool admission_slots = false;                  // with `admission`: pods have slots there
  std::optional<Waiting> waiting;                // of the scheduler
  std::string preempted_by;                      // from the scheduler: make room for this job
  std::map<int, std::string> replacement_nodes;  // from the scheduler, for single replicas
  std::string no_replacement_node;  // from the scheduler: why a replica has no node yet
  std::optional<Waiting> refusal;   // a dry run or a create was refused
  WallTime retry_at{};              // back-off after a refusal or a time-out
  int retries = 0;
  std::set<std::string> gone;             // pods that the API server no longer has
  std::optional<status::Report> summary;  // from rank 0's launcher
  WallTime summary_at{};                  // when `summary` was read
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
      nullptr;  // the profile that the job names, else the default; null: neither exists
  // all nodes; called only if a node of the job is silent
  std::function<std::vector<std::shared_ptr<const observe::NodeView>>()> nodes = {};
  std::string runtime_image = {};  // for a new placement
  // something may hold back a part of a new placement's pods: create them gated
  bool gated = true;
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
  std::uint64_t version = 0;  // delete only if the pod still has this version; 0: in any case
};
struct UngatePod {
  std::string name;
  std::string uid;
  std::vector<std::string> other_gates;  // they stay
  std::uint64_t version = 0;             // of the pod with these gates
};

struct Plan {
  api::JobStatus status;
  std::vector<CreatePod> creates;
  std::vector<UngatePod> ungates;
  std::vector<DeletePod> deletes;
  std::vector<std::string> check_gone;  // ask the API server whether these still exist
  std::vector<int> find_nodes;          // node ranks whose replacement needs another node
  bool delete_job = false;
  bool queued = false;      // wants to be placed
  bool look_again = false;  // the scheduler's inputs may have changed without an event
  bool back_off = false;    // all pods were removed: wait before the next try
  std::optional<std::chrono::nanoseconds> requeue_after;

  bool acts() const {
    return !creates.empty() || !ungates.empty() || !deletes.empty() || delete_job;
  }
};

}  // namespace paceline::plan
