// SPDX-License-Identifier: Apache-2.0
#include "operator/observe/pod_ports.hpp"

#include <set>

#include "common/contract/host_ports.hpp"
#include "operator/observe/project.hpp"

namespace paceline::observe {

using kube::at;
using kube::items;

PodPorts read_ports(const kube::Json& pod) {
  PodPorts ports;
  std::set<int> blocks;
  for (const char* list : {"containers", "initContainers"}) {
    for (const kube::Json container : items(at(pod, "spec", list))) {
      for (const kube::Json port : items(at(container, "ports"))) {
        const auto number = kube::number(at(port, "hostPort"));
        if (number < 1 || number > 65535) continue;
        ports.host.push_back(static_cast<std::uint16_t>(number));
        if (const int block = contract::host_port_block(ports.host.back()); block >= 0)
          blocks.insert(block);
        if (text(at(port, "name")) == contract::kHostHttpPortName) ports.http = ports.host.back();
      }
    }
  }
  ports.blocks = static_cast<int>(blocks.size());
  return ports;
}

}  // namespace paceline::observe
