// SPDX-License-Identifier: Apache-2.0
#include "launcher/frameworks/frameworks.hpp"

namespace paceline::frameworks {
namespace {

constexpr int kBytePsPort = 9600;

const char* dmlc_role(RoleKind kind) {
  switch (kind) {
    case RoleKind::kScheduler: return "scheduler";
    case RoleKind::kParameterServer: return "server";
    default: return "worker";
  }
}

}  // namespace

void set_byteps(const Process& process, Variables& variables) {
  variables.set("DMLC_ROLE", dmlc_role(process.node.kind));
  if (const auto* scheduler = first_of(process.table, RoleKind::kScheduler)) {
    variables.set("DMLC_PS_ROOT_URI", scheduler->address);
    variables.set("DMLC_PS_ROOT_PORT", port_of(process.table, *scheduler, 0, kBytePsPort));
  }
  const Group group = group_of(process);
  // BytePS counts machines as workers, and the processes of one machine apart.
  variables.set("DMLC_NUM_WORKER", group.size);
  variables.set("DMLC_NUM_SERVER", count(process.table, RoleKind::kParameterServer));
  variables.set_default("DMLC_NODE_HOST", process.node.address);
  if (!process.setting.interface.empty())
    variables.set_default("DMLC_INTERFACE", process.setting.interface);
  if (!contract::trains(process.node.kind)) return;
  variables.set("DMLC_WORKER_ID", group.rank);
  if (process.setting.passthrough) return;  // bpslaunch numbers its own processes
  variables.set("BYTEPS_LOCAL_RANK", process.local_rank);
  variables.set("BYTEPS_LOCAL_SIZE", process.node.processes);
}

}  // namespace paceline::frameworks
