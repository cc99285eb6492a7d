// SPDX-License-Identifier: Apache-2.0
#include "cli/convert/environment.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "cli/convert/fields.hpp"
#include "cli/convert/started_by.hpp"

namespace paceline::cli {
namespace {

/// What says a rank who it is and where its peers are. Values of another operator would be wrong.
constexpr std::array<std::string_view, 38> kLauncherSets{
    "MASTER_ADDR",
    "MASTER_PORT",
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "NODE_RANK",
    "PET_NNODES",
    "PET_NODE_RANK",
    "PET_MASTER_ADDR",
    "PET_MASTER_PORT",
    "PET_RDZV_BACKEND",
    "PET_RDZV_ENDPOINT",
    "PET_RDZV_ID",
    "PET_MAX_RESTARTS",
    "TF_CONFIG",
    "PADDLE_MASTER",
    "PADDLE_NNODES",
    "PADDLE_RANK",
    "PADDLE_TRAINER_ID",
    "PADDLE_TRAINERS_NUM",
    "PADDLE_TRAINER_ENDPOINTS",
    "PADDLE_PSERVERS_IP_PORT_LIST",
    "TRAINING_ROLE",
    "MS_ROLE",
    "MS_SCHED_HOST",
    "MS_SCHED_PORT",
    "MS_WORKER_NUM",
    "MS_SERVER_NUM",
    "DMLC_ROLE",
    "DMLC_PS_ROOT_URI",
    "DMLC_PS_ROOT_PORT",
    "DMLC_NUM_WORKER",
    "DMLC_NUM_SERVER",
    "DMLC_WORKER_ID",
    "JAX_COORDINATOR_ADDRESS",
    "JAX_PROCESS_ID",
};

struct Foreign {
  std::string_view text;
  std::string_view reason;
  std::string_view remedy;
};
/// What a command may expect of the operator that it was written for.
constexpr std::array kForeign{
    Foreign{"/etc/volcano/", "Volcano's svc plugin writes that folder, Paceline does not",
            "the launcher sets the framework's own variables; remove the lines that make them"},
    Foreign{"VC_TASK_INDEX", "Volcano sets it", "use PACELINE_REPLICA_INDEX"},
    Foreign{"VK_TASK_INDEX", "Volcano sets it", "use PACELINE_REPLICA_INDEX"},
    Foreign{"JOB_COMPLETION_INDEX", "an indexed Job sets it", "use PACELINE_REPLICA_INDEX"},
    Foreign{"JOBSET_", "JobSet sets it", "use PACELINE_JOB_NAME and PACELINE_REPLICA_INDEX"},
    Foreign{"SLURM_", "Slurm sets it", "use RANK, WORLD_SIZE, LOCAL_RANK and MASTER_ADDR"},
    Foreign{"discover_hosts.sh", "the MPI operator writes it for elastic jobs",
            "remove the flag: the number of replicas is fixed"},
    Foreign{"sshd", "the launcher starts processes on other pods without ssh",
            "remove the command that starts it"},
};

bool is_set(const std::string& name) {
  return std::ranges::find(kLauncherSets, name) != kLauncherSets.end();
}

void note_foreign(const Json& container, const std::string& path, Notes& notes) {
  std::vector<std::string> all = texts_of(member(&container, "command"));
  for (std::string& word : texts_of(member(&container, "args"))) all.push_back(std::move(word));
  // The whole command of such a container is replaced, with a note of its own.
  if (starts_sshd(all)) return;
  for (const char* key : {"command", "args"}) {
    const Json* words = member(&container, key);
    for (std::size_t i = 0; words != nullptr && words->is_array() && i < words->size(); ++i) {
      const std::string word = text_of(&(*words)[i]);
      for (const Foreign& foreign : kForeign) {
        if (word.find(foreign.text) == std::string::npos) continue;
        const Json shown = foreign.text;
        notes.add(path + "." + key + "[" + std::to_string(i) + "]", &shown,
                  "is used here: " + std::string(foreign.reason), std::string(foreign.remedy));
      }
    }
  }
}

/// Kubernetes fills in $(NAME) from the container's own variables only.
bool is_referred(const Json& container, const std::string& name) {
  const std::string reference = "$(" + name + ")";
  for (const char* key : {"command", "args"}) {
    for (const std::string& word : texts_of(member(&container, key))) {
      if (word.find(reference) != std::string::npos) return true;
    }
  }
  return false;
}

}  // namespace

void carry_environment(Json& container, const std::string& path, Notes& notes) {
  note_foreign(container, path, notes);
  const auto variables = container.find("env");
  if (variables == container.end() || !variables->is_array()) return;
  Json kept = Json::array();
  for (std::size_t i = 0; i < variables->size(); ++i) {
    const Json& variable = (*variables)[i];
    const std::string name = text_of(member(&variable, "name"));
    const std::string at = path + ".env[" + std::to_string(i) + "]";
    if (is_set(name)) {
      const Json shown = name;
      notes.drop(at, &shown, "the launcher sets it for each rank",
                 is_referred(container, name)
                     ? "write $" + name + " in a shell for $(" + name + ") in the command"
                     : "no action is needed");
      continue;
    }
    const Json* field = member(member(member(&variable, "valueFrom"), "fieldRef"), "fieldPath");
    if (text_of(field).find("job-completion-index") != std::string::npos) {
      notes.drop(at, field, "pods have no such annotation", "use PACELINE_REPLICA_INDEX");
      continue;
    }
    kept.push_back(variable);
  }
  if (kept.empty()) {
    container.erase("env");
  } else {
    *variables = std::move(kept);
  }
}

}  // namespace paceline::cli
