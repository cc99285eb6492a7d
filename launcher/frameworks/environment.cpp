// SPDX-License-Identifier: Apache-2.0
#include "launcher/frameworks/environment.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include <nlohmann/json.hpp>

#include "common/contract/env.hpp"
#include "launcher/frameworks/frameworks.hpp"
#include "launcher/frameworks/list_variable.hpp"

namespace paceline::frameworks {
namespace {

struct Framework {
  std::string_view type;  // spec.framework.type
  void (*set)(const Process& process, Variables& variables);
};

/// Custom has no entry: its programs get the part that all frameworks share.
constexpr std::array kFrameworkFiles{
    Framework{"PyTorch", set_pytorch},     Framework{"TensorFlow", set_tensorflow},
    Framework{"PaddlePaddle", set_paddle}, Framework{"MindSpore", set_mindspore},
    Framework{"DeepSpeed", set_deepspeed}, Framework{"JAX", set_jax},
    Framework{"BytePS", set_byteps},       Framework{"XGBoost", set_xgboost},
    Framework{"Horovod", set_horovod},
};

/// Not "1": PyTorch loads no entry points, through which Paceline comes into the program.
constexpr std::string_view kTorchAutoload = "TORCH_DEVICE_BACKEND_AUTOLOAD";

/// For paceline.explain(), which tells the program's user what was set and why.
std::string network_json(const fabric::Advice& advice) {
  nlohmann::json settings = nlohmann::json::array();
  for (const fabric::Setting& setting : advice.settings)
    settings.push_back(
        {{"name", setting.name}, {"value", setting.value}, {"reason", setting.reason}});
  nlohmann::json document{{"transport", advice.transport}, {"settings", std::move(settings)}};
  if (advice.old_gid_index >= 0) document["old_gid_index"] = advice.old_gid_index;
  // Paths and names come from files, and need not be UTF-8.
  return document.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

/// Whether settings were made that a program's user may want to know the reason of.
bool has_reasons(const fabric::Advice& advice) {
  return !advice.transport.empty() ||
         std::ranges::any_of(advice.settings, [](const fabric::Setting& setting) {
           return setting.name == fabric::kProfilerPlugin;
         });
}

/// Where NCCL talks to other hosts, each setting has a log line with its reason.
void set_network(const RankSetting& setting, Variables& variables) {
  const fabric::Advice& advice = setting.network;
  const bool reaches_hosts = !advice.transport.empty();
  if (reaches_hosts) variables.note_network("NCCL between hosts: " + advice.transport);
  for (const fabric::Setting& one : advice.settings) {
    if (variables.has(one.name)) continue;
    if (!reaches_hosts) {
      variables.set_default(one.name, one.value);
      continue;
    }
    variables.set(one.name, one.value);
    variables.note_network(one.name + "=" + one.value + ": " + one.reason);
  }
}

/// What every framework and the runtime of Paceline read.
void set_common(const Process& process, Variables& variables) {
  const RankSetting& setting = process.setting;
  // Only launchers need the secret. A program that logs its environment must not publish it.
  variables.unset(std::string(env::kToken.name));
  variables.unset(std::string(env::kNetwork.name));  // of a launcher around this one
  variables.set(env::kRankTable.name, setting.rank_table_path);
  variables.set(env::kTelemetrySocket.name, setting.telemetry_socket);
  variables.unset(std::string(env::kSaveRequest.name));  // of a launcher around this one
  if (!setting.save_request.empty()) variables.set(env::kSaveRequest.name, setting.save_request);
  variables.set(env::kNodeRank.name, process.node.node_rank);  // a spare was started with another
  variables.set(env::kAttempt.name, process.table.attempt);
  variables.set(env::kRestarts.name, process.restarts);

  // Rank 0 may listen there before its name resolves.
  variables.set("MASTER_ADDR",
                process.rank() == 0 ? process.table.master_address : process.table.master_host);
  variables.set("MASTER_PORT", process.table.master_port);
  // A framework's own launcher numbers its processes.
  if (!setting.passthrough) {
    const Group group = group_of(process);
    variables.set("RANK", process.rank());
    variables.set("WORLD_SIZE", process.table.world_size);
    variables.set("LOCAL_RANK", process.local_rank);
    variables.set("LOCAL_WORLD_SIZE", process.node.processes);
    variables.set("GROUP_RANK", group.rank);
    variables.set("GROUP_WORLD_SIZE", group.size);
    variables.set_default("OMP_NUM_THREADS", std::to_string(setting.threads));
  }
  variables.set_default("PYTHONUNBUFFERED", "1");
  set_network(setting, variables);
}

void inject_runtime(const Process& process, Variables& variables) {
  const RankSetting& setting = process.setting;
  if (setting.runtime_dir.empty() || variables.get(std::string(env::kDisable.name)) == "1") return;
  variables.set(env::kFailureFile.name, setting.failure_file);
  if (!setting.standby_file.empty()) variables.set(env::kStandbyFile.name, setting.standby_file);
  if (!setting.trace_request.empty()) variables.set(env::kTraceRequest.name, setting.trace_request);
  if (process.rank() == 0) variables.set(env::kEffectsFile.name, setting.effects_file);
  if (!variables.has(std::string(env::kLearnedDir.name)))
    variables.set(env::kLearnedDir.name, setting.learned_dir);
  if (has_reasons(setting.network))
    variables.set(env::kNetwork.name, network_json(setting.network));
  const std::string python = setting.runtime_dir + "/python";
  const std::string path = prepend({python + "/site", python}, variables.get("PYTHONPATH"));
  variables.set("PYTHONPATH", path);
  variables.note("PYTHONPATH=" + path);
  if (!setting.cuda_injection.empty())
    variables.set_default("CUDA_INJECTION64_PATH", setting.cuda_injection);
  const std::string autoload(kTorchAutoload);
  if (variables.has(autoload) && variables.get(autoload) != "1")
    variables.note(autoload + "=" + variables.get(autoload) +
                   " keeps PyTorch 2.5 and later from loading Paceline: no step is measured and"
                   " nothing accelerated. Unset it, or call paceline.accelerate in the program");
}

}  // namespace

int threads_per_rank(int cpus, int processes) { return std::max(1, cpus / std::max(1, processes)); }

ComposedEnvironment compose_environment(const Environment& base, const Process& process) {
  Variables variables(base);
  set_common(process, variables);
  for (const Framework& framework : kFrameworkFiles) {
    if (framework.type == process.setting.framework) framework.set(process, variables);
  }
  inject_runtime(process, variables);
  return variables.take();
}

}  // namespace paceline::frameworks
