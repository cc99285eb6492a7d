// SPDX-License-Identifier: Apache-2.0
#include "operator/render/pod.hpp"

#include <algorithm>

#include "common/base/base64.hpp"
#include "common/contract/env.hpp"
#include "common/contract/host_ports.hpp"
#include "common/contract/injection.hpp"
#include "common/contract/labels.hpp"
#include "common/net/address.hpp"
#include "operator/api/roles.hpp"
#include "operator/api/template/containers.hpp"
#include "operator/render/environment.hpp"
#include "operator/render/host_network.hpp"
#include "operator/render/names.hpp"
#include "operator/render/owner.hpp"

namespace paceline::render {
namespace {

using nlohmann::json;
// IPv4 too: a pod may have addresses of either family or of both
constexpr const char* kEveryAddress = "::";
// of the runtime image; an unprivileged namespace accepts it too
constexpr int kRuntimeUser = 65532;

std::string text(std::string_view view) { return std::string(view); }

json job_labels(const api::TrainingJob& job) {
  return {{text(contract::kLabelJob), job.metadata.name},
          {text(contract::kLabelJobUid), job.metadata.uid}};
}

json metadata(const api::TrainingJob& job, const std::string& name) {
  return {{"name", name},
          {"namespace", job.metadata.name_space},
          {"labels", job_labels(job)},
          {"ownerReferences", json::array({owner_reference(job)})}};
}

json variable(std::string_view name, const std::string& value) {
  return {{"name", name}, {"value", value}};
}

json field_variable(const env::Variable& variable, const char* path) {
  return {{"name", variable.name}, {"valueFrom", {{"fieldRef", {{"fieldPath", path}}}}}};
}

/// Whether the user's part of the container refers to the variable as $(NAME).
bool refers_to(const std::string& container, std::string_view name) {
  return container.find("$(" + std::string(name) + ")") != std::string::npos;
}

void set_ports(const api::TrainingJob& job, const api::Replica& replica, const PodInputs& inputs,
               Endpoints& endpoints) {
  std::uint16_t service = contract::kRendezvousPort;
  std::uint16_t listen = contract::kRendezvousPort;
  std::uint16_t http = contract::kLauncherHttpPort;
  // The first role has node rank 0.
  if (api::uses_host_network(job.spec.roles.front()))
    service = contract::kHostRendezvousServicePort;
  if (api::uses_host_network(job.spec.roles[static_cast<std::size_t>(replica.role)])) {
    listen = contract::host_rendezvous_port(inputs.port_base);
    http = contract::host_http_port(inputs.port_base);
    endpoints.port_base = inputs.port_base;
  }
  endpoints.rendezvous_address = net::to_string({inputs.rendezvous_ip, service});
  endpoints.rendezvous_listen = net::to_string({kEveryAddress, listen});
  endpoints.http_listen = net::to_string({kEveryAddress, http});
}

/// The launcher reads its settings from one variable. Variables that the user's container refers to
/// stand by themselves too, since the kubelet replaces the references. They come before the user's.
json environment_of(const api::TrainingJob& job, const api::Replica& replica,
                    const PodInputs& inputs, const json& trainer) {
  Endpoints endpoints;
  set_ports(job, replica, inputs, endpoints);
  endpoints.runtime_dir = contract::kRuntimeMount;
  endpoints.state_dir = contract::kStateMount;
  const auto log = trainer.find("terminationMessagePath");
  endpoints.termination_log =
      log != trainer.end() && log->is_string() ? log->get<std::string>() : "/dev/termination-log";
  endpoints.startup_timeout = inputs.startup_timeout;
  endpoints.node_name = inputs.node;
  endpoints.pod_name = pod_name(job, replica, inputs.incarnation);
  if (api::workers_fail_alone(job.spec) && api::uses_cluster_dns(job.spec))
    endpoints.subdomain = headless_service_name(job);
  endpoints.acceleration = inputs.acceleration;
  endpoints.attempt = inputs.attempt;
  endpoints.restarts = inputs.restarts;
  endpoints.goodput = inputs.goodput;
  endpoints.placed = inputs.placed;
  endpoints.incarnation = inputs.incarnation;
  const Environment settings = replica_environment(job, replica, endpoints);
  json list = json::array({variable(env::kSettings.name, settings_of(settings))});
  const std::string container = trainer.dump(-1, ' ', false, json::error_handler_t::replace);
  for (const auto& [name, value] : settings) {
    if (refers_to(container, name)) list.push_back(variable(name, value));
  }
  list.push_back(field_variable(env::kPodIp, "status.podIP"));
  if (inputs.node.empty()) list.push_back(field_variable(env::kNodeName, "spec.nodeName"));
  list.push_back(
      {{"name", env::kToken.name},
       {"valueFrom", {{"secretKeyRef", {{"name", secret_name(job)}, {"key", kTokenKey}}}}}});
  if (const auto user = trainer.find("env"); user != trainer.end() && user->is_array())
    list.insert(list.end(), user->begin(), user->end());
  return list;
}

/// As the API server takes it: null is as good as absent.
bool is_set(const json& object, const char* field) {
  const auto found = object.find(field);
  return found != object.end() && !found->is_null();
}

json& list_in(json& object, const char* key) {
  json& list = object[key];
  if (!list.is_array()) list = json::array();
  return list;
}

/// The node's agent mounts the runtime into the container with the slot: no copy and no volume is
/// needed.
void take_slot(json& trainer) {
  json* limits = &trainer;
  for (const char* part : {"resources", "limits"}) {
    limits = &(*limits)[part];
    if (!limits->is_object()) *limits = json::object();
  }
  (*limits)[text(contract::kRuntimeResource)] = "1";  // the request follows from the limit
}

void wrap_trainer(json& trainer, json environment) {
  json command =
      json::array({text(contract::kRuntimeMount) + "/bin/paceline-launcher", "run", "--"});
  for (const std::string& word : api::strings_of(trainer, "command")) command.push_back(word);
  trainer["command"] = std::move(command);
  trainer["env"] = std::move(environment);
  json& mounts = list_in(trainer, "volumeMounts");
  mounts.push_back({{"name", contract::kStateVolume}, {"mountPath", contract::kStateMount}});
}

/// The same CPU and memory as the trainer. The pod keeps its QoS class, and it needs no more room,
/// because init containers count by the maximum.
json runtime_resources(const json& trainer) {
  json result = json::object();
  const auto resources = trainer.find("resources");
  if (resources == trainer.end() || !resources->is_object()) return result;
  for (const char* section : {"requests", "limits"}) {
    const auto map = resources->find(section);
    if (map == resources->end() || !map->is_object()) continue;
    for (const char* name : {"cpu", "memory"}) {
      if (map->contains(name)) result[section][name] = (*map)[name];
    }
  }
  return result;
}

json runtime_container(const json& pod, const json& trainer, const PodInputs& inputs) {
  json security = {{"allowPrivilegeEscalation", false},
                   {"readOnlyRootFilesystem", true},
                   {"capabilities", {{"drop", {"ALL"}}}},
                   {"seccompProfile", {{"type", "RuntimeDefault"}}},
                   {"runAsNonRoot", true}};
  // The image names a user that is not root. A security policy may choose another: OpenShift allows
  // a range of users in each namespace, and takes one if the pod names none. So none is named here,
  // unless the container would inherit root.
  const auto context = pod.find("securityContext");
  const json user =
      context != pod.end() && context->is_object() ? context->value("runAsUser", json()) : json();
  if (user.is_number_integer() && user == 0) security["runAsUser"] = kRuntimeUser;
  return {{"name", contract::kRuntimeInitContainer},
          {"image", inputs.runtime_image},
          {"imagePullPolicy", inputs.pull_policy},
          {"command",
           {"/opt/paceline-image/bin/paceline-launcher", "install", contract::kRuntimeMount}},
          {"resources", runtime_resources(trainer)},
          {"securityContext", std::move(security)},
          {"volumeMounts", json::array({{{"name", contract::kRuntimeVolume},
                                         {"mountPath", contract::kRuntimeMount}}})}};
}

/// Terms are alternatives, so each of them gets the pin.
void pin(json& pod, const std::string& node) {
  json& required =
      pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
  json& terms = list_in(required, "nodeSelectorTerms");
  if (terms.empty()) terms.push_back(json::object());
  for (json& term : terms) {
    list_in(term, "matchFields")
        .push_back({{"key", "metadata.name"}, {"operator", "In"}, {"values", {node}}});
  }
}

/// Node labels and tolerations of the flavors that were admitted, and what admission checks add.
void apply(json& pod, const api::PodGrant& grant) {
  for (const auto& [key, value] : grant.node_selector) {
    json& selector = pod["spec"]["nodeSelector"];
    if (!selector.is_object()) selector = json::object();
    selector[key] = value;
  }
  for (const json& toleration : grant.tolerations)
    list_in(pod["spec"], "tolerations").push_back(toleration);
  // Paceline's own labels stay.
  for (const auto& [key, value] : grant.labels.items())
    pod["metadata"]["labels"].emplace(key, value);
  for (const auto& [key, value] : grant.annotations.items())
    pod["metadata"]["annotations"].emplace(key, value);
}

}  // namespace

json render_pod(const api::TrainingJob& job, const api::Replica& replica, const PodInputs& inputs) {
  const api::Role& role = job.spec.roles[static_cast<std::size_t>(replica.role)];
  json pod = {{"apiVersion", "v1"},
              {"kind", "Pod"},
              {"metadata", metadata(job, pod_name(job, replica, inputs.incarnation))}};
  json& labels = pod["metadata"]["labels"];
  if (const auto user = role.pod_template.find("metadata");
      user != role.pod_template.end() && user->is_object()) {
    if (user->contains("annotations") && (*user)["annotations"].is_object())
      pod["metadata"]["annotations"] = (*user)["annotations"];
    if (user->contains("labels") && (*user)["labels"].is_object()) {
      json merged = (*user)["labels"];
      merged.update(labels);
      labels = std::move(merged);
    }
  }
  labels[text(contract::kLabelRole)] = role.name;
  labels[text(contract::kLabelReplicaIndex)] = std::to_string(replica.index);
  labels[text(contract::kLabelNodeRank)] = std::to_string(replica.node_rank);
  labels[text(contract::kLabelIncarnation)] = std::to_string(inputs.incarnation);

  json& spec = pod["spec"] = role.pod_template.at("spec");
  json& trainer = spec["containers"][static_cast<std::size_t>(api::trainer_index(role))];
  json environment = environment_of(job, replica, inputs, trainer);
  json& volumes = list_in(spec, "volumes");
  if (inputs.slot) {
    take_slot(trainer);
  } else {
    json& init = list_in(spec, "initContainers");
    init.insert(init.begin(), runtime_container(spec, trainer, inputs));
    list_in(trainer, "volumeMounts")
        .push_back({{"name", contract::kRuntimeVolume},
                    {"mountPath", contract::kRuntimeMount},
                    {"readOnly", true}});
    volumes.push_back({{"name", contract::kRuntimeVolume}, {"emptyDir", json::object()}});
  }
  wrap_trainer(trainer, std::move(environment));
  if (api::uses_host_network(role)) join_host_network(spec, trainer, inputs.port_base);
  volumes.push_back({{"name", contract::kStateVolume}, {"emptyDir", json::object()}});

  spec["restartPolicy"] = "Never";
  spec["hostname"] = host_name(job, replica);
  spec["subdomain"] = headless_service_name(job);
  if (!is_set(spec, "enableServiceLinks")) spec["enableServiceLinks"] = false;
  if (!is_set(spec, "terminationGracePeriodSeconds")) {
    // The launcher needs time after the last rank to write its message.
    spec["terminationGracePeriodSeconds"] =
        std::chrono::ceil<std::chrono::seconds>(job.spec.failure_policy.grace_period).count() + 10;
  }
  if (!inputs.priority_class.empty()) spec["priorityClassName"] = inputs.priority_class;
  if (inputs.gated) spec["schedulingGates"] = json::array({{{"name", contract::kGangGate}}});
  if (!inputs.node.empty()) pin(spec, inputs.node);
  apply(pod, inputs.grant);
  return pod;
}

json ungate_patch(const json& other_gates) {
  return {{"spec", {{"schedulingGates", other_gates.empty() ? json() : other_gates}}}};
}

json render_rendezvous_service(const api::TrainingJob& job, const std::string& address) {
  json selector = job_labels(job);
  selector[text(contract::kLabelNodeRank)] = "0";
  json service = {{"apiVersion", "v1"},
                  {"kind", "Service"},
                  {"metadata", metadata(job, rendezvous_service_name(job))},
                  {"spec",
                   {{"type", "ClusterIP"},
                    {"publishNotReadyAddresses", true},
                    {"selector", std::move(selector)},
                    {"ports", rendezvous_ports()}}}};
  if (!address.empty()) service["spec"]["clusterIP"] = address;
  return service;
}

json render_headless_service(const api::TrainingJob& job) {
  return {{"apiVersion", "v1"},
          {"kind", "Service"},
          {"metadata", metadata(job, headless_service_name(job))},
          {"spec",
           {{"type", "ClusterIP"},
            {"clusterIP", "None"},
            {"publishNotReadyAddresses", true},
            {"selector", job_labels(job)},
            {"ports", json::array({{{"name", "metrics"},
                                    {"port", contract::kLauncherHttpPort},
                                    {"targetPort", contract::kLauncherHttpPort}}})}}}};
}

json render_secret(const api::TrainingJob& job, const std::string& token) {
  return {{"apiVersion", "v1"}, {"kind", "Secret"},  {"metadata", metadata(job, secret_name(job))},
          {"type", "Opaque"},   {"immutable", true}, {"data", {{kTokenKey, encode_base64(token)}}}};
}

}  // namespace paceline::render
