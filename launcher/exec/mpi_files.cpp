// SPDX-License-Identifier: Apache-2.0
#include "launcher/exec/mpi_files.hpp"

#include <algorithm>
#include <system_error>

#include "launcher/files.hpp"

namespace paceline::exec {
namespace {

using rendezvous::Node;
using rendezvous::RankTable;

/// As one word of a shell.
std::string quoted(const std::string& text) {
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + "'";
}

Status make_private_folder(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directory(folder, error);
  if (!error) std::filesystem::permissions(folder, std::filesystem::perms::owner_all, error);
  if (error) return fail_errno("folder " + folder.string(), error.value());
  return {};
}

Status write_agent(const MpiFiles& files, const std::filesystem::path& launcher) {
  const std::string script = "#!/bin/sh\nexec " + quoted(launcher.string()) +
                             " mpi-agent --hosts " + quoted(files.hosts().string()) + " \"$@\"\n";
  if (auto written = launcher::write_atomically(files.agent(), script); !written) return written;
  std::error_code error;
  std::filesystem::permissions(files.agent(), std::filesystem::perms::owner_all, error);
  if (error) return fail_errno("mode of " + files.agent().string(), error.value());
  return {};
}

}  // namespace

std::string host_name(const Node& node) {
  return node.role + "-" + std::to_string(node.replica_index);
}

const Node& mpirun_node(const RankTable& table) {
  const auto launcher = std::ranges::find(table.nodes, contract::RoleKind::kLauncher, &Node::kind);
  return launcher != table.nodes.end() ? *launcher
                                       : *std::ranges::find(table.nodes, 0, &Node::first_rank);
}

Status write_mpi_files(const MpiFiles& files, const std::filesystem::path& launcher,
                       const ExecRequest& request, const RankTable& table) {
  if (auto made = make_private_folder(files.folder); !made) return made;
  ExecHosts hosts{request, {}};
  std::string hostfile;
  std::string machinefile;
  for (const Node& node : table.nodes) {
    if (!contract::trains(node.kind)) continue;
    const std::string name = host_name(node);
    const std::string slots = std::to_string(node.processes);
    hostfile += name + " slots=" + slots + "\n";
    machinefile += name + ":" + slots + "\n";
    hosts.hosts.emplace(name, net::Address{node.address, node.exec_port});
  }
  if (auto written = launcher::write_atomically(files.hostfile(), hostfile); !written)
    return written;
  if (auto written = launcher::write_atomically(files.machinefile(), machinefile); !written)
    return written;
  if (auto written = launcher::write_atomically(files.hosts(), to_json(hosts)); !written)
    return written;
  return write_agent(files, launcher);
}

}  // namespace paceline::exec
