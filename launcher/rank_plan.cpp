// SPDX-License-Identifier: Apache-2.0
#include "launcher/rank_plan.hpp"

#include <algorithm>
#include <filesystem>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "common/command/command.hpp"
#include "common/contract/env.hpp"
#include "common/net/ports.hpp"
#include "launcher/process/cpu_binding.hpp"
#include "launcher/process/loadable.hpp"
#include "launcher/trace/request_file.hpp"

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

/// The library of kernel windows for ranks with a GPU, or "".
std::string cuda_injection(const RankPlan& plan, const Config& config, Log& log) {
  const auto says = [&](const env::Variable& variable, std::string_view value) {
    const auto found = plan.environment.find(std::string(variable.name));
    return found != plan.environment.end() && found->second == value;
  };
  if (config.runtime_dir.empty() || plan.machine.gpus == 0 || says(env::kDisable, "1") ||
      !says(env::kKernelWindows, "Auto") || plan.environment.contains("CUDA_INJECTION64_PATH"))
    return "";
  std::string library = config.runtime_dir + "/lib/libpaceline_cupti.so";
  std::error_code error;
  if (!std::filesystem::exists(library, error)) return "";  // an older runtime
  // A driver that cannot load the library may refuse to start.
  if (const auto loads = process::check_loadable(library, plan.environment); !loads) {
    log.line("kernel windows are off: " + loads.error().message);
    return "";
  }
  return library;
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
  plan.machine = fabric::read_machine(config.device_root, plan.interface);
  plan.nccl_settings = fabric::user_settings(environment, config.device_root);
  plan.allowed_cpus = process::allowed_cpus();
  plan.numa_nodes = process::numa_nodes("/");
  plan.cuda_injection = cuda_injection(plan, config, log);
  plan.telemetry_socket = config.state_dir + "/telemetry.sock";
  plan.rank_table = config.state_dir + "/rank-table.json";
  return plan;
}

int cpus_of(const RankPlan& plan, const Config& config) {
  const int allowed = static_cast<int>(plan.allowed_cpus.size());
  return config.cpu_limit > 0 ? std::min(config.cpu_limit, std::max(1, allowed)) : allowed;
}

std::pair<int, int> ranks_of(const Config& config, const rendezvous::Node& own) {
  // The framework's own launcher numbers its ranks.
  constexpr int any = 1 << 24;
  return config.starts_one_process() ? std::pair(0, any) : std::pair(own.first_rank, own.processes);
}

namespace {

bool says(const RankPlan& plan, const env::Variable& variable, std::string_view value) {
  const auto found = plan.environment.find(std::string(variable.name));
  return found != plan.environment.end() && found->second == value;
}

/// NCCL's profiler plugin, or "" where nothing is injected or the job does not want it. A folder of
/// an older runtime has none.
std::string profiler_of(const RankPlan& plan, const Config& config) {
  if (config.runtime_dir.empty() || says(plan, env::kDisable, "1") ||
      says(plan, env::kNcclProfiler, "Disabled"))
    return "";
  const std::filesystem::path plugin =
      std::filesystem::path(config.runtime_dir) / "lib" / "libpaceline_nccl.so";
  std::error_code error;
  return std::filesystem::exists(plugin, error) ? plugin.string() : "";
}

/// Why NCCL gets no settings for its way to other hosts; empty: nothing forbids them.
std::string why_left_alone(const RankPlan& plan, const Config& config) {
  if (says(plan, env::kDisable, "1")) return "PACELINE_DISABLE=1";
  // Other devices make other rings, which add in another order.
  if (says(plan, env::kNumerics, "Bitwise")) return "spec.acceleration.numerics is Bitwise";
  // Some hand it to the ranks of all hosts, which may have other devices.
  if (config.uses_mpirun()) return "mpirun has one environment for all hosts";
  return "";
}

fabric::Job network_job(const RankPlan& plan, const Config& config,
                        const rendezvous::RankTable& table, int cpus_per_rank) {
  std::set<std::string_view> hosts;
  for (const rendezvous::Node& node : table.nodes) {
    if (contract::trains(node.kind)) hosts.insert(node.address);
  }
  return {.hosts = static_cast<int>(hosts.size()),
          .cpus = cpus_per_rank,
          .gpu_direct_off = config.gpu_direct == "Disabled",
          .left_alone = why_left_alone(plan, config),
          .profiler = profiler_of(plan, config),
          .user_sets = plan.nccl_settings};
}

/// Whether the ranks may be started from standbys: Python itself is the command, and the gang may
/// start again.
bool may_have_standbys(const RankPlan& plan, const Config& config) {
  const bool restarts = config.max_restarts > 0 || config.node_count > 1;
  return config.has_standbys && restarts && !config.starts_one_process() &&
         !config.runtime_dir.empty() && !says(plan, env::kDisable, "1") && !plan.argv.empty() &&
         std::filesystem::path(plan.argv.front()).filename().string().starts_with("python");
}

std::vector<std::string> lines_of(const frameworks::ComposedEnvironment& composed) {
  std::vector<std::string> lines = composed.network;
  if (composed.changes.empty()) return lines;
  std::string line = "environment of the ranks:";
  for (const std::string& change : composed.changes) line += " " + change;
  lines.insert(lines.begin(), std::move(line));
  return lines;
}

}  // namespace

PlannedRanks plan_ranks(const RankPlan& plan, const Config& config,
                        const rendezvous::RankTable& table, int restarts) {
  const auto& node = table.nodes[static_cast<std::size_t>(config.node_rank)];
  const int processes = config.starts_one_process() ? 1 : node.processes;
  const int cpus = cpus_of(plan, config);
  const auto binding = process::plan_binding(plan.allowed_cpus, plan.numa_nodes, processes);

  const int threads = frameworks::threads_per_rank(cpus, processes);
  const fabric::Advice network =
      fabric::advise(plan.machine, network_job(plan, config, table, threads));

  PlannedRanks planned;
  for (int local_rank = 0; local_rank < processes; ++local_rank) {
    const std::string number = std::to_string(local_rank);
    const std::string failure_file = config.state_dir + "/failed-" + number;
    const std::string standby_file =
        may_have_standbys(plan, config) ? config.state_dir + "/imports-" + number : "";
    const frameworks::RankSetting setting{
        .framework = config.framework,
        .passthrough = config.starts_one_process(),
        .tf_config = config.tf_config,
        .threads = threads,
        .runtime_dir = config.runtime_dir,
        .rank_table_path = plan.rank_table,
        .telemetry_socket = plan.telemetry_socket,
        .failure_file = failure_file,
        .standby_file = standby_file,
        .effects_file = config.effects_file(),
        .save_request = config.saves_before_end
                            ? traces::RequestFile::path_in(config.saves_folder()).string()
                            : "",
        .trace_request = traces::RequestFile::path_in(config.trace_folder()),
        .learned_dir = config.state_dir + "/learned",
        .interface = plan.interface,
        .network = network,
        .cuda_injection = plan.cuda_injection,
        .max_restarts = config.max_restarts,
        .job_uid = config.job_uid};
    const frameworks::Process process{table, node, setting, local_rank, restarts};
    const auto composed = frameworks::compose_environment(plan.environment, process);

    process::RankSpec spec;
    spec.rank = process.rank();
    spec.local_rank = local_rank;
    spec.failure_file = failure_file;
    spec.standby_file = standby_file;
    spec.request.argv = plan.argv;
    if (plan.local_rank_at >= 0)
      spec.request.argv.insert(spec.request.argv.begin() + plan.local_rank_at,
                               "--local_rank=" + std::to_string(local_rank));
    spec.request.open_files = plan.open_files;
    for (const auto& [name, value] : composed.variables)
      spec.request.environment.push_back(name + "=" + value);
    spec.request.cpus = binding[static_cast<std::size_t>(local_rank)];
    planned.ranks.push_back(std::move(spec));
    if (local_rank == 0) planned.changes = lines_of(composed);
  }
  return planned;
}

void log_changes(const PlannedRanks& planned, std::vector<std::string>& last, Log& log) {
  if (planned.changes == last) return;
  for (const std::string& line : planned.changes) log.line(line);
  last = planned.changes;
}

}  // namespace paceline::launcher
