// SPDX-License-Identifier: Apache-2.0
#include "launcher/frameworks/environment.hpp"

#include <algorithm>

#include "common/contract/env.hpp"
#include "launcher/frameworks/list_variable.hpp"

namespace paceline::frameworks {

int threads_per_rank(int cpus, int processes) { return std::max(1, cpus / std::max(1, processes)); }

ComposedEnvironment compose_environment(const Environment& base, const RankPlace& place,
                                        const RankSetting& setting) {
  ComposedEnvironment composed{base, {}};
  Environment& variables = composed.variables;
  const auto set = [&](std::string_view name, std::string value) {
    variables.insert_or_assign(std::string(name), std::move(value));
  };
  const auto set_default = [&](const std::string& name, const std::string& value) {
    if (variables.try_emplace(name, value).second) composed.changes.push_back(name + "=" + value);
  };

  // Only launchers need the secret. A program that logs its environment must not publish it.
  variables.erase(std::string(env::kToken.name));
  set(env::kRankTable.name, setting.rank_table_path);
  set(env::kTelemetrySocket.name, setting.telemetry_socket);
  set(env::kAttempt.name, std::to_string(place.attempt));
  set(env::kRestarts.name, std::to_string(place.restarts));

  set("MASTER_ADDR", place.master_address);
  set("MASTER_PORT", std::to_string(place.master_port));
  if (setting.passthrough) {
    // torchrun reads these as flags; its command line has precedence.
    set("PET_NNODES", std::to_string(place.node_count));
    set("PET_NODE_RANK", std::to_string(place.node_rank));
    set("PET_MASTER_ADDR", place.master_address);
    set("PET_MASTER_PORT", std::to_string(place.master_port));
    set("PET_MAX_RESTARTS", "0");
    // The job decides the gang's size, but in passthrough mode the framework's launcher decides how
    // many ranks a replica has.
    set_default("PET_NPROC_PER_NODE", std::to_string(setting.processes));
  } else {
    set("RANK", std::to_string(place.rank));
    set("WORLD_SIZE", std::to_string(place.world_size));
    set("LOCAL_RANK", std::to_string(place.local_rank));
    set("LOCAL_WORLD_SIZE", std::to_string(place.local_world_size));
    set("GROUP_RANK", std::to_string(place.node_rank));
    set("GROUP_WORLD_SIZE", std::to_string(place.node_count));
    set("ROLE_NAME", place.role);
    set("ROLE_RANK", std::to_string(place.rank));
    set("ROLE_WORLD_SIZE", std::to_string(place.world_size));
    set("TORCHELASTIC_RESTART_COUNT", std::to_string(place.restarts));
    set("TORCHELASTIC_MAX_RESTARTS", std::to_string(place.max_restarts));
    set("TORCHELASTIC_RUN_ID", place.job_uid);
    set_default("OMP_NUM_THREADS", std::to_string(setting.threads));
  }
  set_default("PYTHONUNBUFFERED", "1");
  if (!setting.interface.empty()) {
    set_default("GLOO_SOCKET_IFNAME", setting.interface);
    set_default("NCCL_SOCKET_IFNAME", "=" + setting.interface);
  }

  // "Never use GPU Direct RDMA (always disabled)": NCCL's documentation of its environment
  // variables.
  if (setting.gpu_direct_off) set_default("NCCL_NET_GDR_LEVEL", "LOC");

  const auto disabled = variables.find(std::string(env::kDisable.name));
  const bool inject =
      !setting.runtime_dir.empty() && (disabled == variables.end() || disabled->second != "1");
  if (inject) {
    set(env::kFailureFile.name, setting.failure_file);
    const std::string current = variables["PYTHONPATH"];
    const std::string python = setting.runtime_dir + "/python";
    variables["PYTHONPATH"] = prepend({python + "/site", python}, current);
    composed.changes.push_back("PYTHONPATH=" + variables["PYTHONPATH"]);
  }
  return composed;
}

}  // namespace paceline::frameworks
