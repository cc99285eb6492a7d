// SPDX-License-Identifier: Apache-2.0
#include "cli/convert/kinds/guess.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "cli/convert/kinds/kubeflow_job.hpp"
#include "cli/convert/kinds/mpi_job.hpp"
#include "cli/convert/pod_template.hpp"
#include "cli/convert/started_by.hpp"

namespace paceline::cli {
namespace {

using contract::RoleKind;

struct Hint {
  std::string_view text;
  std::string_view framework;
};
/// Words of images, names and commands. The first that is found decides.
constexpr std::array kHints{
    Hint{"TF_CONFIG", "TensorFlow"}, Hint{"tensorflow", "TensorFlow"},
    Hint{"paddle", "PaddlePaddle"},  Hint{"mindspore", "MindSpore"},
    Hint{"xgboost", "XGBoost"},      Hint{"byteps", "BytePS"},
    Hint{"mxnet", "BytePS"},         Hint{"jax", "JAX"},
    Hint{"torch", "PyTorch"},        Hint{"MASTER_ADDR", "PyTorch"},
};

bool is_one_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, name) != names.end();
}

bool is_mpi(const std::string& framework) { return framework == "MPI" || framework == "Horovod"; }

RoleKind kind_by_name(const NewRole& role, const std::string& framework) {
  const std::string& name = role.name;
  if (is_mpi(framework) && role.replicas == 1 &&
      is_one_of(name, {"launcher", "mpimaster", "mpi-master", "mpi-launcher"}))
    return RoleKind::kLauncher;
  const bool servers = is_one_of(framework, {"TensorFlow", "PaddlePaddle", "MindSpore", "BytePS"});
  if (servers && is_one_of(name, {"ps", "server", "pserver", "servers", "parameter-server"}))
    return RoleKind::kParameterServer;
  if (framework == "TensorFlow" && name == "evaluator") return RoleKind::kEvaluator;
  if (is_one_of(framework, {"MindSpore", "BytePS"}) && name == "scheduler")
    return RoleKind::kScheduler;
  if (role.replicas == 1 && is_one_of(framework, {"PyTorch", "TensorFlow", "XGBoost", "JAX"}) &&
      is_one_of(name, {"master", "chief", "leader", "coordinator", "driver"}))
    return RoleKind::kCoordinator;
  return RoleKind::kWorker;
}

/// Processes of these frameworks meet at a scheduler, so a job without one does not use them to
/// exchange anything.
bool lacks_scheduler(const NewJob& job, std::string_view framework) {
  return is_one_of(framework, {"MindSpore", "BytePS"}) &&
         std::ranges::none_of(job.roles, [&](const NewRole& role) {
           return kind_by_name(role, std::string(framework)) == RoleKind::kScheduler;
         });
}

/// Sets the framework from launchers that commands start. Returns false if there is none.
bool framework_of_commands(NewJob& job) {
  for (NewRole& role : job.roles) {
    const Json* container = trainer_in(role.pod_template);
    if (container == nullptr) continue;
    const StartedBy found = started_by(*container);
    if (found.framework.empty()) continue;
    job.framework = found.framework;
    if (is_mpi(found.framework) && job.roles.size() > 1) {
      job.framework = mpi_framework(*container);
      role.kind = RoleKind::kLauncher;
    }
    return true;
  }
  return false;
}

}  // namespace

void guess_roles(NewJob& job, const Json& source, const std::string& path, Notes& notes) {
  const bool unknown = job.framework == "Custom";
  if (unknown && !framework_of_commands(job)) {
    const std::string text = source.dump(-1, ' ', false, Json::error_handler_t::replace);
    for (const Hint& hint : kHints) {
      if (!text.contains(hint.text) || lacks_scheduler(job, hint.framework)) continue;
      job.framework = hint.framework;
      const Json shown = job.framework;
      notes.add(path, &shown,
                "is taken for spec.framework.type, because the job names " + std::string(hint.text),
                "write Custom, or another framework, if that is wrong");
      break;
    }
  } else if (!unknown) {
    for (NewRole& role : job.roles) {
      const Json* container = trainer_in(role.pod_template);
      if (container == nullptr || job.roles.size() < 2 || !is_mpi(job.framework)) continue;
      if (started_by(*container).framework.empty()) continue;
      job.framework = mpi_framework(*container);
      role.kind = RoleKind::kLauncher;
    }
  }
  bool launched_by_command = false;
  bool counts_devices = false;
  for (NewRole& role : job.roles) {
    if (role.kind == RoleKind::kWorker) role.kind = kind_by_name(role, job.framework);
    read_launcher(job, role, notes);
    const Json* container = trainer_in(role.pod_template);
    if (container == nullptr) continue;
    const StartedBy found = started_by(*container);
    if (!found.launcher.empty()) launched_by_command = true;
    if (found.counts_devices) counts_devices = true;
  }
  // The old operators start one process a pod, and torchrun and mpirun do unless told otherwise.
  // A runtime's torchrun is told to start one for each accelerator.
  if (!job.processes && !counts_devices &&
      (unknown ? job.framework != "PaddlePaddle" : !launched_by_command))
    job.processes = 1;
  const bool launched =
      std::ranges::find(job.roles, RoleKind::kLauncher, &NewRole::kind) != job.roles.end();
  if (launched) command_workers(job, notes);
}

}  // namespace paceline::cli
