// SPDX-License-Identifier: Apache-2.0
#include "launcher/frameworks/frameworks.hpp"

namespace paceline::frameworks {
namespace {

/// The place of the process among those that have the same number in their pods.
Group cross_of(const Process& process) {
  Group cross;
  for (const rendezvous::Node& node : process.table.nodes) {
    if (!contract::trains(node.kind) || node.processes <= process.local_rank) continue;
    ++cross.size;
    if (node.first_rank < process.node.first_rank) ++cross.rank;
  }
  return cross;
}

}  // namespace

std::string horovod_host(const rendezvous::Node& node) {
  return node.role + "-" + std::to_string(node.replica_index);
}

void set_horovod(const Process& process, Variables& variables) {
  if (process.setting.passthrough) return;  // horovodrun sets them
  const Group cross = cross_of(process);
  variables.set("HOROVOD_HOSTNAME", horovod_host(process.node));
  variables.set("HOROVOD_RANK", process.rank());
  variables.set("HOROVOD_SIZE", process.table.world_size);
  variables.set("HOROVOD_LOCAL_RANK", process.local_rank);
  variables.set("HOROVOD_LOCAL_SIZE", process.node.processes);
  variables.set("HOROVOD_CROSS_RANK", cross.rank);
  variables.set("HOROVOD_CROSS_SIZE", cross.size);
  variables.set("HOROVOD_CONTROLLER", "gloo");
  variables.set_default("HOROVOD_CPU_OPERATIONS", "gloo");
  variables.set("HOROVOD_GLOO_RENDEZVOUS_ADDR", process.table.master_address);
  variables.set("HOROVOD_GLOO_RENDEZVOUS_PORT", process.table.master_port);
  if (!process.setting.interface.empty())
    variables.set_default("HOROVOD_GLOO_IFACE", process.setting.interface);
}

}  // namespace paceline::frameworks
