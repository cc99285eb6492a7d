// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/defects.hpp"

#include <algorithm>
#include <set>

#include <nlohmann/json.hpp>

#include "common/contract/labels.hpp"
#include "common/kube/api/kueue.hpp"

namespace paceline::sim {
namespace {

using nlohmann::json;

const json::json_pointer kPlacedSpec("/status/placement/spec");
const json::json_pointer kTemplate("/spec/roles/0/template/spec");
const json::json_pointer kState("/containerStatuses/0/state");
const json::json_pointer kExitCode("/status/containerStatuses/0/state/terminated/exitCode");

bool misjudges(Defect defect) {
  return defect == Defect::kBlamesEvictions || defect == Defect::kForgivesKills ||
         defect == Defect::kMissesImages;
}

/// Changes what the status of a pod says of its end, or of what it waits for.
void misread(Defect defect, json& status) {
  if (defect == Defect::kBlamesEvictions) {
    status.erase("conditions");
    status.erase("reason");
  } else if (status.contains(kState)) {
    json& state = status.at(kState);
    if (defect == Defect::kMissesImages) {
      state.erase("waiting");
    } else if (state.contains("terminated") && state["terminated"]["exitCode"] == 137) {
      state["terminated"] = {{"exitCode", contract::kExitTerminated}};
    }
  }
}

bool is(const kube::Resource& resource, const kube::Resource& other) {
  return resource.plural == other.plural;
}

bool is_marked(Defect defect, const json& node) {
  if (defect == Defect::kTakesShrinkingForLoss)
    return node.value("/status/allocatable/cpu"_json_pointer, "") == "0";
  return node.value("/spec/unschedulable"_json_pointer, false);
}

/// Pods on a node that was seen to be cordoned, or to have shrunk, look evicted.
std::string with_marks_as_losses(Defect defect, const kube::Resource& resource,
                                 const std::string& object) {
  thread_local std::set<std::string> cordoned;
  if (is(resource, kube::kNodes)) {
    const json node = json::parse(object);
    const std::string name = node["metadata"]["name"];
    if (is_marked(defect, node)) {
      cordoned.insert(name);
    } else {
      cordoned.erase(name);
    }
  } else if (is(resource, kube::kPods)) {
    json pod = json::parse(object);
    if (cordoned.contains(pod.value("/spec/nodeName"_json_pointer, "")))
      pod["status"] = {
          {"phase", "Failed"},
          {"reason", "Evicted"},
          {"conditions", json::array({{{"type", "DisruptionTarget"}, {"status", "True"}}})}};
    return pod.dump();
  }
  return object;
}

}  // namespace

std::optional<std::string> seen_through(Defect defect, const kube::Resource& resource,
                                        const std::string& object) {
  if (defect == Defect::kTerminatingCountsAsGone && is(resource, kube::kPods)) {
    if (json::parse(object)["metadata"].contains("deletionTimestamp")) return std::nullopt;
  } else if (defect == Defect::kForgetsTheQuota && is(resource, kube::kResourceQuotas)) {
    return std::nullopt;
  } else if (defect == Defect::kIgnoresTheBudget && is(resource, kube::kTrainingJobs)) {
    json job = json::parse(object);
    job["spec"]["failurePolicy"]["maxRestarts"] = 50;
    return job.dump();
  } else if (defect == Defect::kForgetsTheRules && is(resource, kube::kTrainingJobs)) {
    json job = json::parse(object);
    job["spec"]["failurePolicy"].erase("rules");
    return job.dump();
  } else if (defect == Defect::kCleansEverything && is(resource, kube::kTrainingJobs)) {
    json job = json::parse(object);
    job["spec"]["cleanPodPolicy"] = "All";
    return job.dump();
  } else if (defect == Defect::kStaysSuspended && is(resource, kube::kTrainingJobs)) {
    json job = json::parse(object);
    job["spec"]["suspend"] = true;
    return job.dump();
  } else if (defect == Defect::kWaitsForKeptPods && is(resource, kube::kPods)) {
    json pod = json::parse(object);
    if (pod["metadata"].contains("finalizers") && pod["metadata"].contains("deletionTimestamp"))
      pod["status"] = {{"phase", "Running"}};
    return pod.dump();
  } else if (defect == Defect::kAdoptsByLabel && is(resource, kube::kPods)) {
    json pod = json::parse(object);
    const json labels = pod["metadata"].value("labels", json::object());
    if (!pod["metadata"].contains("ownerReferences") && labels.contains("paceline.dev/job")) {
      pod["metadata"]["ownerReferences"] = json::array({{{"kind", "TrainingJob"},
                                                         {"name", labels["paceline.dev/job"]},
                                                         {"uid", labels["paceline.dev/job-uid"]},
                                                         {"controller", true}}});
    }
    return pod.dump();
  } else if (defect == Defect::kTakesPartsForAll && is(resource, kube::kKueueWorkloads)) {
    json workload = json::parse(object);
    if (workload.contains("status")) workload["status"].erase("admission");
    return workload.dump();
  } else if (defect == Defect::kSeesTwiceTheRoom && is(resource, kube::kNodes)) {
    json node = json::parse(object);
    node["status"]["allocatable"]["cpu"] = "8";
    return node.dump();
  } else if (defect == Defect::kIgnoresTaints && is(resource, kube::kNodes)) {
    json node = json::parse(object);
    node["spec"]["taints"] = json::array();
    return node.dump();
  } else if (defect == Defect::kMissesCordons && is(resource, kube::kNodes)) {
    json node = json::parse(object);
    if (node.contains("spec")) node["spec"].erase("unschedulable");
    return node.dump();
  } else if (defect == Defect::kTakesCandidatesForMarks && is(resource, kube::kNodes)) {
    json node = json::parse(object);
    for (json& taint : node["spec"]["taints"]) taint["effect"] = "NoSchedule";
    return node.dump();
  } else if (defect == Defect::kTakesMarksForLosses || defect == Defect::kTakesShrinkingForLoss) {
    return with_marks_as_losses(defect, resource, object);
  } else if (defect == Defect::kGoesByLabels && is(resource, kube::kPods)) {
    if (!json::parse(object)["metadata"]
             .value("labels", json::object())
             .contains(contract::kLabelJobUid))
      return std::nullopt;
  } else if (defect == Defect::kIgnoresTheLevel && is(resource, kube::kTrainingJobs)) {
    json job = json::parse(object);
    job["spec"].erase("topology");
    return job.dump();
  } else if (defect == Defect::kIgnoresForeignPods && is(resource, kube::kPods)) {
    if (!json::parse(object)["metadata"].contains("ownerReferences")) return std::nullopt;
  } else if (defect == Defect::kIgnoresPorts && is(resource, kube::kPods)) {
    json pod = json::parse(object);
    for (json& container : pod["spec"]["containers"]) container.erase("ports");
    return pod.dump();
  } else if (defect == Defect::kForgetsThePlacedSpec && is(resource, kube::kTrainingJobs)) {
    json job = json::parse(object);
    if (job.contains(kPlacedSpec)) job.at(kPlacedSpec.parent_pointer()).erase(kPlacedSpec.back());
    return job.dump();
  } else if (defect == Defect::kForgetsTheTime && is(resource, kube::kTrainingJobs)) {
    json job = json::parse(object);
    if (job.contains("status")) job["status"].erase("goodput");
    return job.dump();
  } else if (defect == Defect::kForgetsSuccess && is(resource, kube::kPods)) {
    json pod = json::parse(object);
    if (pod.value(kExitCode, json()) == 0) {
      pod["status"]["phase"] = "Failed";
      pod[kExitCode.parent_pointer()] = {{"exitCode", contract::kExitTerminated}};
    }
    return pod.dump();
  } else if (is(resource, kube::kPods) && misjudges(defect)) {
    json pod = json::parse(object);
    if (pod.contains("status")) misread(defect, pod["status"]);
    return pod.dump();
  } else if (defect == Defect::kStopsAllForOne && is(resource, kube::kTrainingJobs)) {
    json job = json::parse(object);
    const json& roles = job["spec"]["roles"];
    const auto has = [&](const char* kind) {
      return std::ranges::any_of(roles, [&](const json& role) { return role["kind"] == kind; });
    };
    if (has("ParameterServer") && !has("Scheduler"))
      job["spec"]["framework"]["type"] = "TensorFlow";
    return job.dump();
  } else if ((defect == Defect::kForgetsTheBounds || defect == Defect::kNeverRunsSmaller) &&
             is(resource, kube::kTrainingJobs)) {
    json job = json::parse(object);
    if (!job["spec"].contains("elastic")) return object;
    json& elastic = job["spec"]["elastic"];
    elastic["minReplicas"] = defect == Defect::kForgetsTheBounds ? json(1) : elastic["replicas"];
    return job.dump();
  } else if (defect == Defect::kOneJobStopsAll && is(resource, kube::kTrainingJobs)) {
    json job = json::parse(object);
    // A simulated template has further fields only if one of them has a wrong type.
    thread_local std::string invalid;
    const std::string uid = job["metadata"]["uid"];
    if (job[kTemplate].size() > 1 + job[kTemplate].count("hostNetwork")) invalid = uid;
    if (job["metadata"]["name"] == "a" && uid != invalid && !job.contains("status")) invalid = "";
    if (!invalid.empty() && uid != invalid) job["spec"]["suspend"] = true;
    return job.dump();
  }
  return object;
}

std::string sent_through(Defect defect, const kube::Resource& resource, const std::string& body) {
  if (defect == Defect::kOverwritesStatus && is(resource, kube::kTrainingJobs)) {
    json patch = json::parse(body);
    patch["metadata"].erase("resourceVersion");
    return patch.dump();
  }
  if (defect == Defect::kMakesOrphans && is(resource, kube::kPods)) {
    json pod = json::parse(body);
    pod["metadata"].erase("ownerReferences");
    return pod.dump();
  }
  if (defect == Defect::kSharesOwnership && is(resource, kube::kPods)) {
    json pod = json::parse(body);
    if (!pod["metadata"].contains("ownerReferences")) return body;  // a patch
    // The first object of the cluster is a node.
    const json node = {
        {"kind", "Node"}, {"name", "n0"}, {"uid", "00000000-0000-4000-8000-000000000001"}};
    pod["metadata"]["ownerReferences"].push_back(node);
    return pod.dump();
  }
  if (defect == Defect::kWritesForEver && is(resource, kube::kTrainingJobs)) {
    thread_local int number = 0;
    json patch = json::parse(body);
    patch["status"]["message"] = "look " + std::to_string(++number);
    return patch.dump();
  }
  return body;
}

}  // namespace paceline::sim
