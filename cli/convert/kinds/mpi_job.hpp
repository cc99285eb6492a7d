// SPDX-License-Identifier: Apache-2.0
// MPIJob of the MPI operator (kubeflow.org/v2beta1) and of the training operator (kubeflow.org/v1).
// Pure.
#pragma once

#include "cli/convert/job.hpp"
#include "common/base/error.hpp"

namespace paceline::cli {

Result<NewJob> convert_mpi_job(const Json& document, Notes& notes);

/// Gives each worker of an MPI job that starts only sshd, or nothing, the command of the launcher
/// role. If the framework is not MPI, it then removes that role.
void command_workers(NewJob& job, Notes& notes);

/// The framework that a launcher's command starts: Horovod, DeepSpeed, or MPI.
std::string mpi_framework(const Json& container);

}  // namespace paceline::cli
