// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "common/net/address.hpp"
#include "launcher/frameworks/frameworks.hpp"

namespace paceline::frameworks {
namespace {

using rendezvous::Node;

constexpr int kPaddlePort = 6170;

bool is_heterogeneous(const Node& node) {
  return contract::trains(node.kind) && node.role.starts_with("heter");
}

/// The trainers of a job with parameter servers: those of the one kind or of the other.
struct Trainers {
  std::vector<std::string> endpoints;
  int index = 0;  // of the process
};

Trainers trainers(const Process& process, bool heterogeneous) {
  Trainers all;
  std::vector<const Node*> nodes;
  for (const Node& node : process.table.nodes) {
    if (contract::trains(node.kind) && is_heterogeneous(node) == heterogeneous)
      nodes.push_back(&node);
  }
  std::ranges::sort(nodes, {}, &Node::first_rank);
  for (const Node* node : nodes) {
    if (node == &process.node)
      all.index = static_cast<int>(all.endpoints.size()) + process.local_rank;
    for (int local = 0; local < node->processes; ++local)
      all.endpoints.push_back(
          net::to_string({node->host, port_of(process.table, *node, local, kPaddlePort)}));
  }
  return all;
}

void set_heterogeneous(const Process& process, const Trainers& workers, const Trainers& others,
                       Variables& variables) {
  const bool is_other = is_heterogeneous(process.node);
  variables.set("PADDLE_ALL_HETER_TRAINER_IP_PORT_LIST", joined(others.endpoints));
  variables.set("PADDLE_NEXT_HETER_TRAINER_IP_PORT_LIST", is_other ? "" : joined(others.endpoints));
  variables.set("PADDLE_PREVIOUS_HETER_TRAINER_IP_PORT_LIST",
                is_other ? joined(workers.endpoints) : "");
  variables.set("STAGE_ID", is_other ? 2 : 1);
  variables.set("STAGE_NUM", 2);
}

void set_servers(const Process& process, Variables& variables) {
  const Trainers workers = trainers(process, false);
  const Trainers others = trainers(process, true);
  const bool is_other = is_heterogeneous(process.node);
  const auto size = [](const Trainers& all) { return static_cast<int>(all.endpoints.size()); };
  variables.set("PADDLE_RUN_MODE", others.endpoints.empty() ? "ps" : "ps-heter");
  variables.set("PADDLE_PSERVERS_IP_PORT_LIST",
                joined(endpoints(process.table, RoleKind::kParameterServer, kPaddlePort)));
  variables.set("PADDLE_TRAINER_ENDPOINTS", joined(workers.endpoints));
  variables.set("PADDLE_TRAINERS_NUM", size(workers));
  variables.set("PADDLE_PORT",
                port_of(process.table, process.node, process.local_rank, kPaddlePort));
  variables.set_default("PADDLE_WITH_GLOO", "0");
  if (!others.endpoints.empty()) set_heterogeneous(process, workers, others, variables);
  if (process.node.kind == RoleKind::kParameterServer) {
    variables.set("TRAINING_ROLE", "PSERVER");
    return;
  }
  variables.set("TRAINING_ROLE", is_other ? "HETER_TRAINER" : "TRAINER");
  variables.set("PADDLE_TRAINER_ID", is_other ? others.index : workers.index);
  if (!others.endpoints.empty())
    variables.set("PADDLE_STAGE_TRAINERS_NUM", size(is_other ? others : workers));
}

void set_collective(const Process& process, Variables& variables) {
  const auto& table = process.table;
  variables.set("PADDLE_RUN_MODE", "collective");
  variables.set("PADDLE_TRAINER_ENDPOINTS", joined(trainers(process, false).endpoints));
  variables.set("PADDLE_CURRENT_ENDPOINT",
                net::to_string({process.node.address,
                                port_of(table, process.node, process.local_rank, kPaddlePort)}));
  variables.set("PADDLE_TRAINER_ID", process.rank());
  variables.set("PADDLE_TRAINERS_NUM", table.world_size);
  variables.set("PADDLE_GLOBAL_RANK", process.rank());
  variables.set("PADDLE_GLOBAL_SIZE", table.world_size);
  variables.set("PADDLE_LOCAL_RANK", process.local_rank);
  variables.set("PADDLE_LOCAL_SIZE", process.node.processes);
  variables.set("PADDLE_RANK_IN_NODE", process.local_rank);
  variables.set_default("FLAGS_selected_gpus", std::to_string(process.local_rank));
}

/// Paddle's launcher reads these as flags, and they win over its command line.
void set_launcher(const Process& process, Variables& variables) {
  const Group group = group_of(process);
  variables.set("PADDLE_NPROC_PER_NODE", process.node.processes);
  variables.set("PADDLE_RANK", group.rank);
  variables.set("PADDLE_RUN_MODE", "collective");
  // The launcher listens at PADDLE_MASTER. Its processes would take these for another store there.
  variables.unset("MASTER_ADDR");
  variables.unset("MASTER_PORT");
}

}  // namespace

void set_paddle(const Process& process, Variables& variables) {
  // Paddle's own requests between the pods must not pass through a proxy.
  for (const char* proxy : {"http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"}) {
    if (variables.has(proxy)) variables.note(std::string(proxy) + " unset");
    variables.unset(proxy);
  }
  variables.set("PADDLE_MASTER",
                net::to_string({process.table.master_address, process.table.master_port}));
  variables.set("PADDLE_NNODES", group_of(process).size);
  variables.set("PADDLE_JOB_ID", process.setting.job_uid);
  // Servers and heterogeneous trainers look for themselves in the lists by this.
  variables.set("POD_IP", process.node.host);
  if (process.setting.passthrough) return set_launcher(process, variables);
  if (count(process.table, RoleKind::kParameterServer) > 0) return set_servers(process, variables);
  set_collective(process, variables);
}

}  // namespace paceline::frameworks
