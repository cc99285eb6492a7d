// SPDX-License-Identifier: Apache-2.0
#include "launcher/rank_plan.hpp"

#include <algorithm>

#include "common/command/command.hpp"
#include "common/net/ports.hpp"
#include "launcher/process/cpu_binding.hpp"

namespace paceline::launcher {

namespace {

/// In jobs of these frameworks all replicas train. Of others a launcher learns it from the rank
/// table alone.
frameworks::JobShape shape_of(const Config& config) {
  const bool all_train = config.framework == "PyTorch" || config.framework == "DeepSpeed" ||
                         config.framework == "Horovod";
  return {config.framework, config.passthrough, all_train ? config.node_count : 0, config.processes,
          contract::trains(config.kind)};
}

}  // namespace

Result<RankPlan> prepare_ranks(const Config& config, const frameworks::Environment& environment,
                               const std::vector<std::string>& command, Log& log) {
  const auto path = environment.find("PATH");
  const auto resolved =
      frameworks::resolve_command(command, shape_of(config), [&](const std::string& script) {
        return frameworks::interpreter_of_script(
            script, path == environment.end() ? "/usr/local/bin:/usr/bin:/bin" : path->second);
      });
  if (!resolved) return std::unexpected(resolved.error());
  for (const std::string& note : resolved->notes) log.line(note);
  RankPlan plan;
  plan.argv = resolved->argv;
  plan.local_rank_at = resolved->local_rank_at;
  plan.environment = environment;
  plan.interface = net::interface_of(config.pod_ip);
  plan.allowed_cpus = process::allowed_cpus();
  plan.numa_nodes = process::numa_nodes("/");
  plan.telemetry_socket = config.state_dir + "/telemetry.sock";
  plan.rank_table = config.state_dir + "/rank-table.json";
  return plan;
}

int cpus_of(const RankPlan& plan, const Config& config) {
  const int allowed = static_cast<int>(plan.allowed_cpus.size());
  return config.cpu_limit > 0 ? std::min(config.cpu_limit, std::max(1, allowed)) : allowed;
}

PlannedRanks plan_ranks(const RankPlan& plan, const Config& config,
                        const rendezvous::RankTable& table, int restarts) {
  const auto& node = table.nodes[static_cast<std::size_t>(config.node_rank)];
  const int processes = config.starts_one_process() ? 1 : node.processes;
  const int cpus = cpus_of(plan, config);
  const auto binding = process::plan_binding(plan.allowed_cpus, plan.numa_nodes, processes);

  PlannedRanks planned;
  for (int local_rank = 0; local_rank < processes; ++local_rank) {
    const std::string failure_file = config.state_dir + "/failed-" + std::to_string(local_rank);
    const frameworks::RankSetting setting{.framework = config.framework,
                                          .passthrough = config.starts_one_process(),
                                          .tf_config = config.tf_config,
                                          .threads = frameworks::threads_per_rank(cpus, processes),
                                          .runtime_dir = config.runtime_dir,
                                          .rank_table_path = plan.rank_table,
                                          .telemetry_socket = plan.telemetry_socket,
                                          .failure_file = failure_file,
                                          .effects_file = config.effects_file(),
                                          .learned_dir = config.state_dir + "/learned",
                                          .interface = plan.interface,
                                          .gpu_direct_off = config.gpu_direct == "Disabled",
                                          .max_restarts = config.max_restarts,
                                          .job_uid = config.job_uid};
    const frameworks::Process process{table, node, setting, local_rank, restarts};
    const auto composed = frameworks::compose_environment(plan.environment, process);

    process::RankSpec spec;
    spec.rank = process.rank();
    spec.local_rank = local_rank;
    spec.failure_file = failure_file;
    spec.request.argv = plan.argv;
    if (plan.local_rank_at >= 0)
      spec.request.argv.insert(spec.request.argv.begin() + plan.local_rank_at,
                               "--local_rank=" + std::to_string(local_rank));
    spec.request.open_files = plan.open_files;
    for (const auto& [name, value] : composed.variables)
      spec.request.environment.push_back(name + "=" + value);
    spec.request.cpus = binding[static_cast<std::size_t>(local_rank)];
    planned.ranks.push_back(std::move(spec));
    if (local_rank == 0) {
      for (const std::string& change : composed.changes)
        planned.changes += (planned.changes.empty() ? "" : " ") + change;
    }
  }
  return planned;
}

}  // namespace paceline::launcher
