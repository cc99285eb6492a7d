// SPDX-License-Identifier: Apache-2.0
#include "operator/apply/growth/node_requests.hpp"

#include <algorithm>
#include <array>

#include "common/base/timestamp.hpp"
#include "common/contract/labels.hpp"
#include "operator/render/owner.hpp"

namespace paceline::apply {
namespace {

using api::Provision;
using nlohmann::json;

constexpr const char* kGroup = "/apis/autoscaling.x-k8s.io";
/// All nodes of the gang or none, tried again for as long as the object exists.
constexpr const char* kClass = "best-effort-atomic-scale-up.autoscaling.x-k8s.io";

/// nullopt if it does not exist. Forbidden counts as absent: somebody has taken the right away.
Result<std::optional<std::string>> found(Result<std::string> answer) {
  if (answer) return std::optional(std::move(*answer));
  const Code code = answer.error().code;
  if (code == Code::kNotFound || code == Code::kForbidden) return std::nullopt;
  return std::unexpected(answer.error());
}

kube::Resource resource_of(Provision kind, const Growers& growers) {
  constexpr std::string_view kName = "autoscaling.x-k8s.io";
  if (kind == Provision::kProvisioningRequest)
    return {kName, growers.provisioning_requests, "provisioningrequests", "ProvisioningRequest"};
  return {kName, growers.capacity_buffers, "capacitybuffers", "CapacityBuffer"};
}

std::string template_name(const api::TrainingJob& job, const std::string& role) {
  return job.metadata.name + "-" + role + "-nodes";
}

/// One ProvisioningRequest is for all roles, a CapacityBuffer for one. A running elastic job asks
/// for one role only, so the others may have none.
std::vector<std::string> names_of(const api::TrainingJob& job, Provision kind) {
  if (kind == Provision::kProvisioningRequest) return {job.metadata.name + "-nodes"};
  std::vector<std::string> names;
  for (const api::Role& role : job.spec.roles) names.push_back(template_name(job, role.name));
  return names;
}

json object_of(const api::TrainingJob& job, const kube::Resource& resource,
               const std::string& name) {
  return {{"apiVersion", resource.api_version()},
          {"kind", resource.kind},
          {"metadata",
           {{"name", name},
            {"namespace", job.metadata.name_space},
            {"labels", {{std::string(contract::kLabelPlaceholder), job.metadata.name}}},
            {"ownerReferences", json::array({render::owner_reference(job)})}}}};
}

/// nullopt: it would ask for nothing.
std::optional<json> request_of(const api::TrainingJob& job, const kube::Resource& resource,
                               const std::string& name, const std::vector<PodSet>& sets) {
  json object = object_of(job, resource, name);
  json& spec = object["spec"];
  if (resource.kind == "ProvisioningRequest") {
    spec["provisioningClassName"] = kClass;
    for (const PodSet& set : sets)
      spec["podSets"].push_back(
          {{"count", set.count}, {"podTemplateRef", {{"name", template_name(job, set.role)}}}});
    return object;
  }
  const auto set = std::ranges::find_if(
      sets, [&](const PodSet& known) { return template_name(job, known.role) == name; });
  if (set == sets.end()) return std::nullopt;
  spec = {{"podTemplateRef", {{"name", name}}}, {"replicas", set->count}};
  return object;
}

/// The newest condition in words, and whether no nodes will come.
void read_conditions(const json& object, plan::NodeRequest& request) {
  std::string newest;
  for (const json& condition : object.value("/status/conditions"_json_pointer, json::array())) {
    const std::string type = condition.value("type", "");
    const bool holds = condition.value("status", "") == "True";
    const std::string when = condition.value("lastTransitionTime", "");
    const bool ends = type == "Failed" || type == "BookingExpired" || type == "CapacityRevoked";
    request.refused = request.refused || (ends && holds);
    if (when < newest || (ends && !holds)) continue;
    newest = when;
    const std::string message = condition.value("message", "");
    request.answer = (holds ? "" : "not ") + type + (message.empty() ? "" : ": " + message);
  }
}

Status create_one(kube::Api& api, const kube::Resource& resource, const api::TrainingJob& job,
                  const json& object) {
  const auto made = api.create(resource, job.metadata.name_space, object.dump());
  if (made || made.error().code == Code::kAlreadyExists) return {};
  return std::unexpected(made.error());
}

Status remove_one(kube::Api& api, const kube::Resource& resource, const api::TrainingJob& job,
                  const std::string& name) {
  const auto gone = api.remove(resource, job.metadata.name_space, name);
  if (gone || gone.error().code == Code::kNotFound) return {};
  return std::unexpected(gone.error());
}

}  // namespace

Result<Growers> find_growers(kube::Api& api) {
  Growers growers;
  const auto group = found(api.get_raw(kGroup));
  if (!group) return std::unexpected(group.error());
  if (*group) {
    // The newest version comes first.
    for (const json& version :
         json::parse(**group, nullptr, false).value("versions", json::array())) {
      const std::string name = version.value("version", "");
      const auto served = found(api.get_raw(std::string(kGroup) + "/" + name));
      if (!served) return std::unexpected(served.error());
      for (const json& resource :
           json::parse(served->value_or("{}"), nullptr, false).value("resources", json::array())) {
        const std::string plural = resource.value("name", "");
        if (plural == "provisioningrequests" && growers.provisioning_requests.empty())
          growers.provisioning_requests = name;
        if (plural == "capacitybuffers" && growers.capacity_buffers.empty())
          growers.capacity_buffers = name;
      }
    }
  }
  const auto karpenter = found(api.get_raw("/apis/karpenter.sh"));
  if (!karpenter) return std::unexpected(karpenter.error());
  if (*karpenter) {
    growers.pods = true;
    return growers;
  }
  const auto autoscaler =
      found(api.get(kube::kConfigMaps, "kube-system", "cluster-autoscaler-status"));
  if (!autoscaler) return std::unexpected(autoscaler.error());
  growers.pods = autoscaler->has_value();
  return growers;
}

Status NodeRequests::create(const api::TrainingJob& job, Provision kind, const Growers& growers,
                            const std::vector<PodSet>& sets) {
  for (const PodSet& set : sets) {
    json object = object_of(job, kube::kPodTemplates, template_name(job, set.role));
    object["template"] = {{"metadata", {{"labels", set.placeholder["metadata"]["labels"]}}},
                          {"spec", set.placeholder["spec"]}};
    if (auto made = create_one(api_, kube::kPodTemplates, job, object); !made) return made;
  }
  const kube::Resource resource = resource_of(kind, growers);
  for (const std::string& name : names_of(job, kind)) {
    const auto object = request_of(job, resource, name, sets);
    if (!object) continue;
    if (auto made = create_one(api_, resource, job, *object); !made) return made;
  }
  return {};
}

Result<plan::NodeRequest> NodeRequests::read(const api::TrainingJob& job,
                                             const plan::NodeRequest& request,
                                             const Growers& growers) {
  plan::NodeRequest now{request.kind, request.created, "", false};
  const kube::Resource resource = resource_of(request.kind, growers);
  std::optional<Error> absent;
  bool exists = false;
  for (const std::string& name : names_of(job, request.kind)) {
    const auto answer = api_.get(resource, job.metadata.name_space, name);
    if (!answer) {
      if (answer.error().code != Code::kNotFound) return std::unexpected(answer.error());
      absent = answer.error();
      continue;
    }
    exists = true;
    plan::NodeRequest one = now;
    read_conditions(json::parse(*answer, nullptr, false), one);
    if (now.answer.empty() || one.refused || one.answer.starts_with("not ")) now = one;
  }
  if (!exists && absent) return std::unexpected(*absent);
  return now;
}

Status NodeRequests::withdraw(const api::TrainingJob& job, Provision kind, const Growers& growers) {
  const kube::Resource resource = resource_of(kind, growers);
  for (const std::string& name : names_of(job, kind)) {
    if (auto gone = remove_one(api_, resource, job, name); !gone) return gone;
  }
  for (const api::Role& role : job.spec.roles) {
    if (auto gone = remove_one(api_, kube::kPodTemplates, job, template_name(job, role.name));
        !gone)
      return gone;
  }
  return {};
}

Result<std::map<std::string, plan::NodeRequest>> NodeRequests::list(const Growers& growers) {
  std::map<std::string, plan::NodeRequest> requests;
  for (const Provision kind : {Provision::kProvisioningRequest, Provision::kCapacityBuffer}) {
    const kube::Resource resource = resource_of(kind, growers);
    if (resource.version.empty()) continue;
    kube::ListOptions options;
    options.label_selector = contract::kLabelPlaceholder;
    const auto answer = found(api_.list(resource, "", options));
    if (!answer) return std::unexpected(answer.error());
    for (const json& item :
         json::parse(answer->value_or("{}"), nullptr, false).value("items", json::array())) {
      const json& meta = item.at("metadata");
      for (const json& owner : meta.value("ownerReferences", json::array()))
        requests[owner.value("uid", "")] = {
            kind, parse_time(meta.value("creationTimestamp", "")).value_or(WallTime{}), "", false};
    }
  }
  return requests;
}

}  // namespace paceline::apply
