// SPDX-License-Identifier: Apache-2.0
#include "operator/observe/pod_ports.hpp"

#include "common/contract/host_ports.hpp"
#include "operator/observe/project.hpp"

namespace paceline::observe {

using kube::at;
using kube::items;

PodPorts read_ports(const kube::Json& pod) {
  PodPorts ports;
  for (const char* list : {"containers", "initContainers"}) {
    for (const kube::Json container : items(at(pod, "spec", list))) {
      for (const kube::Json port : items(at(container, "ports"))) {
        const auto number = kube::number(at(port, "hostPort"));
        if (number < 1 || number > 65535) continue;
        ports.host.push_back(static_cast<std::uint16_t>(number));
        if (text(at(port, "name")) == contract::kHostHttpPortName) ports.http = ports.host.back();
      }
    }
  }
  return ports;
}

}  // namespace paceline::observe
