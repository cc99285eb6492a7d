// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/job.hpp"

#include <algorithm>
#include <array>
#include <cctype>

namespace paceline::sim {
namespace {

using nlohmann::json;

std::string name_of_role(const RoleShape& role) {
  std::string name(contract::to_string(role.kind));
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
  return name;
}

json role_of(const JobShape& shape, const RoleShape& role) {
  const json container = {{"name", "trainer"},
                          {"image", "i"},
                          {"command", {"train"}},
                          {"resources", {{"requests", {{"cpu", std::to_string(shape.cpu)}}}}}};
  json document = {{"name", name_of_role(role)},
                   {"kind", contract::to_string(role.kind)},
                   {"replicas", role.replicas},
                   {"template", {{"spec", {{"containers", json::array({container})}}}}}};
  if (shape.host_network) document["template"]["spec"]["hostNetwork"] = true;
  if (role.processes > 0) document["processes"] = role.processes;
  if (role.after_servers)
    document["startAfter"] = name_of_role({.kind = contract::RoleKind::kParameterServer});
  return document;
}

}  // namespace

json document_of(const JobShape& shape) {
  json roles = json::array();
  for (const RoleShape& role : shape.roles) roles.push_back(role_of(shape, role));
  if (roles.empty()) {
    roles.push_back(role_of(shape, {.replicas = shape.replicas - shape.spares}));
    roles[0]["name"] = "w";
  }
  json job = {
      {"apiVersion", "paceline.dev/v1alpha1"},
      {"kind", "TrainingJob"},
      {"metadata", {{"name", shape.name}, {"namespace", "default"}}},
      {"spec",
       {{"framework", {{"type", shape.framework}}},
        {"failurePolicy", {{"maxRestarts", shape.max_restarts}, {"forceDeleteAfter", "20s"}}},
        {"scheduling", {{"gangTimeout", "30s"}}},
        {"cleanPodPolicy", shape.clean_pod_policy},
        {"successPolicy", shape.success_policy},
        {"roles", std::move(roles)}}}};
  if (shape.fewest > 0) {
    for (json& role : job["spec"]["roles"]) {
      if (role["kind"] != "Worker") continue;
      role.erase("replicas");
      job["spec"]["elastic"] = {{"role", role["name"]},
                                {"replicas", shape.wanted},
                                {"minReplicas", shape.fewest},
                                {"maxReplicas", shape.most}};
    }
  }
  if (shape.spares > 0) job["spec"]["failurePolicy"]["spares"] = shape.spares;
  if (!shape.backend.empty()) job["spec"]["scheduling"]["backend"] = shape.backend;
  if (shape.may_grow) job["spec"]["scheduling"]["provision"] = "Placeholders";
  if (shape.framework == "Custom") job["spec"]["framework"]["processesPerReplica"] = 1;
  if (!shape.oom_action.empty())
    job["spec"]["failurePolicy"]["rules"] =
        json::array({{{"reasons", {"OOMKilled"}}, {"action", shape.oom_action}}});
  if (!shape.kueue_queue.empty())
    job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = shape.kueue_queue;
  if (!shape.ttl.empty()) job["spec"]["ttlAfterFinished"] = shape.ttl;
  if (shape.one_leaf) job["spec"]["topology"]["required"] = "Leaf";
  if (shape.prefers_leaf)
    job["spec"]["topology"] = {{"preferred", "Leaf"}, {"preferredTimeout", "1m"}};
  if (shape.lacks_an_image)
    job["spec"]["roles"].back()["template"]["spec"]["containers"][0]["image"] = kMissingImage;
  const std::array<json, 5> wrong = {
      json{{"securityContext", {1}}}, json{{"tolerations", 5}}, json{{"volumes", "x"}},
      json{{"affinity", {{"nodeAffinity", true}}}}, json{{"initContainers", {{{"env", 1}}}}}};
  if (shape.wrong_type > 0)
    job["spec"]["roles"][0]["template"]["spec"].merge_patch(
        wrong[static_cast<std::size_t>(shape.wrong_type) % wrong.size()]);
  return job;
}

}  // namespace paceline::sim
