// SPDX-License-Identifier: Apache-2.0
#include "launcher/frameworks/frameworks.hpp"

namespace paceline::frameworks {

void set_deepspeed(const Process& process, Variables& variables) {
  set_pytorch(process, variables);
  if (process.setting.passthrough) return;
  const Group group = group_of(process);
  variables.set("CROSS_RANK", group.rank);
  variables.set("CROSS_SIZE", group.size);
  variables.set("LOCAL_SIZE", process.node.processes);
}

}  // namespace paceline::frameworks
