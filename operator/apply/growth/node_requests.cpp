// SPDX-License-Identifier: Apache-2.0
#include "operator/apply/growth/node_requests.hpp"

#include <algorithm>
#include <array>

#include "common/base/timestamp.hpp"
#include "common/contract/labels.hpp"
#include "operator/apply/facts/owned.hpp"
#include "operator/render/names.hpp"
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

/// The list of that name in an answer. What serves an API group may be anybody's program, so it is
/// empty if the answer is no such document.
json list_in(const std::string& answer, const char* name) {
  const json document = json::parse(answer, nullptr, false);
  const auto found = document.find(name);
  return found != document.end() && found->is_array() ? *found : json::array();
}

std::string text_in(const json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

kube::Resource resource_of(Provision kind, const Growers& growers) {
  constexpr std::string_view kName = "autoscaling.x-k8s.io";
  if (kind == Provision::kProvisioningRequest)
    return {kName, growers.provisioning_requests, "provisioningrequests", "ProvisioningRequest"};
  return {kName, growers.capacity_buffers, "capacitybuffers", "CapacityBuffer"};
}

json object_of(const api::TrainingJob& job, const kube::Resource& resource, const std::string& name,
               const std::string& shape) {
  return {{"apiVersion", resource.api_version()},
          {"kind", resource.kind},
          {"metadata",
           {{"name", name},
            {"namespace", job.metadata.name_space},
            {"labels",
             {{std::string(contract::kLabelPlaceholder), job.metadata.name},
              {std::string(contract::kLabelPlaceholderShape), shape}}},
            {"ownerReferences", json::array({render::owner_reference(job)})}}}};
}

/// Plan::request_shape that the object was made for.
std::string shape_of(const json& object) {
  return object.at("metadata")
      .at("labels")
      .value(std::string(contract::kLabelPlaceholderShape), "");
}

/// One ProvisioningRequest is for all roles, a CapacityBuffer for one. A running elastic job asks
/// for one role only, so the others have none.
std::vector<json> requests_of(const api::TrainingJob& job, const kube::Resource& resource,
                              const std::string& shape, const std::vector<PodSet>& sets) {
  std::vector<json> objects;
  if (resource.kind == "ProvisioningRequest") {
    const std::string name = render::node_request_name(job, "");
    json& spec = objects.emplace_back(object_of(job, resource, name, shape))["spec"];
    spec["provisioningClassName"] = kClass;
    for (const PodSet& set : sets)
      spec["podSets"].push_back(
          {{"count", set.count},
           {"podTemplateRef", {{"name", render::node_request_name(job, set.role)}}}});
    return objects;
  }
  for (const PodSet& set : sets) {
    const std::string name = render::node_request_name(job, set.role);
    objects.emplace_back(object_of(job, resource, name, shape))["spec"] = {
        {"podTemplateRef", {{"name", name}}}, {"replicas", set.count}};
  }
  return objects;
}

/// The newest condition in words, and whether no nodes will come.
void read_conditions(const json& object, plan::NodeRequest& request) {
  std::string newest;
  for (const json& condition : object.value("/status/conditions"_json_pointer, json::array())) {
    const std::string type = text_in(condition, "type");
    const bool holds = text_in(condition, "status") == "True";
    const std::string when = text_in(condition, "lastTransitionTime");
    const bool ends = type == "Failed" || type == "BookingExpired" || type == "CapacityRevoked";
    request.refused = request.refused || (ends && holds);
    if (when < newest || (ends && !holds)) continue;
    newest = when;
    const std::string message = text_in(condition, "message");
    request.answer = (holds ? "" : "not ") + type + (message.empty() ? "" : ": " + message);
  }
}

/// The objects that belong to the job, under whatever name an earlier operator gave them.
Result<std::vector<json>> owned_by(kube::Api& api, const kube::Resource& resource,
                                   const api::TrainingJob& job) {
  kube::ListOptions options;
  options.label_selector = std::string(contract::kLabelPlaceholder) + "=" + job.metadata.name;
  std::vector<json> owned;
  const auto answer = api.list(resource, job.metadata.name_space, options);
  if (!answer && answer.error().code == Code::kNotFound) return owned;  // no longer served
  if (!answer) return std::unexpected(answer.error());
  for (const json& item : list_in(*answer, "items")) {
    if (owner_of(item) == job.metadata.uid) owned.push_back(item);
  }
  return owned;
}

Status create_one(kube::Api& api, const kube::Resource& resource, const api::TrainingJob& job,
                  const json& object) {
  const auto made = api.create(resource, job.metadata.name_space, object.dump());
  if (made) return {};
  if (made.error().code != Code::kAlreadyExists) return std::unexpected(made.error());
  const auto owned = owned_by(api, resource, job);
  if (!owned) return std::unexpected(owned.error());
  const std::string name = object["metadata"]["name"];
  const auto ours = std::ranges::find_if(
      *owned, [&](const json& one) { return one["metadata"]["name"] == name; });
  if (ours == owned->end())
    return fail(Code::kInvalid, Origin::kKube, not_of_this_job(resource.kind, name));
  // The job was edited, and a delete failed then. It would ask for nodes that do not fit.
  if (shape_of(*ours) != shape_of(object))
    return fail(Code::kConflict, Origin::kKube,
                std::string(resource.kind) + " " + name + " is of an earlier spec of the job",
                true);
  return {};
}

Status remove_all(kube::Api& api, const kube::Resource& resource, const api::TrainingJob& job) {
  const auto owned = owned_by(api, resource, job);
  if (!owned) return std::unexpected(owned.error());
  for (const json& object : *owned) {
    kube::DeleteOptions options;
    options.uid = object["metadata"].value("uid", "");
    const auto gone =
        api.remove(resource, job.metadata.name_space, object["metadata"]["name"], options);
    if (!gone && gone.error().code != Code::kNotFound) return std::unexpected(gone.error());
  }
  return {};
}

}  // namespace

Result<Growers> find_growers(kube::Api& api) {
  Growers growers;
  const auto group = found(api.get_raw(kGroup));
  if (!group) return std::unexpected(group.error());
  if (*group) {
    // The newest version comes first.
    for (const json& version : list_in(**group, "versions")) {
      const std::string name = text_in(version, "version");
      if (name.empty()) continue;
      const auto served = found(api.get_raw(std::string(kGroup) + "/" + name));
      if (!served) return std::unexpected(served.error());
      for (const json& resource : list_in(served->value_or(""), "resources")) {
        const std::string plural = text_in(resource, "name");
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

Status NodeRequests::create(const api::TrainingJob& job, const plan::NodeRequest& request,
                            const Growers& growers, const std::vector<PodSet>& sets) {
  for (const PodSet& set : sets) {
    json object = object_of(job, kube::kPodTemplates, render::node_request_name(job, set.role),
                            request.shape);
    object["template"] = {{"metadata", {{"labels", set.placeholder["metadata"]["labels"]}}},
                          {"spec", set.placeholder["spec"]}};
    if (auto made = create_one(api_, kube::kPodTemplates, job, object); !made) return made;
  }
  const kube::Resource resource = resource_of(request.kind, growers);
  for (const json& object : requests_of(job, resource, request.shape, sets)) {
    if (auto made = create_one(api_, resource, job, object); !made) return made;
  }
  return {};
}

Result<plan::NodeRequest> NodeRequests::read(const api::TrainingJob& job,
                                             const plan::NodeRequest& request,
                                             const Growers& growers) {
  plan::NodeRequest now{request.kind, request.created, "", false, request.shape};
  const auto owned = owned_by(api_, resource_of(request.kind, growers), job);
  if (!owned) return std::unexpected(owned.error());
  if (owned->empty())
    return fail(Code::kNotFound, Origin::kKube, "the job has no request for nodes");
  for (const json& object : *owned) {
    plan::NodeRequest one{request.kind, request.created, "", false, request.shape};
    read_conditions(object, one);
    if (now.answer.empty() || one.refused || one.answer.starts_with("not ")) now = one;
  }
  return now;
}

Status NodeRequests::withdraw(const api::TrainingJob& job, Provision kind, const Growers& growers) {
  if (auto gone = remove_all(api_, resource_of(kind, growers), job); !gone) return gone;
  return remove_all(api_, kube::kPodTemplates, job);
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
    for (const json& item : list_in(answer->value_or(""), "items")) {
      const json& meta = item.at("metadata");
      if (const std::string owner = owner_of(item); !owner.empty())
        requests[owner] = {kind,
                           parse_time(meta.value("creationTimestamp", "")).value_or(WallTime{}), "",
                           false, shape_of(item)};
    }
  }
  return requests;
}

}  // namespace paceline::apply
