// SPDX-License-Identifier: Apache-2.0
#include "common/net/address.hpp"
#include "launcher/frameworks/frameworks.hpp"

namespace paceline::frameworks {
namespace {

/// torchrun reads these as flags; its command line has precedence.
void set_torchrun(const Process& process, Variables& variables) {
  const Group group = group_of(process);
  variables.set("PET_NNODES", group.size);
  variables.set("PET_NODE_RANK", group.rank);
  variables.set("PET_MASTER_ADDR", process.table.master_address);
  variables.set("PET_MASTER_PORT", process.table.master_port);
  // Read only by a rendezvous of its own (--rdzv-backend=c10d). Each attempt is a new one.
  variables.set("PET_RDZV_ENDPOINT",
                net::to_string({process.table.master_address, process.table.master_port}));
  variables.set("PET_RDZV_ID",
                process.setting.job_uid + "-" + std::to_string(process.table.attempt));
  variables.set("PET_MAX_RESTARTS", "0");
  // The job decides the gang's size, but in passthrough mode the framework's launcher decides how
  // many ranks a replica has.
  variables.set_default("PET_NPROC_PER_NODE", std::to_string(process.node.processes));
}

}  // namespace

void set_pytorch(const Process& process, Variables& variables) {
  if (process.setting.passthrough) return set_torchrun(process, variables);
  variables.set("ROLE_NAME", process.node.role);
  variables.set("ROLE_RANK", process.rank());
  variables.set("ROLE_WORLD_SIZE", process.table.world_size);
  variables.set("TORCHELASTIC_RESTART_COUNT", process.restarts);
  variables.set("TORCHELASTIC_MAX_RESTARTS", process.setting.max_restarts);
  variables.set("TORCHELASTIC_RUN_ID", process.setting.job_uid);
}

}  // namespace paceline::frameworks
