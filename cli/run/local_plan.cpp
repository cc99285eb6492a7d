// SPDX-License-Identifier: Apache-2.0
#include "cli/run/local_plan.hpp"

#include <algorithm>
#include <array>
#include <set>
#include <string_view>

#include "common/command/command.hpp"
#include "common/contract/env.hpp"
#include "operator/api/template/containers.hpp"
#include "operator/render/environment.hpp"

namespace paceline::cli {
namespace {

using nlohmann::json;

constexpr std::array<std::string_view, 14> kIgnoredOfContainer{"image",
                                                               "imagePullPolicy",
                                                               "resources",
                                                               "ports",
                                                               "livenessProbe",
                                                               "readinessProbe",
                                                               "startupProbe",
                                                               "securityContext",
                                                               "terminationMessagePath",
                                                               "terminationMessagePolicy",
                                                               "stdin",
                                                               "stdinOnce",
                                                               "tty",
                                                               "volumeDevices"};

const json* member(const json& object, std::string_view key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() || found->is_null() || (found->is_structured() && found->empty())
             ? nullptr
             : &*found;
}

// What trials of changes show is kept for the next run of the same training.
void remember(std::map<std::string, std::string>& environment) {
  const auto value = [&](const char* name) {
    const auto found = environment.find(name);
    return found == environment.end() ? std::string() : found->second;
  };
  std::string cache = value("XDG_CACHE_HOME");
  if (!cache.starts_with('/') && !value("HOME").empty()) cache = value("HOME") + "/.cache";
  if (cache.starts_with('/'))
    environment.try_emplace(std::string(env::kLearnedDir.name), cache + "/paceline/learned");
}

std::string text_of(const json& object, std::string_view key) {
  const json* value = member(object, key);
  return value != nullptr && value->is_string() ? value->get<std::string>() : "";
}

void refuse_container(const json& trainer, const std::string& path,
                      const std::vector<PathMapping>& mappings, api::FieldErrors& errors) {
  if (member(trainer, "envFrom") != nullptr) {
    errors.push_back({path + ".envFrom", "",
                      "takes variables from the cluster, which is not there in a local run",
                      "write the variables in env, or set them in your shell and remove envFrom"});
  }
  if (member(trainer, "lifecycle") != nullptr) {
    errors.push_back(
        {path + ".lifecycle", "", "is not run locally", "move what it does into command"});
  }
  if (const json* variables = member(trainer, "env");
      variables != nullptr && variables->is_array()) {
    for (std::size_t i = 0; i < variables->size(); ++i) {
      if (member((*variables)[i], "valueFrom") == nullptr) continue;
      errors.push_back(
          {path + ".env[" + std::to_string(i) + "].valueFrom", text_of((*variables)[i], "name"),
           "takes its value from the cluster, which is not there in a local run", "write value"});
    }
  }
  if (const json* mounts = member(trainer, "volumeMounts");
      mounts != nullptr && mounts->is_array()) {
    for (std::size_t i = 0; i < mounts->size(); ++i) {
      const std::string at = text_of((*mounts)[i], "mountPath");
      if (is_mapped(mappings, at)) continue;
      errors.push_back({path + ".volumeMounts[" + std::to_string(i) + "].mountPath", at,
                        "is a volume, which a local run does not have",
                        "name its local path: --map " + at + "=LOCAL_PATH"});
    }
  }
}

}  // namespace

std::string expand_references(const std::string& text,
                              const std::map<std::string, std::string>& variables) {
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    if (text[at] == '$' && at + 1 < text.size() && text[at + 1] == '$') {
      result += '$';
      at += 2;
      continue;
    }
    const std::size_t close =
        text.compare(at, 2, "$(") == 0 ? text.find(')', at) : std::string::npos;
    if (close == std::string::npos) {
      result += text[at++];
      continue;
    }
    const auto found = variables.find(text.substr(at + 2, close - at - 2));
    result += found == variables.end() ? text.substr(at, close + 1 - at) : found->second;
    at = close + 1;
  }
  return result;
}

api::FieldErrors refuse_locally(const api::TrainingJob& job,
                                const std::vector<PathMapping>& mappings) {
  api::FieldErrors errors;
  if (job.spec.suspend)
    errors.push_back(
        {"spec.suspend", "true", "means that the job must not run", "set it to false"});
  if (!job.spec.runtime_profile.empty()) {
    errors.push_back({"spec.acceleration.runtimeProfileName", job.spec.runtime_profile,
                      "names a RuntimeProfile of a cluster",
                      "remove it, and write what the profile says into spec.acceleration"});
  }
  int trainers = 0;
  int ranks = 0;
  for (const api::Role& role : job.spec.roles) {
    if (!contract::trains(role.kind)) continue;
    trainers += role.replicas;
    ranks += role.replicas * api::processes_of(job.spec, role);
  }
  for (std::size_t index = 0; index < job.spec.roles.size(); ++index) {
    const api::Role& role = job.spec.roles[index];
    const std::string pod = "spec.roles[" + std::to_string(index) + "].template.spec";
    const json* spec = member(role.pod_template, "spec");
    const json* trainer = api::trainer_of(role);
    if (spec == nullptr || trainer == nullptr) continue;
    if (member(*spec, "initContainers") != nullptr) {
      errors.push_back({pod + ".initContainers", "", "are not run locally",
                        "do their work beforehand and remove them from this file"});
    }
    const int position = api::trainer_index(role);
    const json& containers = (*spec)["containers"];
    for (std::size_t i = 0; i < containers.size(); ++i) {
      if (static_cast<int>(i) == position) continue;
      errors.push_back({pod + ".containers[" + std::to_string(i) + "]",
                        text_of(containers[i], "name"), "is a sidecar, which is not run locally",
                        "start it yourself and remove it from this file"});
    }
    const std::string path = pod + ".containers[" + std::to_string(position) + "]";
    refuse_container(*trainer, path, mappings, errors);

    std::vector<std::string> command = api::strings_of(*trainer, "command");
    const auto arguments = api::strings_of(*trainer, "args");
    command.insert(command.end(), arguments.begin(), arguments.end());
    const frameworks::JobShape shape{
        std::string(api::to_string(job.spec.framework.type)),
        job.spec.framework.launcher == api::FrameworkLauncher::kPassthrough,
        trainers,
        api::processes_of(job.spec, role),
        contract::trains(role.kind),
        ranks};
    const auto resolved = frameworks::resolve_command(
        command, shape, [](const std::string&) { return std::string(); });
    if (!resolved) errors.push_back({path + ".command", "", resolved.error().message, ""});
  }
  return errors;
}

LocalPlan plan_locally(const api::TrainingJob& job, const Machine& machine) {
  LocalPlan plan;
  std::set<std::string> ignored;
  const int replicas = api::replica_count(job.spec);
  for (const api::Replica& replica : api::replicas_of(job.spec)) {
    const api::Role& role = job.spec.roles[static_cast<std::size_t>(replica.role)];
    const json& trainer = *api::trainer_of(role);
    for (const std::string_view field : kIgnoredOfContainer) {
      if (member(trainer, field) != nullptr) ignored.emplace(field);
    }
    for (const auto& [field, value] : role.pod_template["spec"].items()) {
      if (field != "containers" && field != "initContainers" && field != "restartPolicy")
        ignored.insert(field);
    }

    LocalReplica local;
    local.node_rank = replica.node_rank;
    local.name = job.metadata.name + "-" + role.name + "-" + std::to_string(replica.index);
    local.state_dir = machine.state_dir + "/" + std::to_string(replica.node_rank);
    local.termination_log = local.state_dir + "/termination.json";
    local.explain_file = local.state_dir + "/explain.txt";
    local.environment = machine.environment;
    remember(local.environment);

    render::Endpoints endpoints;
    const std::string rendezvous = "127.0.0.1:" + std::to_string(machine.rendezvous_port);
    endpoints.rendezvous_address = rendezvous;
    endpoints.rendezvous_listen = rendezvous;
    endpoints.http_listen =
        "127.0.0.1:" +
        std::to_string(machine.http_ports[static_cast<std::size_t>(replica.node_rank)]);
    endpoints.runtime_dir = machine.runtime_dir;
    endpoints.state_dir = local.state_dir;
    endpoints.termination_log = local.termination_log;
    endpoints.startup_timeout = "60s";
    endpoints.token = machine.token;
    endpoints.acceleration = api::resolve(job.spec.acceleration, nullptr);
    endpoints.pod_name = local.name;
    endpoints.pod_ip = "127.0.0.1";
    endpoints.node_name = machine.host_name;
    std::map<std::string, std::string> container;
    for (const auto& [name, value] : render::replica_environment(job, replica, endpoints))
      container[name] = value;
    // Several runs may share this machine: every attempt uses a free port.
    container[std::string(env::kMasterPort.name)] = "0";
    container[std::string(env::kExplainFile.name)] = local.explain_file;
    // The replicas share this machine's CPUs; in a cluster each has its own.
    container.try_emplace(std::string(env::kCpuLimit.name),
                          std::to_string(std::max(1, machine.cpus / replicas)));
    for (const auto& [name, value] : api::literal_environment(trainer)) {
      container[name] = apply_mappings(machine.mappings, expand_references(value, container));
    }
    for (const auto& [name, value] : container) local.environment[name] = value;

    local.argv = {machine.launcher, "run", "--"};
    for (const char* key : {"command", "args"}) {
      for (const std::string& word : api::strings_of(trainer, key))
        local.argv.push_back(apply_mappings(machine.mappings, expand_references(word, container)));
    }
    local.working_dir = apply_mappings(machine.mappings, text_of(trainer, "workingDir"));
    plan.replicas.push_back(std::move(local));
  }
  plan.ignored.assign(ignored.begin(), ignored.end());
  return plan;
}

}  // namespace paceline::cli
