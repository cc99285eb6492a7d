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

#include "operator/observe/kueue.hpp"
#include "operator/observe/views.hpp"
#include "operator/plan/placement/gangs.hpp"
#include "operator/status/training.hpp"

namespace paceline::plan {

/// The longest back-off after a refusal. A longer recorded wait means that the clock was set back.
inline constexpr std::chrono::seconds kLongestBackOff{60};

/// How long a gang waits after the scheduler refused two placements of it for one reason.
inline constexpr std::chrono::minutes kBindPause{10};

/// That the scheduler did not bind a gang in time, and why.
struct BindRefusal {
  std::string reason;           // the scheduler's words without their numbers
  std::int64_t generation = 0;  // of the job
  WallTime until{};             // no placement is tried before
};

/// A ProvisioningRequest or the CapacityBuffers of a job, as last read.
struct NodeRequest {
  api::Provision kind = api::Provision::kProvisioningRequest;
  WallTime created{};
  std::string answer;    // the autoscaler's, in words; empty: none yet
  bool refused = false;  // it adds no nodes for this object
  std::string shape;     // Plan::request_shape that it was made for; empty: not known
};

/// What the operator knows of a job beyond the API server. Losing it in a crash costs a repetition,
/// never correctness.
struct Memory {
  // from the scheduler: a node for each node rank
  std::optional<std::vector<std::string>> admission;
  std::string admission_where;     // with `admission`: plan::Placement::where
  bool admission_slots = false;    // with `admission`: pods have slots there
  std::string admission_smaller;   // with `admission`: why it has fewer pods than wanted
  std::optional<Grown> growth;     // from the scheduler: room for more pods of an elastic job
  std::string no_growth;           // from the scheduler: why there is none
  std::optional<Waiting> waiting;  // of the scheduler
  // of the scheduler, with `waiting` or `no_growth`: more nodes would help, and what is needed in
  // words
  std::optional<std::string> grow;
  std::set<std::string> displaced;     // of the scheduler: UIDs of placeholders whose room is gone
  std::string no_placeholders;         // why the API server refused to let the job ask for nodes
  WallTime ask_again{};                // when to ask again after that
  std::optional<NodeRequest> request;  // the object that asks for nodes; nullopt: there is none
  std::string preempted_by;            // from the scheduler: make room for this job
  std::map<int, std::string> replacement_nodes;  // from the scheduler, for single replicas
  std::string no_replacement_node;  // from the scheduler: why a replica has no node yet
  std::set<int> homeless;           // the node ranks that it has looked for a node for in vain
  std::string replacement_where;    // with `replacement_nodes`: of all pods, plan::Placement::where
  bool volumes_open = false;        // no event says which nodes its volumes allow by now
  BindRefusal bind_refusal;         // the last one since a gang of the job was bound
  std::optional<Waiting> refusal;   // a dry run or a create was refused
  WallTime retry_at{};              // back-off after a refusal or a time-out
  int retries = 0;
  std::set<std::string> gone;             // pods that the API server no longer has
  std::set<std::string> unseen_nodes;     // that the cache has yet to see: the API server has them
  bool pod_group_gone = false;            // the object that status.podGroup names was deleted
  std::string pod_group_kept;             // why the API server forbids that
  std::optional<status::Report> summary;  // from rank 0's launcher
  WallTime summary_at{};                  // when `summary` was read
  nlohmann::json checkpoint;              // the latest that a summary or an ended pod told of
  WallTime training_written{};            // or effects, findings, goodput
  WallTime findings_written{};            // when findings came or went
};

/// What the stores say of a job's quota in Kueue.
struct KueueSeen {
  std::string queue;          // the LocalQueue that decides on the job; empty: Kueue does not
  bool queue_exists = false;  // the LocalQueue
  std::shared_ptr<const observe::WorkloadView> workload = nullptr;  // the job's; null: none
  std::vector<api::PodGrant> grants = {};   // by role, if the Workload is admitted
  api::PriorityClassRef priority = {};      // that the Workload is to have
  std::optional<api::LevelAsk> level = {};  // too, while the job waits; nullopt: not known
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
  KueueSeen kueue = {};
  std::vector<std::shared_ptr<const observe::PodView>> placeholders = {};
  // how nodes are asked for: not kAuto; kDisabled: nobody adds any
  api::Provision provision = api::Provision::kDisabled;
  // of pods as admission completes them, by role; empty: not known
  std::vector<Constraints> admitted = {};
};

/// A placeholder to be created.
struct HoldRoom {
  int node_rank = 0;     // of the replica that it holds room for
  std::size_t role = 0;  // of that replica: position in the spec
};
struct CreatePod {
  int node_rank = 0;
  int incarnation = 0;
  std::string node;
  bool gated = true;
  // in the network of its node: the first of its ports there, chosen when the pod is created
  std::uint16_t port_base = 0;
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

enum class WorkloadStep {
  kNone,
  kCreate,
  kDelete,
  kRevise,   // gives it the priority class that the job has now, and what it asks of the topology
  kRelease,  // after an eviction: Kueue gives the quota to others only then
  kShrink,   // gives back the quota of pods that an elastic job no longer has
  kReady,    // all pods run
  kNotReady,
  kFinish
};

struct Plan {
  api::JobStatus status;
  WorkloadStep workload_step = WorkloadStep::kNone;
  std::shared_ptr<const observe::WorkloadView> workload;  // that the step is about
  std::optional<api::LevelAsk> level;                     // as KueueSeen has it
  std::vector<api::PodGrant> grants;                      // by role, for `creates`; empty: none
  std::vector<CreatePod> creates;
  std::vector<std::string> avoid_nodes;  // by the pods of `creates` that name no node
  std::vector<UngatePod> ungates;
  std::vector<DeletePod> deletes;
  std::vector<HoldRoom> placeholders;
  bool request_nodes = false;           // create the object that asks for nodes
  std::string request_shape;            // with it: of which spec it is, and for how many pods
  bool withdraw_request = false;        // delete it
  bool keep_pod_group = false;          // create that object again if it is gone
  bool drop_pod_group = false;          // delete the object that status.podGroup names
  std::vector<std::string> check_gone;  // ask the API server whether these still exist
  std::set<std::string> absent_nodes;   // taken to be gone, since the cache has none of the name
  std::vector<int> find_nodes;          // node ranks whose replacement needs another node
  int grow_by = 0;                      // find room for so many more pods of the elastic role
  bool drop_admission = false;          // the spec no longer allows a gang of that size
  bool delete_job = false;
  bool queued = false;      // wants to be placed
  bool look_again = false;  // the scheduler's inputs may have changed without an event
  std::optional<BindRefusal> bind_refusal;  // to remember
  bool back_off = false;                    // all pods were removed: wait before the next try
  std::optional<std::chrono::nanoseconds> requeue_after;

  bool acts() const {
    return !creates.empty() || !ungates.empty() || !deletes.empty() || delete_job ||
           workload_step != WorkloadStep::kNone || !placeholders.empty() || request_nodes ||
           withdraw_request || drop_pod_group;
  }
  /// The job asks for room or for quota: its pods are tried first.
  bool asks() const { return queued || workload_step == WorkloadStep::kCreate; }
};

}  // namespace paceline::plan
