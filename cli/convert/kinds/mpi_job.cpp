// SPDX-License-Identifier: Apache-2.0
#include "cli/convert/kinds/mpi_job.hpp"

#include <algorithm>
#include <array>

#include "cli/convert/kinds/kubeflow_job.hpp"
#include "cli/convert/pod_template.hpp"
#include "cli/convert/started_by.hpp"

namespace paceline::cli {
namespace {

using contract::RoleKind;

constexpr std::array<std::string_view, 4> kContainers{"mpi", "mpi-launcher", "mpi-worker",
                                                      "mpitest"};
constexpr std::array kReplicas{
    ReplicaKind{"Launcher", "launcher", RoleKind::kLauncher},
    ReplicaKind{"Worker", "worker", RoleKind::kWorker},
};
constexpr KubeflowKind kMpi{"MPIJob", "MPI", "mpiReplicaSpecs", kContainers, kReplicas};

constexpr std::array<std::string_view, 9> kElasticFlags{
    "--min-np",         "--min-num-proc", "--max-np",          "--max-num-proc",         "--slots",
    "--slots-per-host", "--reset-limit",  "--elastic-timeout", "--host-discovery-script"};

/// Removes horovodrun's flags of elastic jobs, which a TrainingJob is not. `path`: of the container
/// that had them in the source.
void leave_out_elastic(NewRole& role, const std::string& path, Notes& notes) {
  Json* container = trainer_in(role.pod_template);
  if (container == nullptr || started_by(*container).launcher != "horovodrun") return;
  for (const char* list : {"command", "args"}) {
    Json* words = member(container, list) == nullptr ? nullptr : &(*container)[list];
    if (words == nullptr || !words->is_array()) continue;
    Json kept = Json::array();
    Json dropped = Json::array();
    bool program = false;
    for (std::size_t i = 0; i < words->size(); ++i) {
      const std::string word = text_of(&(*words)[i]);
      program = program || word.ends_with(".py");
      const bool elastic =
          !program &&
          std::ranges::find(kElasticFlags, word.substr(0, word.find('='))) != kElasticFlags.end();
      (elastic ? dropped : kept).push_back((*words)[i]);
      if (elastic && word.find('=') == std::string::npos && i + 1 < words->size())
        dropped.push_back((*words)[++i]);
    }
    if (dropped.empty()) continue;
    notes.drop(path + "." + list, &dropped,
               "the number of ranks is fixed, and after a failure all of them start again",
               "no action is needed");
    *words = std::move(kept);
  }
}

/// Horovod and DeepSpeed need no process that starts the ranks.
void leave_out_launcher(NewJob& job, Notes& notes) {
  const auto launcher = std::ranges::find(job.roles, RoleKind::kLauncher, &NewRole::kind);
  if (job.framework == "MPI" || launcher == job.roles.end() || job.roles.size() < 2) return;
  const Json shown = launcher->name;
  notes.drop(launcher->trainer_path, &shown, "ranks are started in the pods of the workers",
             "no action is needed");
  for (NewRole& role : job.roles) {
    if (role.start_after == launcher->name) role.start_after.clear();
    if (role.kind == RoleKind::kWorker) leave_out_elastic(role, launcher->trainer_path, notes);
  }
  job.roles.erase(launcher);
}

NewRole* role_of(NewJob& job, RoleKind kind) {
  const auto found = std::ranges::find(job.roles, kind, &NewRole::kind);
  return found == job.roles.end() ? nullptr : &*found;
}

/// The fields that say how the old operator connects launcher and workers.
void read_connection(Fields& spec, NewJob& job) {
  spec.drop("sshAuthMountPath", "the launcher starts processes on other pods without ssh",
            "no action is needed");
  spec.drop("mpiImplementation", "the launcher serves Open MPI, MPICH and Intel MPI alike",
            "no action is needed");
  if (const auto policy = spec.text("launcherCreationPolicy")) {
    const NewRole* worker = role_of(job, RoleKind::kWorker);
    NewRole* launcher = role_of(job, RoleKind::kLauncher);
    if (*policy == "WaitForWorkersReady" && worker != nullptr && launcher != nullptr)
      launcher->start_after = worker->name;
  }
  if (const Json* value = spec.take("runLauncherAsWorker"); value != nullptr && *value == true)
    spec.notes().drop("spec.runLauncherAsWorker", value, "the launcher's pod holds no ranks",
                      "add 1 to the replicas of the workers");
}

}  // namespace

std::string mpi_framework(const Json& container) {
  const std::string framework = started_by(container).framework;
  return framework.empty() || framework == "PyTorch" ? "MPI" : framework;
}

void command_workers(NewJob& job, Notes& notes) {
  NewRole* launcher = role_of(job, RoleKind::kLauncher);
  Json* program = launcher == nullptr ? nullptr : trainer_in(launcher->pod_template);
  for (NewRole& role : job.roles) {
    if (role.kind != RoleKind::kWorker) continue;
    Json* container = trainer_in(role.pod_template);
    if (container == nullptr) continue;
    const std::vector<std::string> words = words_of(*container);
    if (!words.empty() && !starts_sshd(words)) continue;
    if (!words.empty()) {
      const Json shown = words;
      notes.drop(role.trainer_path + ".command", &shown,
                 "the launcher starts processes on other pods without ssh", "no action is needed");
    }
    container->erase("command");
    container->erase("args");
    for (const char* probe : {"readinessProbe", "livenessProbe", "startupProbe"}) {
      const Json* value = member(container, probe);
      if (value == nullptr) continue;
      notes.drop(role.trainer_path + "." + probe, value, "it asks the sshd that is gone",
                 "no action is needed");
      container->erase(probe);
    }
    // Of a job that mpirun starts, the workers need none.
    if (job.framework == "MPI" || program == nullptr || !program->contains("command")) continue;
    // The fields stay in the usual order: name, image, command.
    Json ordered = Json::object();
    for (const char* first : {"name", "image", "imagePullPolicy"}) {
      if (container->contains(first)) ordered[first] = (*container)[first];
    }
    ordered["command"] = (*program)["command"];
    if (program->contains("args")) ordered["args"] = (*program)["args"];
    for (const auto& [key, value] : container->items()) {
      if (!ordered.contains(key)) ordered[key] = value;
    }
    *container = std::move(ordered);
    notes.add(role.trainer_path + ".command", nullptr,
              "is the command of the launcher role: a job needs to know what its ranks run",
              "no action is needed");
  }
  leave_out_launcher(job, notes);
}

Result<NewJob> convert_mpi_job(const Json& document, Notes& notes) {
  if (text_of(member(&document, "apiVersion")) == "kubeflow.org/v1alpha1")
    return fail(Code::kInvalid, Origin::kConfig,
                "apiVersion: kubeflow.org/v1alpha1 has no spec.mpiReplicaSpecs, which say what the "
                "job runs; write the job as kubeflow.org/v2beta1");
  NewJob job;
  job.framework = kMpi.framework;
  Fields fields(&document, "", notes);
  read_envelope(fields, job);
  Fields spec(fields.object("spec"), "spec", notes);
  if (const Status read = read_replicas(kMpi, spec, job, notes); !read)
    return std::unexpected(read.error());
  job.processes = spec.integer("slotsPerWorker").value_or(1);
  read_connection(spec, job);
  // v1 has this field beside runPolicy, older objects all of them.
  Json older = Json::object();
  for (const char* key :
       {"cleanPodPolicy", "backoffLimit", "activeDeadlineSeconds", "ttlSecondsAfterFinished"}) {
    if (const Json* value = spec.take(key)) older[key] = *value;
  }
  read_run_policy(&older, "spec", job, notes);
  read_run_policy(spec.object("runPolicy"), "spec.runPolicy", job, notes);
  spec.drop("mainContainer", "the container that trains is the one named trainer, or the only one",
            "no action is needed");
  if (NewRole* launcher = role_of(job, RoleKind::kLauncher)) {
    if (const Json* container = trainer_in(launcher->pod_template))
      job.framework = mpi_framework(*container);
  }
  command_workers(job, notes);
  spec.finish();
  fields.finish();
  return job;
}

}  // namespace paceline::cli
