// SPDX-License-Identifier: Apache-2.0
#include "cli/convert/environment.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>
#include <vector>

#include "cli/convert/fields.hpp"
#include "cli/convert/started_by.hpp"

namespace paceline::cli {
namespace {

/// What says a rank who it is and where its peers are. Values of another operator would be wrong.
struct LauncherVariable {
  std::string_view name;
  std::string_view frameworks;  // for which the launcher sets it; empty: for all
};
/// MPI numbers its own processes, so the launcher does not.
constexpr std::string_view kNumbered =
    "PyTorch TensorFlow PaddlePaddle MindSpore DeepSpeed JAX BytePS XGBoost Horovod Custom";
constexpr std::string_view kTorch = "PyTorch DeepSpeed";
constexpr std::string_view kPaddle = "PaddlePaddle";
constexpr std::array kLauncherSets{
    LauncherVariable{"MASTER_ADDR", ""},
    LauncherVariable{"MASTER_PORT", ""},
    LauncherVariable{"RANK", kNumbered},
    LauncherVariable{"WORLD_SIZE", kNumbered},
    LauncherVariable{"LOCAL_RANK", kNumbered},
    LauncherVariable{"LOCAL_WORLD_SIZE", kNumbered},
    LauncherVariable{"GROUP_RANK", kNumbered},
    LauncherVariable{"PET_NNODES", kTorch},
    LauncherVariable{"PET_NODE_RANK", kTorch},
    LauncherVariable{"PET_MASTER_ADDR", kTorch},
    LauncherVariable{"PET_MASTER_PORT", kTorch},
    LauncherVariable{"PET_RDZV_BACKEND", kTorch},
    LauncherVariable{"PET_RDZV_ENDPOINT", kTorch},
    LauncherVariable{"PET_RDZV_ID", kTorch},
    LauncherVariable{"PET_MAX_RESTARTS", kTorch},
    LauncherVariable{"TF_CONFIG", "TensorFlow"},
    LauncherVariable{"PADDLE_MASTER", kPaddle},
    LauncherVariable{"PADDLE_NNODES", kPaddle},
    LauncherVariable{"PADDLE_RANK", kPaddle},
    LauncherVariable{"PADDLE_TRAINER_ID", kPaddle},
    LauncherVariable{"PADDLE_TRAINERS_NUM", kPaddle},
    LauncherVariable{"PADDLE_TRAINER_ENDPOINTS", kPaddle},
    LauncherVariable{"PADDLE_PSERVERS_IP_PORT_LIST", kPaddle},
    LauncherVariable{"TRAINING_ROLE", kPaddle},
    LauncherVariable{"MS_ROLE", "MindSpore"},
    LauncherVariable{"MS_SCHED_HOST", "MindSpore"},
    LauncherVariable{"MS_SCHED_PORT", "MindSpore"},
    LauncherVariable{"MS_WORKER_NUM", "MindSpore"},
    LauncherVariable{"MS_SERVER_NUM", "MindSpore"},
    LauncherVariable{"DMLC_ROLE", "BytePS"},
    LauncherVariable{"DMLC_PS_ROOT_URI", "BytePS"},
    LauncherVariable{"DMLC_PS_ROOT_PORT", "BytePS"},
    LauncherVariable{"DMLC_NUM_WORKER", "BytePS XGBoost"},
    LauncherVariable{"DMLC_NUM_SERVER", "BytePS"},
    LauncherVariable{"DMLC_WORKER_ID", "BytePS"},
    LauncherVariable{"JAX_COORDINATOR_ADDRESS", "JAX"},
    LauncherVariable{"JAX_NUM_PROCESSES", "JAX"},
    LauncherVariable{"JAX_PROCESS_ID", "JAX"},
};

struct Foreign {
  std::string_view text;
  std::string_view reason;
  std::string_view remedy;
  bool whole = false;            // a whole name, and no part of a longer one
  std::string_view ending = {};  // of a name that begins with the text
  bool harmless = false;         // the job runs as intended with it, too
};
/// Variables that hold the index of a pod among its like.
constexpr std::array<std::string_view, 3> kIndices{"JOB_COMPLETION_INDEX", "VC_TASK_INDEX",
                                                   "VK_TASK_INDEX"};
constexpr std::string_view kVolcanoHosts =
    "the launcher sets the framework's own variables, such as MASTER_ADDR and TF_CONFIG";
constexpr std::string_view kTracker = "use DMLC_TRACKER_URI and DMLC_TRACKER_PORT";
constexpr std::string_view kIndex = "$(PACELINE_REPLICA_INDEX)";
constexpr std::string_view kBecomesIndex = "becomes the index of the pod in its role";
/// What a command may expect of the operator that it was written for.
constexpr std::array kForeign{
    Foreign{"/etc/volcano/", "Volcano's svc plugin writes that folder, Paceline does not",
            "the launcher sets the framework's own variables; remove the lines that make them"},
    Foreign{"VC_", "Volcano sets it", kVolcanoHosts, false, "_HOSTS"},
    Foreign{"VC_", "Volcano sets it", "use WORLD_SIZE, or the number itself", false, "_NUM"},
    Foreign{"JOBSET_", "JobSet sets it", "use PACELINE_JOB_NAME and PACELINE_REPLICA_INDEX"},
    Foreign{"SLURM_", "Slurm sets it", "use RANK, WORLD_SIZE, LOCAL_RANK and MASTER_ADDR"},
    Foreign{"WORKER_ADDRS", "the XGBoostJob's operator sets it", kTracker, true},
    Foreign{"WORKER_PORT", "the XGBoostJob's operator sets it", kTracker, true},
    Foreign{"discover_hosts.sh", "the MPI operator writes it for elastic jobs",
            "remove the flag: the number of replicas is fixed"},
    Foreign{"/etc/mpi/", "the MPI operator writes that folder, Paceline does not",
            "remove the flag: the launcher tells mpirun the hosts"},
    Foreign{"plm_rsh_", "it says how mpirun reaches other pods by ssh",
            "remove the flag: the launcher starts processes on other pods without ssh"},
    Foreign{"sshd",
            "the launcher starts processes on other pods without ssh",
            "remove the command that starts it",
            false,
            {},
            true},
};

bool is_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

/// What of the word the entry means; empty: nothing.
std::string found_in(const std::string& word, const Foreign& foreign) {
  for (std::size_t at = word.find(foreign.text); at != std::string::npos;
       at = word.find(foreign.text, at + 1)) {
    std::size_t end = at + foreign.text.size();
    if (!foreign.whole && foreign.ending.empty()) return std::string(foreign.text);
    if (at > 0 && is_name(word[at - 1])) continue;
    while (end < word.size() && is_name(word[end])) ++end;
    std::string name = word.substr(at, end - at);
    if (foreign.ending.empty() ? name == foreign.text : name.ends_with(foreign.ending)) return name;
  }
  return "";
}

/// Kubernetes fills in $(NAME) from the container's own variables only.
bool is_referred(const Json& container, const std::string& name) {
  const std::string reference = "$(" + name + ")";
  std::vector<std::string> all = words_of(container);
  const Json* variables = member(&container, "env");
  for (std::size_t i = 0; variables != nullptr && i < variables->size(); ++i)
    all.push_back(text_of(member(&(*variables)[i], "value")));
  return std::ranges::any_of(
      all, [&](const std::string& word) { return word.find(reference) != std::string::npos; });
}

/// Sets such a variable from the launcher's, unless the container does so itself.
void set_index(Json& container, const std::string& name, const std::string& path, Notes& notes) {
  Json& variables = container["env"];
  if (!variables.is_array()) variables = Json::array();
  for (const Json& variable : variables) {
    if (text_of(member(&variable, "name")) == name) return;
  }
  variables.push_back({{"name", name}, {"value", kIndex}});
  const Json shown = name;
  notes.add(path, &shown, "is used here: it " + std::string(kBecomesIndex), "no action is needed");
}

/// Leaves out variables of one container.
void leave_out(Json& container, const std::string& path, const std::string& framework,
               Notes& notes) {
  const auto variables = container.find("env");
  if (variables == container.end() || !variables->is_array()) return;
  Json kept = Json::array();
  for (std::size_t i = 0; i < variables->size(); ++i) {
    const Json& variable = (*variables)[i];
    const std::string name = text_of(member(&variable, "name"));
    const std::string at = path + ".env[" + std::to_string(i) + "]";
    if (launcher_sets(name, framework)) {
      const Json shown = name;
      notes.drop(at, &shown, "the launcher sets it for each rank",
                 is_referred(container, name) ? "write $" + name + " in a shell for $(" + name +
                                                    "), which Kubernetes no longer fills in"
                                              : "no action is needed");
      continue;
    }
    const Json* field = member(member(member(&variable, "valueFrom"), "fieldRef"), "fieldPath");
    if (text_of(field).find("job-completion-index") != std::string::npos) {
      notes.add(at, field, std::string(kBecomesIndex), "no action is needed");
      kept.push_back({{"name", name}, {"value", kIndex}});
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

}  // namespace

bool launcher_sets(const std::string& name, const std::string& framework) {
  const auto* const variable = std::ranges::find(kLauncherSets, name, &LauncherVariable::name);
  if (variable == kLauncherSets.end()) return false;
  return variable->frameworks.empty() ||
         (" " + std::string(variable->frameworks) + " ").contains(" " + framework + " ");
}

void adapt_foreign(Json& container, const std::string& path, Notes& notes) {
  // The whole command of such a container is replaced, with a note of its own.
  if (starts_sshd(words_of(container))) return;
  for (const char* key : {"command", "args"}) {
    const Json words = container.value(key, Json::array());
    for (std::size_t i = 0; words.is_array() && i < words.size(); ++i) {
      // Goes with its flag, which has a note of its own.
      if (i > 0 && text_of(&words[i - 1]) == "--host-discovery-script") continue;
      const std::string word = text_of(&words[i]);
      const std::string at = path + "." + key + "[" + std::to_string(i) + "]";
      for (const std::string_view index : kIndices) {
        if (word.contains(index)) set_index(container, std::string(index), at, notes);
      }
      for (const Foreign& foreign : kForeign) {
        const std::string found = found_in(word, foreign);
        if (found.empty()) continue;
        const Json shown = found;
        const auto note = foreign.harmless ? &Notes::add : &Notes::to_do;
        (notes.*note)(at, &shown, "is used here: " + std::string(foreign.reason),
                      std::string(foreign.remedy));
      }
    }
  }
}

void leave_out_variables(NewJob& job, Notes& notes) {
  for (NewRole& role : job.roles) {
    const auto spec = role.pod_template.find("spec");
    if (role.containers_path.empty() || spec == role.pod_template.end()) continue;
    const auto containers = spec->find("containers");
    if (containers == spec->end() || !containers->is_array()) continue;
    for (std::size_t i = 0; i < containers->size(); ++i) {
      const std::string path = role.containers_path + "[" + std::to_string(i) + "]";
      if ((*containers)[i].is_object()) leave_out((*containers)[i], path, job.framework, notes);
    }
  }
}

}  // namespace paceline::cli
