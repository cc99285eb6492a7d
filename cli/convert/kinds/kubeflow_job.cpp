// SPDX-License-Identifier: Apache-2.0
#include "cli/convert/kinds/kubeflow_job.hpp"

#include <algorithm>
#include <array>

#include "cli/convert/pod_template.hpp"
#include "cli/convert/started_by.hpp"

namespace paceline::cli {
namespace {

using contract::RoleKind;

constexpr std::array<std::string_view, 1> kPyTorchContainers{"pytorch"};
constexpr std::array<std::string_view, 1> kTensorFlowContainers{"tensorflow"};
constexpr std::array<std::string_view, 1> kPaddleContainers{"paddle"};
constexpr std::array<std::string_view, 2> kXgBoostContainers{"xgboost", "xgboostjob"};
constexpr std::array<std::string_view, 1> kJaxContainers{"jax"};

constexpr std::array kMasterAndWorkers{
    ReplicaKind{"Master", "master", RoleKind::kCoordinator},
    ReplicaKind{"Worker", "worker", RoleKind::kWorker},
};
constexpr std::array kTensorFlowReplicas{
    ReplicaKind{"Chief", "chief", RoleKind::kCoordinator},
    ReplicaKind{"Master", "master", RoleKind::kCoordinator},
    ReplicaKind{"Worker", "worker", RoleKind::kWorker},
    ReplicaKind{"PS", "ps", RoleKind::kParameterServer},
    ReplicaKind{"Evaluator", "evaluator", RoleKind::kEvaluator},
};
// The training operator gives a Master PADDLE_SERVER_NUM: it is a server of parameters.
constexpr std::array kPaddleReplicas{
    ReplicaKind{"Worker", "worker", RoleKind::kWorker},
    ReplicaKind{"Master", "server", RoleKind::kParameterServer},
};

constexpr std::array kKinds{
    KubeflowKind{"PyTorchJob", "PyTorch", "pytorchReplicaSpecs", kPyTorchContainers,
                 kMasterAndWorkers},
    KubeflowKind{"TFJob", "TensorFlow", "tfReplicaSpecs", kTensorFlowContainers,
                 kTensorFlowReplicas},
    KubeflowKind{"PaddleJob", "PaddlePaddle", "paddleReplicaSpecs", kPaddleContainers,
                 kPaddleReplicas},
    KubeflowKind{"XGBoostJob", "XGBoost", "xgbReplicaSpecs", kXgBoostContainers, kMasterAndWorkers},
    KubeflowKind{"JAXJob", "JAX", "jaxReplicaSpecs", kJaxContainers, kMasterAndWorkers},
};

void read_restart_policy(Fields& spec, NewJob& job) {
  const auto policy = spec.text("restartPolicy");
  if (!policy) return;
  const Json shown = *policy;
  if (*policy == "Never") {
    if (!job.max_restarts) job.max_restarts = 0;
  } else if (*policy == "ExitCode") {
    spec.notes().add(spec.path("restartPolicy"), &shown,
                     "is not carried over: every failure costs a restart of the gang, whatever its "
                     "exit code",
                     "spec.failurePolicy.maxRestarts says how many there may be");
  } else if (*policy != "OnFailure" && *policy != "Always") {
    spec.notes().drop(spec.path("restartPolicy"), &shown, "it is no policy that is known",
                      "spec.failurePolicy.maxRestarts says how many restarts there may be");
  }
}

void read_scheduling(const Json* value, const std::string& path, NewJob& job, Notes& notes) {
  Fields policy(value, path, notes);
  job.queue = policy.text("queue").value_or(job.queue);
  if (const auto name = policy.text("priorityClass"); name && !name->empty()) {
    const Json shown = *name;
    job.priority_class = *name;
    notes.add(policy.path("priorityClass"), &shown, "moves to spec.scheduling.priorityClassName",
              "its preemptionPolicy must be Never");
  }
  job.gang_timeout = policy.seconds("scheduleTimeoutSeconds");
  if (job.gang_timeout == "0s") job.gang_timeout.clear();
  std::int64_t pods = 0;
  for (const NewRole& role : job.roles) pods += role.replicas;
  const auto least = policy.integer("minAvailable");
  if (least && *least < pods) {
    const Json shown = *least;
    notes.drop(policy.path("minAvailable"), &shown, "a gang starts whole or not at all",
               "lower spec.roles[].replicas if fewer pods are enough");
  }
  policy.drop("minResources", "the gang's size follows from its pods", "no action is needed");
  policy.finish();
}

/// elasticPolicy of a PyTorchJob.
void read_elastic_policy(const Json* value, NewJob& job, Notes& notes) {
  Fields policy(value, "spec.elasticPolicy", notes);
  NewElastic elastic{policy.integer("minReplicas"), policy.integer("maxReplicas")};
  if (elastic.fewest || elastic.most) job.elastic = elastic;
  policy.drop("metrics", "Paceline starts no autoscaler",
              "apply a HorizontalPodAutoscaler that scales the TrainingJob");
  for (const char* key :
       {"rdzvBackend", "rdzvPort", "rdzvHost", "rdzvId", "rdzvConf", "standalone"})
    policy.drop(key, "the launchers have a rendezvous of their own", "no action is needed");
  if (const auto restarts = policy.integer("maxRestarts")) job.max_restarts = *restarts;
  if (const auto processes = policy.integer("nProcPerNode"); processes && *processes > 0)
    job.processes = *processes;
  policy.finish();
}

void read_processes_per_node(Fields& spec, NewJob& job) {
  const Json* value = spec.take("nprocPerNode");
  if (value == nullptr) return;
  const std::string text = value->is_string() ? value->get<std::string>() : value->dump();
  if (text == "auto" || text == "gpu") return;  // Auto counts accelerators
  if (text.size() < 3 && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; })) {
    job.processes = std::stoi(text);
    return;
  }
  spec.notes().drop(spec.path("nprocPerNode"), value, "it is no number, and not auto or gpu",
                    "write spec.framework.processesPerReplica");
}

/// A TFJob is done when its chief is; without one, when worker 0 is.
void read_tensorflow(Fields& spec, NewJob& job) {
  const std::string policy = spec.text("successPolicy").value_or("");
  const Json shown = policy;
  job.rank_zero = policy != "AllWorkers";
  if (!policy.empty() && policy != "AllWorkers")
    spec.notes().drop(spec.path("successPolicy"), &shown, "it is no policy that is known",
                      "write spec.successPolicy: AllRanks or RankZero");
  spec.drop("enableDynamicWorker", "the number of replicas is fixed",
            "set PACELINE_TF_CONFIG: Sparse in env, if the program reads the sparse TF_CONFIG");
}

}  // namespace

const KubeflowKind* kubeflow_kind(std::string_view kind) {
  const auto* const found = std::ranges::find(kKinds, kind, &KubeflowKind::kind);
  return found == kKinds.end() ? nullptr : found;
}

Status read_replicas(const KubeflowKind& kind, Fields& spec, NewJob& job, Notes& notes) {
  const std::string path = spec.path(kind.specs);
  const Json* specs = spec.object(kind.specs);
  Fields replicas(specs, path, notes);
  for (const ReplicaKind& replica : kind.replicas) {
    const Json* value = replicas.object(replica.key);
    if (value == nullptr) continue;
    Fields fields(value, replicas.path(replica.key), notes);
    const std::int64_t count = fields.integer("replicas").value_or(1);
    if (count == 0) {
      fields.drop("replicas", "a role without replicas is no role", "no action is needed");
      continue;
    }
    add_role(job, std::string(replica.role), path, notes);
    const std::size_t role = job.roles.size() - 1;
    job.roles[role].kind = replica.kind;
    job.roles[role].replicas = count;
    carry_template(fields.take("template"), fields.path("template"), kind.containers, job, role,
                   notes);
    read_restart_policy(fields, job);
    fields.finish();
  }
  replicas.finish();
  if (!job.roles.empty()) return {};
  return fail(Code::kInvalid, Origin::kConfig,
              path + ": names no replicas that train; write " +
                  std::string(kind.replicas.front().key) + " with a template");
}

void read_run_policy(const Json* value, const std::string& path, NewJob& job, Notes& notes) {
  Fields policy(value, path, notes);
  if (const auto clean = policy.text("cleanPodPolicy")) {
    const Json shown = *clean;
    if (*clean == "None" || *clean == "Running" || *clean == "All") {
      job.clean_pod_policy = *clean;
    } else if (!clean->empty()) {
      notes.drop(policy.path("cleanPodPolicy"), &shown, "it is no policy that is known",
                 "write spec.cleanPodPolicy: Running, All or None");
    }
  }
  if (value != nullptr && value->contains("ttlSecondsAfterFinished"))
    job.ttl = policy.seconds("ttlSecondsAfterFinished");
  const std::string deadline = policy.seconds("activeDeadlineSeconds");
  if (!deadline.empty() && deadline != "0s") job.active_deadline = deadline;
  if (const auto limit = policy.integer("backoffLimit")) job.max_restarts = *limit;
  job.suspend = policy.boolean("suspend").value_or(job.suspend);
  read_scheduling(policy.object("schedulingPolicy"), policy.path("schedulingPolicy"), job, notes);
  policy.drop("managedBy", "the old controller does not know TrainingJobs",
              "write spec.managedBy if another controller than Paceline's reconciles the job");
  policy.finish();
}

void read_launcher(NewJob& job, NewRole& role, Notes& notes) {
  const Json* container = trainer_in(role.pod_template);
  if (container == nullptr) return;
  const StartedBy found = started_by(*container);
  if (found.launcher.empty() || found.framework == "MPI" || found.framework == "Horovod") return;
  if (found.framework == "DeepSpeed") job.framework = found.framework;
  if (found.processes && !job.processes) job.processes = *found.processes;
  if (!found.shell || job.passthrough) return;
  job.passthrough = true;
  const Json shown = found.launcher;
  notes.add(role.trainer_path + ".command", &shown,
            "is started by a shell, so it stays the launcher of the ranks "
            "(spec.framework.launcher: Passthrough)",
            "write " + found.launcher +
                " as the command itself, and Paceline starts the ranks and restarts them in place");
}

Result<NewJob> convert_kubeflow_job(const KubeflowKind& kind, const Json& document, Notes& notes) {
  NewJob job;
  job.framework = kind.framework;
  Fields fields(&document, "", notes);
  read_envelope(fields, job);
  Fields spec(fields.object("spec"), "spec", notes);
  if (const Status read = read_replicas(kind, spec, job, notes); !read)
    return std::unexpected(read.error());
  if (kind.kind == "PyTorchJob") {
    read_processes_per_node(spec, job);
    read_elastic_policy(spec.object("elasticPolicy"), job, notes);
  } else if (kind.kind == "TFJob") {
    read_tensorflow(spec, job);
  }
  read_run_policy(spec.object("runPolicy"), "spec.runPolicy", job, notes);
  for (NewRole& role : job.roles) read_launcher(job, role, notes);
  // The old operator starts one process a pod, whatever the pod's accelerators.
  const Json* trainer = trainer_in(job.roles.front().pod_template);
  if (!job.processes && trainer != nullptr && started_by(*trainer).launcher.empty())
    job.processes = 1;
  spec.finish();
  fields.finish();
  return job;
}

}  // namespace paceline::cli
