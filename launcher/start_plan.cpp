// SPDX-License-Identifier: Apache-2.0
#include "launcher/start_plan.hpp"

#include <algorithm>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "common/command/mpirun_flags.hpp"
#include "launcher/exec/mpi_files.hpp"
#include "launcher/files.hpp"
#include "launcher/frameworks/mpi.hpp"
#include "launcher/rendezvous/json_forms.hpp"

namespace paceline::launcher {
namespace {

frameworks::Environment as_map(const std::vector<std::string>& variables) {
  frameworks::Environment environment;
  for (const std::string& variable : variables) {
    const std::size_t equals = variable.find('=');
    environment.emplace(variable.substr(0, equals), variable.substr(equals + 1));
  }
  return environment;
}

std::vector<std::string> as_list(const frameworks::Environment& environment) {
  std::vector<std::string> variables;
  for (const auto& [name, value] : environment) variables.push_back(name + "=" + value);
  return variables;
}

Status write_files(const exec::MpiFiles& files, const Config& config,
                   const rendezvous::RankTable& table) {
  std::error_code error;
  const auto launcher = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return fail_errno("read /proc/self/exe", error.value());
  return exec::write_mpi_files(files, launcher, {config.token, config.job_uid, table.attempt},
                               table);
}

/// `ranks` are those of a kept launcher: one process.
Result<StartPlan> plan_mpi(PlannedRanks ranks, const RankPlan& plan, const Config& config,
                           const rendezvous::RankTable& table) {
  const auto& node = table.nodes[static_cast<std::size_t>(config.node_rank)];
  process::RankSpec& mpirun = ranks.ranks.front();
  const auto composed = as_map(mpirun.request.environment);

  StartPlan mpi;
  auto host = composed;
  const int cpus = cpus_of(plan, config);
  const bool alone = std::ranges::count(table.nodes, node.address, &rendezvous::Node::address) < 2;
  frameworks::set_mpi_host({frameworks::threads_per_rank(cpus, node.processes),
                            node.processes > cpus, alone ? "" : config.state_dir},
                           host);
  mpi.shell.argv = {"/bin/sh", "-c"};
  mpi.shell.environment = as_list(host);
  mpi.shell.open_files = plan.open_files;
  mpi.ranks.changes = ranks.changes;
  if (exec::mpirun_node(table).node_rank != node.node_rank) return mpi;

  if (auto checked = frameworks::check_mpirun_ranks(plan.argv, table.world_size); !checked)
    return std::unexpected(checked.error());
  const exec::MpiFiles files{std::filesystem::path(config.state_dir) / "mpi"};
  if (auto written = write_files(files, config, table); !written)
    return std::unexpected(written.error());
  auto environment = composed;
  frameworks::set_mpirun(
      {files.hostfile(), files.machinefile(), files.agent(), plan.interface, plan.argv},
      environment);
  mpirun.request.environment = as_list(environment);
  mpi.ranks.ranks.push_back(std::move(mpirun));
  return mpi;
}

}  // namespace

Result<StartPlan> plan_start(const RankPlan& plan, const Config& config,
                             const rendezvous::RankTable& table, int restarts) {
  if (auto written = write_atomically(plan.rank_table, rendezvous::to_json(table)); !written)
    return std::unexpected(written.error());
  std::error_code ignored;
  std::filesystem::remove(config.effects_file(), ignored);  // of the attempt before
  auto ranks = plan_ranks(plan, config, table, restarts);
  if (config.uses_mpirun()) return plan_mpi(std::move(ranks), plan, config, table);
  return StartPlan{std::move(ranks), {}};
}

std::vector<process::RankSpec> plan_stand_in(const RankPlan& plan, const Config& config,
                                             rendezvous::RankTable table) {
  rendezvous::name_hosts(table, config.job_name, config.subdomain);
  const Config there = at_place(config, static_cast<int>(table.nodes.size()) - 1);
  return plan_ranks(plan, there, table, config.restarts).ranks;
}

rendezvous::Failure failure_to_start(const Error& error) {
  rendezvous::Failure failure;
  failure.exit_code = 1;
  failure.reason = error.code == Code::kInvalid       ? "NotExecutable"
                   : error.code == Code::kUnavailable ? "PortInUse"
                                                      : "StateDirectory";
  failure.last_lines = {error.message};
  return failure;
}

}  // namespace paceline::launcher
