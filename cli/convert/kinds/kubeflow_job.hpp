// SPDX-License-Identifier: Apache-2.0
// Jobs of Kubeflow's training operator, which share replica specs and a run policy: PyTorchJob,
// TFJob, PaddleJob, XGBoostJob, JAXJob (kubeflow.org/v1). MPIJob builds on them (mpi_job.hpp).
// Pure.
#pragma once

#include <span>
#include <string_view>

#include "cli/convert/job.hpp"
#include "common/base/error.hpp"

namespace paceline::cli {

/// One key of the map of replica specs, and the role that it becomes.
struct ReplicaKind {
  std::string_view key;
  std::string_view role;
  contract::RoleKind kind;
};

struct KubeflowKind {
  std::string_view kind;
  std::string_view framework;
  std::string_view specs;  // "pytorchReplicaSpecs"
  // the container that trains, the likeliest first
  std::span<const std::string_view> containers;
  // in the order of the roles
  std::span<const ReplicaKind> replicas;
};

/// The kind of that name; null if it is none of these.
const KubeflowKind* kubeflow_kind(std::string_view kind);

/// Reads a whole document of one of these kinds.
Result<NewJob> convert_kubeflow_job(const KubeflowKind& kind, const Json& document, Notes& notes);

/// Reads the replica specs below `spec`; an error if there are none.
Status read_replicas(const KubeflowKind& kind, Fields& spec, NewJob& job, Notes& notes);

/// Reads runPolicy. The roles must have been read.
void read_run_policy(const Json* policy, const std::string& path, NewJob& job, Notes& notes);

/// Takes the launcher that the trainer's command starts into the job: a shell's launcher is kept
/// (Passthrough), a number of processes is the job's unless it has one.
void read_launcher(NewJob& job, NewRole& role, Notes& notes);

}  // namespace paceline::cli
