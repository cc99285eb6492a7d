// SPDX-License-Identifier: Apache-2.0
// What the operator keeps of each API object: structs of the fields that it uses, projected from
// the raw bytes. It never keeps documents; a pod takes well under 1 KiB.
//
// The projections are pure, thread-safe and lenient: absent fields read as empty. They fail only on
// bytes that are not JSON.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/flyweight.hpp>

#include "common/base/clock.hpp"
#include "common/base/error.hpp"
#include "common/contract/labels.hpp"
#include "common/failure/rules.hpp"
#include "common/kube/api/object_meta.hpp"
#include "operator/api/field_error.hpp"
#include "operator/api/status.hpp"
#include "operator/api/training_job.hpp"
#include "operator/observe/resources.hpp"

namespace paceline::observe {

enum class PodPhase : std::uint8_t { kPending, kRunning, kSucceeded, kFailed };
enum class TrainerState : std::uint8_t { kNone, kWaiting, kRunning, kTerminated };

/// Text that is kept once, however many objects have it. Node feature discovery alone gives each
/// node a hundred labels, and nearly all nodes the same.
using SharedText = boost::flyweight<std::string>;

/// Only for pods of jobs. It is kept apart so that the other pods of a cluster stay small.
struct GangMember {
  std::string job_uid;  // from the owner reference
  std::string job_name;
  int node_rank = -1;
  int incarnation = 0;
  std::string pinned;      // the node that its affinity names
  SharedText tolerations;  // as a JSON list, admission's included; empty: there are none
  bool gated = false;
  std::vector<std::string> other_gates;  // scheduling gates that are not Paceline's
  std::string ip;
  std::uint16_t http_port = 0;  // of the launcher
  TrainerState trainer = TrainerState::kNone;
  // every container has ended; the kubelet reports the pod's final phase in a later write
  bool ended = false;
  int exit_code = 0;
  // from the pod (Evicted), else from the trainer's state (OOMKilled, ImagePullBackOff)
  std::string reason;
  std::string message;              // from the waiting state or the unschedulable condition
  std::string termination_message;  // the launcher's, at most 4 KiB
  bool disrupted = false;           // drained, preempted or lost with its node: not the job's fault
  bool over_limit = false;          // evicted because it exceeded a limit of its own
  std::vector<failure::Condition> conditions;  // but those that every pod has
};

/// A pod that holds room for a job that waits for nodes.
struct Placeholder {
  std::string job_uid;  // from the owner reference
  std::string job_name;
  int rank = -1;
  std::string shape;  // fingerprint of the spec that it was made for
};

struct PodView {
  kube::ObjectMeta meta;
  std::string node;  // where it is bound; empty before
  PodPhase phase = PodPhase::kPending;
  bool deleting = false;
  WallTime created{};
  Resources requests;
  std::vector<std::uint16_t> host_ports;  // ports of its node that it has
  std::unique_ptr<GangMember> gang;
  std::unique_ptr<Placeholder> placeholder;

  PodView() = default;
  PodView(PodView&&) = default;
  PodView& operator=(PodView&&) = default;
  bool terminal() const { return phase == PodPhase::kSucceeded || phase == PodPhase::kFailed; }
  /// No process of it runs any more, or ever will: it has ended, or was deleted before it was
  /// bound. A finalizer may keep it for long.
  bool over() const { return terminal() || (deleting && node.empty()); }
  /// The node whose resources it uses: where it is bound or pinned.
  const std::string& place() const { return node.empty() && gang ? gang->pinned : node; }
};

struct Taint {
  std::string key;
  std::string value;
  std::string effect;
  bool operator==(const Taint&) const = default;
};

struct NodeView {
  kube::ObjectMeta meta;
  std::vector<std::pair<SharedText, SharedText>> labels;  // sorted
  // by api::TopologyLevel, as the labels say; empty: they do not
  std::array<SharedText, api::kTopologyLevels.size()> domains;
  std::vector<Taint> taints;
  Resources allocatable;
  bool unschedulable = false;
  bool ready = false;
  WallTime ready_since{};                      // when readiness last changed
  std::vector<failure::Condition> conditions;  // but those that every healthy node has

  const std::string* label(std::string_view key) const;
};

struct QuotaView {
  kube::ObjectMeta meta;
  bool scoped = false;  // applies to some pods only: left to the API server
  std::vector<std::pair<std::string, std::int64_t>> hard;
  std::vector<std::pair<std::string, std::int64_t>> used;
};

struct PriorityView {
  kube::ObjectMeta meta;
  int value = 0;
  bool preempts = true;
  bool global_default = false;  // pods that name no class get this one
};

struct ProfileView {
  kube::ObjectMeta meta;
  api::RuntimeProfile profile;
  api::FieldErrors errors;
  std::int64_t generation = 0;
  nlohmann::json status;  // as stored; null: there is none
};

/// The status of a condition; unknown if there is no such condition.
enum class Verdict : std::uint8_t { kUnknown, kTrue, kFalse };

/// What a placement needs from a NodeFabric.
struct FabricView {
  kube::ObjectMeta meta;  // it has the name of its node
  Verdict gpu_healthy = Verdict::kUnknown;
  Verdict fabric_healthy = Verdict::kUnknown;
  Verdict gpu_direct = Verdict::kUnknown;
  /// The median bandwidth of the links that the node's agent measured; 0 if it measured none.
  std::int64_t link_mbps = 0;
  // the failed check, or NotProved; empty if the agent does not report on it
  std::string gpu_direct_reason;
  std::string nvlink_domain;  // "clusterUuid/cliqueId"; empty: NVLink ends inside the node

  /// A GPU or the fabric between GPUs is faulty.
  bool ailing() const {
    return gpu_healthy == Verdict::kFalse || fabric_healthy == Verdict::kFalse;
  }
  bool same_word(const FabricView& other) const {
    return gpu_healthy == other.gpu_healthy && fabric_healthy == other.fabric_healthy &&
           gpu_direct == other.gpu_direct && gpu_direct_reason == other.gpu_direct_reason &&
           nvlink_domain == other.nvlink_domain;
  }
};

struct JobView {
  kube::ObjectMeta meta;
  // Metadata and spec.managedBy are always set, the rest of spec only if there are no errors.
  api::TrainingJob job;
  api::FieldErrors errors;  // from schema and cluster rules
  std::string fingerprint;  // api::fingerprint; empty if there are errors
  api::JobStatus status;

  /// Another controller reconciles it. Also known of a job whose spec has errors.
  bool of_other_manager() const {
    const std::string& manager = job.spec.managed_by;
    return !manager.empty() && manager != contract::kManagedBy;
  }
};

/// Where a store of pods finds the gang of a job, and where its placeholders.
inline std::string gang_index(const std::string& job_uid) { return job_uid; }
inline std::string placeholder_index(const std::string& job_uid) {
  return "placeholders/" + job_uid;
}
inline std::string index_of(const PodView& pod) {
  if (pod.gang) return gang_index(pod.gang->job_uid);
  return pod.placeholder ? placeholder_index(pod.placeholder->job_uid) : std::string();
}

Result<PodView> project_pod(std::string_view json);
Result<NodeView> project_node(std::string_view json);
Result<QuotaView> project_quota(std::string_view json);
Result<PriorityView> project_priority(std::string_view json);
Result<ProfileView> project_profile(std::string_view json);
Result<FabricView> project_fabric(std::string_view json);
Result<JobView> project_job(std::string_view json);

}  // namespace paceline::observe
