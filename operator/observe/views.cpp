// SPDX-License-Identifier: Apache-2.0
#include "operator/observe/views.hpp"

#include <algorithm>

#include "common/contract/host_ports.hpp"
#include "common/contract/labels.hpp"
#include "operator/api/elastic.hpp"
#include "operator/api/fingerprint.hpp"
#include "operator/api/parse.hpp"
#include "operator/api/schedulers/backend.hpp"
#include "operator/api/template/containers.hpp"
#include "operator/api/validate.hpp"
#include "operator/observe/pod_labels.hpp"
#include "operator/observe/pod_ports.hpp"
#include "operator/observe/project.hpp"
#include "operator/observe/topology_labels.hpp"

namespace paceline::observe {
namespace {

using kube::at;
using kube::items;
using simdjson::dom::element;

std::int64_t quantity(const element& value) {
  if (value.is_string()) return api::parse_quantity_text(text(value)).value_or(0);
  std::int64_t whole = 0;
  if (value.get_int64().get(whole) == simdjson::SUCCESS)
    return whole > INT64_MAX / 1000 ? INT64_MAX : whole * 1000;
  double real = 0;
  if (value.get_double().get(real) == simdjson::SUCCESS && real >= 0 && real < 9e15)
    return static_cast<std::int64_t>(real * 1000);
  return 0;
}

Resources amounts(const simdjson::simdjson_result<element>& map) {
  Resources resources;
  for (const auto field : kube::fields(map)) resources.set(field.key, quantity(field.value));
  return resources;
}

/// The requests of a container. A resource with only a limit requests its limit.
Resources container_requests(const element& container) {
  Resources requests = amounts(at(container, "resources", "limits"));
  for (const auto field : kube::fields(at(container, "resources", "requests")))
    requests.set(field.key, quantity(field.value));
  return requests;
}

/// Counts as the scheduler does. The result is the larger of all containers together and of any
/// init container with the sidecars started before it. Requests of the whole pod replace it. The
/// overhead is added.
Resources pod_requests(const element& pod) {
  Resources sidecars;
  Resources peak;
  for (const element container : items(at(pod, "spec", "initContainers"))) {
    Resources need = container_requests(container);
    if (text(at(container, "restartPolicy")) == "Always") {
      sidecars.add(need);
      need = sidecars;
    } else {
      need.add(sidecars);
    }
    peak.raise_to(need);
  }
  Resources total = sidecars;
  for (const element container : items(at(pod, "spec", "containers")))
    total.add(container_requests(container));
  total.raise_to(peak);
  for (const auto field : kube::fields(at(pod, "spec", "resources", "requests")))
    total.set(field.key, quantity(field.value));
  total.add(amounts(at(pod, "spec", "overhead")));
  total.pods = 1000;
  return total;
}

std::string pinned_node(const element& pod) {
  for (const element term :
       items(at(pod, "spec", "affinity", "nodeAffinity",
                "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms"))) {
    for (const element field : items(at(term, "matchFields"))) {
      if (text(at(field, "key")) != "metadata.name" || text(at(field, "operator")) != "In")
        continue;
      for (const element value : items(at(field, "values"))) return std::string(text(value));
    }
  }
  return "";
}

/// The wrapped container is the one that starts the launcher.
std::string trainer_name(const element& pod) {
  const std::string launcher = std::string(contract::kRuntimeMount) + "/bin/paceline-launcher";
  for (const element container : items(at(pod, "spec", "containers"))) {
    for (const element word : items(at(container, "command"))) {
      if (text(word) == launcher) return std::string(text(at(container, "name")));
      break;
    }
  }
  return "";
}

void read_trainer(const element& pod, GangMember& gang) {
  const std::string name = trainer_name(pod);
  std::size_t containers = 0;
  std::size_t ended = 0;
  for (const element status : items(at(pod, "status", "containerStatuses"))) {
    element state;
    ++containers;
    if (at(status, "state", "terminated").get(state) == simdjson::SUCCESS) ++ended;
    if (text(at(status, "name")) != name) continue;
    if (at(status, "state", "terminated").get(state) == simdjson::SUCCESS) {
      gang.trainer = TrainerState::kTerminated;
      gang.exit_code = static_cast<int>(kube::number(at(state, "exitCode")));
      gang.reason = text(at(state, "reason"));
      // The node was reset, or another machine has its name: nobody knows how the ranks ended.
      gang.disrupted = gang.reason == "ContainerStatusUnknown";
      gang.termination_message =
          excerpt(text(at(state, "message")), contract::kTerminationMessageBytes);
    } else if (at(status, "state", "running").get(state) == simdjson::SUCCESS) {
      gang.trainer = TrainerState::kRunning;
    } else if (at(status, "state", "waiting").get(state) == simdjson::SUCCESS) {
      gang.trainer = TrainerState::kWaiting;
      gang.reason = text(at(state, "reason"));
      gang.message = excerpt(text(at(state, "message")));
    }
  }
  gang.ended = containers > 0 && ended == containers;
  // The image that cannot be pulled may be the init container's.
  for (const element status : items(at(pod, "status", "initContainerStatuses"))) {
    const std::string_view reason = text(at(status, "state", "waiting", "reason"));
    if (gang.trainer == TrainerState::kRunning || gang.trainer == TrainerState::kTerminated ||
        reason.empty() || reason == "PodInitializing")
      continue;
    gang.reason = reason;
    gang.message = excerpt(text(at(status, "state", "waiting", "message")));
  }
}

/// True if the kubelet evicted the pod for a limit of the pod itself: of its containers' ephemeral
/// storage, or of an emptyDir. Evictions for pressure of the node have other messages.
bool exceeded_own_limit(std::string_view message) {
  return message.starts_with("Pod ephemeral local storage usage exceeds") ||
         message.starts_with("Usage of EmptyDir volume") ||
         (message.starts_with("Container ") &&
          message.find("exceeded its local ephemeral storage limit") != std::string_view::npos);
}

/// Every pod has these conditions, and a failure shows in other fields.
bool is_ordinary(std::string_view type) {
  return type == "PodScheduled" || type == "PodReadyToStartContainers" || type == "Initialized" ||
         type == "ContainersReady" || type == "Ready";
}

/// Every healthy node has these conditions.
bool is_usual(std::string_view type, std::string_view status) {
  if (type == "Ready") return status == "True";
  const bool trouble = type == "MemoryPressure" || type == "DiskPressure" ||
                       type == "PIDPressure" || type == "NetworkUnavailable";
  return trouble && status == "False";
}

failure::Condition condition_of(const element& condition) {
  return {std::string(text(at(condition, "type"))), std::string(text(at(condition, "status"))),
          std::string(text(at(condition, "reason")))};
}

/// UID and name of the TrainingJob that controls the pod; empty: none.
std::pair<std::string_view, std::string_view> owning_job(const element& pod) {
  for (const element owner : items(at(pod, "metadata", "ownerReferences"))) {
    if (text(at(owner, "kind")) == "TrainingJob" && kube::boolean(at(owner, "controller")))
      return {text(at(owner, "uid")), text(at(owner, "name"))};
  }
  return {};
}

std::unique_ptr<GangMember> read_gang(const element& pod) {
  // Labels neither make a pod ours, since they can be copied, nor part it from its gang, since
  // people can remove them while its launcher trains on. Owner references decide, as they do for
  // garbage collection.
  const auto [uid, name] = owning_job(pod);
  if (uid.empty()) return nullptr;
  auto gang = std::make_unique<GangMember>();
  gang->job_uid = uid;
  gang->job_name = name;
  gang->node_rank = node_rank_of(pod);
  gang->incarnation = incarnation_of(pod);
  gang->pinned = pinned_node(pod);
  element tolerations;
  if (at(pod, "spec", "tolerations").get(tolerations) == simdjson::SUCCESS)
    gang->tolerations = std::string(simdjson::minify(tolerations));
  for (const element gate : items(at(pod, "spec", "schedulingGates"))) {
    const std::string_view name = text(at(gate, "name"));
    if (name == contract::kGangGate) {
      gang->gated = true;
    } else {
      gang->other_gates.emplace_back(name);
    }
  }
  gang->ip = text(at(pod, "status", "podIP"));
  read_trainer(pod, *gang);
  for (const element condition : items(at(pod, "status", "conditions"))) {
    const std::string_view type = text(at(condition, "type"));
    const std::string_view status = text(at(condition, "status"));
    if (!is_ordinary(type)) gang->conditions.push_back(condition_of(condition));
    if (type == "DisruptionTarget" && status == "True") {
      gang->disrupted = true;
      // How a container ends after the pod was told to stop is not why the pod ended.
      if (gang->trainer == TrainerState::kTerminated) gang->reason = text(at(condition, "reason"));
    }
    if (type == "PodScheduled" && status == "False" &&
        text(at(condition, "reason")) == "Unschedulable") {
      gang->reason = "Unschedulable";
      gang->message = excerpt(text(at(condition, "message")));
    }
  }
  if (const std::string_view reason = text(at(pod, "status", "reason")); !reason.empty()) {
    gang->reason = reason;
    gang->message = excerpt(text(at(pod, "status", "message")));
    for (const char* blameless :
         {"Evicted", "Shutdown", "Terminated", "NodeShutdown", "NodeLost", "NodeAffinity",
          "Preempting", "NodePorts", "UnexpectedAdmissionError"}) {
      if (reason == blameless) gang->disrupted = true;
    }
    // The kubelet appends the resource: OutOfcpu, OutOfnvidia.com/gpu.
    if (reason.starts_with("OutOf")) gang->disrupted = true;
    gang->over_limit = reason == "Evicted" && exceeded_own_limit(gang->message);
  }
  return gang;
}

std::unique_ptr<Placeholder> read_placeholder(const element& pod) {
  if (text(at(pod, "metadata", "labels", contract::kLabelPlaceholder)).empty()) return nullptr;
  const auto [uid, name] = owning_job(pod);
  if (uid.empty()) return nullptr;  // labels can be copied
  return std::make_unique<Placeholder>(Placeholder{
      std::string(uid), std::string(name), label_number(pod, contract::kLabelPlaceholderRank, -1),
      std::string(text(at(pod, "metadata", "labels", contract::kLabelPlaceholderShape)))});
}

std::vector<std::pair<std::string, std::int64_t>> pairs(
    const simdjson::simdjson_result<element>& map) {
  std::vector<std::pair<std::string, std::int64_t>> list;
  for (const auto field : kube::fields(map)) list.emplace_back(field.key, quantity(field.value));
  return list;
}

}  // namespace

const std::string* NodeView::label(std::string_view key) const {
  const auto it =
      std::lower_bound(labels.begin(), labels.end(), key,
                       [](const auto& entry, std::string_view k) { return entry.first.get() < k; });
  return it != labels.end() && it->first.get() == key ? &it->second.get() : nullptr;
}

Result<PodView> project_pod(std::string_view json) {
  return with_json<PodView>(json, [](const element& pod, PodView& view) {
    view.node = text(at(pod, "spec", "nodeName"));
    const std::string_view phase = text(at(pod, "status", "phase"));
    view.phase = phase == "Running"     ? PodPhase::kRunning
                 : phase == "Succeeded" ? PodPhase::kSucceeded
                 : phase == "Failed"    ? PodPhase::kFailed
                                        : PodPhase::kPending;
    view.deleting = !text(at(pod, "metadata", "deletionTimestamp")).empty();
    view.created = parse_time(text(at(pod, "metadata", "creationTimestamp"))).value_or(WallTime{});
    view.requests = pod_requests(pod);
    PodPorts ports = read_ports(pod);
    view.requests.port_blocks = ports.blocks * 1000LL;
    view.host_ports = std::move(ports.host);
    view.placeholder = read_placeholder(pod);
    if (!view.placeholder) view.gang = read_gang(pod);
    if (view.gang) view.gang->http_port = ports.http;
  });
}

Result<NodeView> project_node(std::string_view json) {
  return with_json<NodeView>(json, [](const element& node, NodeView& view) {
    for (const auto field : kube::fields(at(node, "metadata", "labels")))
      view.labels.emplace_back(std::string(field.key), std::string(text(field.value)));
    std::sort(view.labels.begin(), view.labels.end());
    const auto label = [&view](std::string_view key) { return view.label(key); };
    for (std::size_t i = 0; i < view.domains.size(); ++i)
      view.domains[i] = domain_by_labels(label, static_cast<api::TopologyLevel>(i));
    for (const element taint : items(at(node, "spec", "taints"))) {
      view.taints.push_back({std::string(text(at(taint, "key"))),
                             std::string(text(at(taint, "value"))),
                             std::string(text(at(taint, "effect")))});
    }
    view.allocatable = amounts(at(node, "status", "allocatable"));
    view.allocatable.port_blocks = contract::kMostHostPods * 1000LL;
    view.unschedulable = kube::boolean(at(node, "spec", "unschedulable"));
    for (const element condition : items(at(node, "status", "conditions"))) {
      if (!is_usual(text(at(condition, "type")), text(at(condition, "status"))))
        view.conditions.push_back(condition_of(condition));
      if (text(at(condition, "type")) != "Ready") continue;
      view.ready = text(at(condition, "status")) == "True";
      view.ready_since = parse_time(text(at(condition, "lastTransitionTime"))).value_or(WallTime{});
    }
  });
}

Result<QuotaView> project_quota(std::string_view json) {
  return with_json<QuotaView>(json, [](const element& quota, QuotaView& view) {
    element scopes;
    view.scoped = at(quota, "spec", "scopes").get(scopes) == simdjson::SUCCESS ||
                  at(quota, "spec", "scopeSelector").get(scopes) == simdjson::SUCCESS;
    view.hard = pairs(at(quota, "status", "hard"));
    view.used = pairs(at(quota, "status", "used"));
  });
}

Result<PriorityView> project_priority(std::string_view json) {
  return with_json<PriorityView>(json, [](const element& priority, PriorityView& view) {
    view.value = static_cast<int>(kube::number(at(priority, "value")));
    view.preempts = text(at(priority, "preemptionPolicy")) != "Never";
    view.global_default = kube::boolean(at(priority, "globalDefault"));
  });
}

Result<ProfileView> project_profile(std::string_view json) {
  auto view = with_json<ProfileView>(json, [](const element& profile, ProfileView& shown) {
    shown.generation = kube::number(at(profile, "metadata", "generation"));
  });
  if (!view) return view;
  const auto document = nlohmann::json::parse(json, nullptr, false);
  if (document.is_object()) view->status = document.value("status", nlohmann::json());
  auto profile = api::parse_runtime_profile(document);
  if (profile) {
    view->profile = std::move(*profile);
  } else {
    view->errors = std::move(profile.error());
  }
  return view;
}

Result<FabricView> project_fabric(std::string_view json) {
  return with_json<FabricView>(json, [](const element& fabric, FabricView& view) {
    view.nvlink_domain = text(at(fabric, "status", "nvlinkDomain"));
    std::vector<std::int64_t> mbps;
    for (const element link : items(at(fabric, "status", "links")))
      mbps.push_back(kube::number(at(link, "bandwidthMbps")));
    if (const auto middle = mbps.begin() + static_cast<std::ptrdiff_t>(mbps.size() / 2);
        middle != mbps.end()) {
      std::ranges::nth_element(mbps, middle);
      view.link_mbps = *middle;
    }
    for (const element condition : items(at(fabric, "status", "conditions"))) {
      const std::string_view type = text(at(condition, "type"));
      const std::string_view word = text(at(condition, "status"));
      const Verdict verdict = word == "True"    ? Verdict::kTrue
                              : word == "False" ? Verdict::kFalse
                                                : Verdict::kUnknown;
      if (type == "GpuHealthy") view.gpu_healthy = verdict;
      if (type == "FabricHealthy") view.fabric_healthy = verdict;
      if (type != "GpuDirectReady") continue;
      view.gpu_direct = verdict;
      view.gpu_direct_reason = text(at(condition, "reason"));
    }
  });
}

Result<JobView> project_job(std::string_view json) {
  const nlohmann::json document = nlohmann::json::parse(json, nullptr, false);
  if (!document.is_object())
    return fail(Code::kInvalid, Origin::kProtocol, "a TrainingJob that is not a JSON object");
  auto view = with_json<JobView>(json, [](const element& object, JobView& seen) {
    seen.job.spec.managed_by = text(at(object, "spec", "managedBy"));
  });
  if (!view) return view;
  view->status = api::read_status(document);
  // A newer schema may know more fields than this operator, and give them defaults. A gang that
  // runs was placed without them.
  auto job = api::parse_training_job(
      document, view->status.placed() ? api::UnknownFields::kIgnore : api::UnknownFields::kRefuse);
  if (job) {
    view->job = std::move(*job);
    api::size_as_placed(view->job.spec, view->status);
    api::backend_as_placed(view->job.spec, view->status.placed() && view->status.pod_group.empty());
    view->errors = api::validate_for_cluster(view->job);
    view->fingerprint = api::fingerprint(view->job.spec);
  } else {
    view->errors = std::move(job.error());
    view->job.metadata.name = view->meta.name;
    view->job.metadata.name_space = view->meta.ns;
    view->job.metadata.uid = view->meta.uid;
    const nlohmann::json metadata = document.value("metadata", nlohmann::json::object());
    if (const auto it = metadata.find("generation");
        it != metadata.end() && it->is_number_integer())
      view->job.metadata.generation = it->get<std::int64_t>();
    view->job.metadata.deleting = metadata.contains("deletionTimestamp");
  }
  return view;
}

}  // namespace paceline::observe
