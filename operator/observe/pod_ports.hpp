// SPDX-License-Identifier: Apache-2.0
// The ports of its node that a pod has. Pure. Within operator/observe only.
#pragma once

#include <cstdint>
#include <vector>

#include "common/contract/labels.hpp"
#include "common/kube/api/json_reader.hpp"

namespace paceline::observe {

struct PodPorts {
  std::vector<std::uint16_t> host;
  // The blocks of which it has a port (common/contract/host_ports.hpp). If two pods have ports of
  // one block, both count it: then the node seems to have fewer blocks left than it has.
  int blocks = 0;
  std::uint16_t http = contract::kLauncherHttpPort;  // of the launcher, if the pod is of a job
};

PodPorts read_ports(const kube::Json& pod);

}  // namespace paceline::observe
