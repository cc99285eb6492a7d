// SPDX-License-Identifier: Apache-2.0
#include "common/net/address.hpp"
#include "launcher/frameworks/frameworks.hpp"

namespace paceline::frameworks {

void set_jax(const Process& process, Variables& variables) {
  const std::string coordinator =
      net::to_string({process.table.master_address, process.table.master_port});
  variables.set("JAX_COORDINATOR_ADDRESS", coordinator);
  if (process.rank() == 0) variables.set_default("JAX_COORDINATOR_BIND_ADDRESS", coordinator);
  // JAX does not read these two: the program passes them to jax.distributed.initialize.
  variables.set("JAX_NUM_PROCESSES", process.table.world_size);
  variables.set("JAX_PROCESS_ID", process.rank());
  // What programs read that were written for a JAXJob. The names are common, so the user's stay.
  variables.set_default("COORDINATOR_ADDRESS", coordinator.substr(0, coordinator.rfind(':')));
  variables.set_default("COORDINATOR_PORT", std::to_string(process.table.master_port));
  variables.set_default("NUM_PROCESSES", std::to_string(process.table.world_size));
  variables.set_default("PROCESS_ID", std::to_string(process.rank()));
  // One process of a pod may use all its devices; several processes have one device each.
  if (process.node.processes > 1)
    variables.set_default("JAX_LOCAL_DEVICE_IDS", std::to_string(process.local_rank));
}

}  // namespace paceline::frameworks
