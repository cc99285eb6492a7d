// SPDX-License-Identifier: Apache-2.0
#include "operator/apply/kueue/workload.hpp"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "common/base/timestamp.hpp"
#include "common/kube/api/kueue.hpp"

namespace paceline::apply {
namespace {

using nlohmann::json;

/// Annotations by which Kueue knows the pods of a topology assignment. Kueue counts a pod without
/// the second one against its node, besides the assignment that the pod is part of.
json topology_annotations(const api::Role& role, const std::string& workload) {
  json annotations = {{"kueue.x-k8s.io/workload", workload}};
  const json asked = role.pod_template.value("/metadata/annotations"_json_pointer, json::object());
  if (!asked.contains("kueue.x-k8s.io/podset-required-topology") &&
      !asked.contains("kueue.x-k8s.io/podset-preferred-topology"))
    annotations["kueue.x-k8s.io/podset-unconstrained-topology"] = "true";
  return annotations;
}

/// By role: the flavors' node labels and tolerations, with what admission checks add.
std::vector<api::PodGrant> grants_of(const Stores& stores, const observe::WorkloadView& workload,
                                     const api::Spec& spec) {
  std::vector<api::PodGrant> grants;
  for (const api::Role& role : spec.roles) {
    api::PodGrant& grant = grants.emplace_back();
    const auto found = std::ranges::find(workload.roles, role.name, &observe::RoleAdmission::role);
    if (found == workload.roles.end()) continue;
    grant = found->grant;
    const bool elastic = spec.elastic && &role == &spec.roles[spec.elastic->role];
    if (elastic && found->pods > 0) grant.pods = found->pods;
    if (!grant.shares.empty())
      grant.annotations.update(topology_annotations(role, workload.meta.name));
    for (const std::string& name : found->flavors) {
      const auto flavor = stores.flavors.get(name);
      if (!flavor) continue;
      grant.node_selector.insert(grant.node_selector.end(), flavor->node_labels.begin(),
                                 flavor->node_labels.end());
      for (const json& toleration : flavor->tolerations) grant.tolerations.push_back(toleration);
    }
  }
  return grants;
}

/// The conditions of a Workload, as Kueue's own controllers write them.
class Conditions {
 public:
  Conditions(const json& workload, WallTime now)
      : list_(workload.value("/status/conditions"_json_pointer, json::array())),
        generation_(workload.value("/metadata/generation"_json_pointer, 0)),
        now_(format_time(std::chrono::floor<std::chrono::seconds>(now))) {}

  void set(std::string_view type, bool value, std::string_view reason, std::string_view message) {
    const char* status = value ? "True" : "False";
    const auto known = std::ranges::find_if(
        list_, [&](const json& condition) { return condition.value("type", "") == type; });
    json& condition = known == list_.end() ? list_.emplace_back() : *known;
    const bool turned = condition.is_null() || condition.value("status", "") != status;
    const json since = turned ? json(now_) : condition.value("lastTransitionTime", json(now_));
    condition = {{"type", type},
                 {"status", status},
                 {"reason", reason},
                 {"message", message.empty() ? reason : message},
                 {"lastTransitionTime", since},
                 {"observedGeneration", generation_}};
  }
  json find(std::string_view type) const {
    const auto known = std::ranges::find_if(
        list_, [&](const json& condition) { return condition.value("type", "") == type; });
    return known == list_.end() ? json::object() : *known;
  }
  const json& list() const { return list_; }

 private:
  json list_;
  std::int64_t generation_;
  std::string now_;
};

void set_pods_ready(Conditions& conditions, bool ready) {
  const json before = conditions.find("PodsReady");
  const std::string reason = before.value("reason", "");
  const bool again = before.value("status", "") == "True" || reason == "WaitForRecovery";
  if (ready) {
    conditions.set("PodsReady", true, again ? "Recovered" : "Started", "all pods run");
  } else {
    conditions.set("PodsReady", false, again ? "WaitForRecovery" : "WaitForStart",
                   "not all pods run");
  }
}

/// Gives back the quota of an evicted Workload. Without this Kueue counts it as used for ever.
void release(Conditions& conditions) {
  const json evicted = conditions.find("Evicted");
  const std::string reason = evicted.value("reason", "Evicted");
  const std::string message = evicted.value("message", "");
  // For other reasons Kueue decides by itself when the Workload is queued again.
  const bool requeue = reason == "Preempted" || reason == "NodeFailures";
  conditions.set("Requeued", requeue, reason, message);
  conditions.set("QuotaReserved", false, "Pending", message);
  conditions.set("Admitted", false, "NoReservation", "The workload has no reservation");
  conditions.set("PodsReady", false, "WaitForStart", "no pod runs");
}

/// Quota of the pods that an elastic job no longer has. Kueue takes a count that only grows, until
/// the quota is given back as a whole.
json given_back(const json& workload, const api::Spec& spec, const api::JobStatus& status) {
  const std::string& role = spec.roles[spec.elastic->role].name;
  int asked = 0;
  for (const json& set : workload.value("/spec/podSets"_json_pointer, json::array())) {
    if (set.value("name", "") == role) asked = set.value("count", 0);
  }
  return json::array({{{"name", role}, {"count", asked - status.elastic->replicas}}});
}

}  // namespace

plan::KueueSeen look_at_kueue(const Stores& stores, const observe::JobView& job) {
  plan::KueueSeen seen;
  const auto workloads = stores.workloads.by_index(job.meta.uid);
  if (!workloads.empty()) seen.workload = workloads.front();
  const std::string& queue = api::named_queue(job.job);
  if (queue.empty()) return seen;
  seen.queue_exists = stores.local_queues.get(job.meta.ns, queue) != nullptr;
  const bool labelled = !job.job.metadata.kueue_queue.empty();
  const bool kueue_runs = stores.local_queues.size() > 0;
  if (seen.queue_exists || seen.workload || (labelled && kueue_runs)) seen.queue = queue;
  if (seen.workload && seen.workload->admitted && job.errors.empty())
    seen.grants = grants_of(stores, *seen.workload, job.job.spec);
  return seen;
}

Done confirm_admission(kube::Api& api, const observe::WorkloadView& workload) {
  Done done;
  const auto found = api.get(kube::kKueueWorkloads, workload.meta.ns, workload.meta.name);
  const auto now = found ? observe::project_workload(*found) : std::unexpected(found.error());
  if (!now && now.error().code != Code::kNotFound) {
    done.error = now.error();
  } else if (!now || now->meta.uid != workload.meta.uid || !now->grants()) {
    done.refusal = plan::Waiting{"WaitingForKueue", "Kueue has just taken back the job's quota"};
  } else if (now->roles != workload.roles) {
    done.refusal = plan::Waiting{"WaitingForKueue", "Kueue has just admitted the job anew"};
  }
  return done;
}

Status write_workload(kube::Api& api, const plan::Plan& plan, const api::Spec& spec, WallTime now) {
  const auto& [ns, name, uid, version] = plan.workload->meta;
  const plan::WorkloadStep step = plan.workload_step;
  if (step == plan::WorkloadStep::kDelete) {
    kube::DeleteOptions options;
    options.uid = uid;
    // If it comes late, the job may want the Workload again, and Kueue may have admitted it.
    options.resource_version = std::to_string(version);
    const auto gone = api.remove(kube::kKueueWorkloads, ns, name, options);
    if (!gone && gone.error().code != Code::kNotFound) return std::unexpected(gone.error());
    return {};
  }
  const auto found = api.get(kube::kKueueWorkloads, ns, name);
  if (!found) return std::unexpected(found.error());
  const json before = json::parse(*found, nullptr, false);
  if (before.value("/metadata/resourceVersion"_json_pointer, "") != std::to_string(version))
    return fail(Code::kConflict, Origin::kKube, "Workload " + name + " has changed", true);
  Conditions conditions(before, now);
  json patch = {{"metadata", {{"uid", uid}, {"resourceVersion", std::to_string(version)}}}};
  if (step == plan::WorkloadStep::kRelease) {
    release(conditions);
    patch["status"]["admission"] = nullptr;
    patch["status"]["reclaimablePods"] = nullptr;
  } else if (step == plan::WorkloadStep::kShrink) {
    patch["status"]["reclaimablePods"] = given_back(before, spec, plan.status);
  } else if (step == plan::WorkloadStep::kFinish) {
    conditions.set("Finished", true, plan.status.is_true("Succeeded") ? "Succeeded" : "Failed",
                   plan.status.message);
  } else {
    set_pods_ready(conditions, step == plan::WorkloadStep::kReady);
  }
  patch["status"]["conditions"] = conditions.list();
  kube::PatchOptions options;
  options.subresource = "status";
  // A newer Kueue may have fields that this operator read and hands back.
  options.strict = false;
  const auto done = api.patch(kube::kKueueWorkloads, ns, name, patch.dump(), options);
  if (!done) return std::unexpected(done.error());
  return {};
}

}  // namespace paceline::apply
