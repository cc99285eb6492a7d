// SPDX-License-Identifier: Apache-2.0
#include "launcher/frameworks/frameworks.hpp"

namespace paceline::frameworks {
namespace {

constexpr int kMindSporePort = 8118;

const char* ms_role(RoleKind kind) {
  switch (kind) {
    case RoleKind::kScheduler: return "MS_SCHED";
    case RoleKind::kParameterServer: return "MS_PSERVER";
    default: return "MS_WORKER";
  }
}

}  // namespace

void set_mindspore(const Process& process, Variables& variables) {
  const auto& table = process.table;
  // msrun starts a scheduler itself, on the pod of rank 0.
  const auto* scheduler = first_of(table, RoleKind::kScheduler);
  const bool kept = process.setting.passthrough;
  if (scheduler == nullptr && kept) {
    variables.set("MS_SCHED_HOST", table.master_address);
    variables.set("MS_SCHED_PORT", table.master_port);
  } else if (scheduler != nullptr) {
    variables.set("MS_SCHED_HOST", scheduler->address);
    variables.set("MS_SCHED_PORT", port_of(table, *scheduler, 0, kMindSporePort));
  } else {
    return;  // a program without a scheduler trains alone
  }
  variables.set("MS_WORKER_NUM", table.world_size);
  if (const int servers = count(table, RoleKind::kParameterServer); servers > 0)
    variables.set("MS_SERVER_NUM", servers);
  if (kept) return;
  variables.set("MS_ROLE", ms_role(process.node.kind));
  if (!contract::trains(process.node.kind)) return;
  variables.set("MS_NODE_ID", process.rank());
  variables.set("MS_WORKER_IP", process.node.address);
  variables.set("RANK_ID", process.rank());
  variables.set("RANK_SIZE", table.world_size);
  variables.set_default("DEVICE_ID", std::to_string(process.local_rank));
}

}  // namespace paceline::frameworks
