// SPDX-License-Identifier: Apache-2.0
// What the simulation knows about the cluster: structs that follow every change. They are read from
// the stored documents, which are never parsed again. Values.
#pragma once

#include <array>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace paceline::sim {

/// The parts of a gang's acceleration: the field of status.acceleration, and the variable that
/// tells a rank.
inline constexpr std::array<std::array<const char*, 2>, 4> kFeatures = {
    {{"optimizer", "OPTIMIZER"},
     {"compression", "COMMUNICATION_COMPRESSION"},
     {"precision", "PRECISION"},
     {"cudaGraph", "CUDA_GRAPH"}}};
using Features = std::array<std::string, kFeatures.size()>;  // the value of each; empty: not set

struct PodFacts {
  std::string name;
  std::string uid;
  std::string owner;  // UID of the TrainingJob that controls it; empty: the pod belongs to no job
  std::string job;    // by its label
  int rank = -1;
  int incarnation = 0;
  std::string node;    // bound to
  std::string pinned;  // by its affinity
  std::string group;   // the PodGroup that it is of; empty: none
  std::string phase;
  bool gated = false;
  bool placeholder = false;  // holds room for its job, and does nothing
  bool deleting = false;
  bool kept = false;  // by a finalizer
  bool trainer_ended = false;
  bool succeeded = false;  // its trainer ended with exit code 0
  bool lacks_image = false;
  bool orphaned = false;  // it had an owner once
  bool stray = false;     // created by a request that came late, when it was no longer on record
  std::string role;
  std::string image;
  std::string created;
  int cpu = 0;    // with overhead
  int slots = 0;  // of paceline.dev/runtime
  std::vector<int> host_ports;
  int attempt = 0;    // the attempt that its launcher starts with
  int restarts = 0;   // the restarts that its launcher starts with
  int gang = 0;       // how many pods its launcher waits for
  int seconds = 0;    // of the job's time, which its launcher starts with
  Features features;  // from its trainer's environment

  bool terminal() const { return phase == "Succeeded" || phase == "Failed"; }
  bool ended() const { return terminal() || trainer_ended; }
  /// Or it was deleted before it was bound, and a finalizer keeps it: nobody can bind it any more.
  bool over() const { return terminal() || (deleting && node.empty()); }
  const std::string& place() const { return node.empty() ? pinned : node; }
};

/// What a replica means to its gang.
struct MemberFacts {
  bool alone = false;      // the others train on without it
  bool decides = false;    // the job has succeeded only when it has
  bool blameless = false;  // whatever happens to it costs the job nothing
};

struct JobFacts {
  std::string name;
  std::string uid;
  int replicas = 0;
  std::vector<MemberFacts> members;  // by node rank
  int spares = 0;                    // so many of them stand by
  int max_restarts = 0;
  std::string oom_action;  // of its failure rule; empty: it has none
  std::string clean_pod_policy;
  bool has_ttl = false;
  bool one_leaf = false;  // its pods must be under one leaf
  bool in_kueue = false;  // by its label
  int fewest = 0;         // of an elastic job, which has this many workers or more; else 0
  int most = 0;
  bool deleting = false;
  bool edited = false;  // since its status was written
  // of its status
  std::string phase;
  std::string stage;  // reason of Placed
  std::string reason;
  std::string message;  // with that of Replacing
  int size = 0;         // of status.elastic
  int wanted = 0;       // of an elastic job
  bool running = false;
  bool restarting = false;
  bool replacing = false;
  int attempt = 0;
  int restarts = 0;
  int disruptions = 0;
  std::map<std::string, std::string> excluded;  // nodes, until when
  std::string pod_group;                        // of the status
  int seconds = 0;                              // of status.goodput
  int saved_step = -1;                          // of status.checkpoint
  std::vector<std::string> nodes;               // by node rank; empty: not placed
  std::vector<int> incarnations;                // by node rank
  Features features;                            // of status.acceleration

  bool finished() const { return phase == "Succeeded" || phase == "Failed"; }
  /// How many its launchers wait for.
  int places() const { return replicas - spares; }
  MemberFacts member(int rank) const {
    const auto place = static_cast<std::size_t>(rank);
    return place < members.size() ? members[place] : MemberFacts{};
  }
};

struct NodeFacts {
  std::string name;
  bool ready = true;
  int cpu = 0;
  int slots = 0;
  bool was_silent = false;
  bool tainted = false;   // so that it takes no new pods
  bool cordoned = false;  // the same
  bool was_closed = false;
  std::string leaf;
  int most_cpu = 0;  // that it has ever offered
  int most_slots = 0;
  bool relabelled = false;  // it has been under another leaf, or under none

  /// Marked, so that no new pods come, and those that are there may soon be lost.
  bool closed() const { return tainted || cordoned; }
  bool shrunk() const { return cpu < most_cpu; }
};

struct Facts {
  std::map<std::string, PodFacts> pods;  // by name: there is one namespace
  std::map<std::string, JobFacts> jobs;  // by name
  std::map<std::string, NodeFacts> nodes;
  std::map<std::string, int> pod_groups;  // by name: how many pods at least are bound
  std::set<std::string> late_groups;      // of those, the ones that a late request created

  /// They use the quota until the operator has removed them for a gang.
  bool any_placeholder() const;
  const JobFacts* job_of(const PodFacts& pod) const;
  /// True while so many nodes are silent together that no one of them counts as lost.
  bool in_outage() const;
};

/// `before`: what was read of an earlier state of a pod of this name; null: nothing.
PodFacts read_pod(const nlohmann::json& pod, const PodFacts* before);
JobFacts read_job(const nlohmann::json& job);
NodeFacts read_node(const nlohmann::json& node);

/// The pod sets of a Workload with the numbers of pods that it asks quota for. Quota that its owner
/// has given back is not asked for again.
nlohmann::json pods_asked_for(const nlohmann::json& workload);
/// For how many pods the Workload has quota, if any is reserved for it.
int pods_with_quota(const nlohmann::json& workload);

}  // namespace paceline::sim
