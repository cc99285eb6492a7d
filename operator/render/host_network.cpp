// SPDX-License-Identifier: Apache-2.0
#include "operator/render/host_network.hpp"

#include "common/contract/host_ports.hpp"
#include "common/contract/labels.hpp"

namespace paceline::render {

using nlohmann::json;

void join_host_network(json& spec, json& trainer, std::uint16_t port_base) {
  const auto port = [](const char* name, std::uint16_t number) {
    return json{{"name", name}, {"containerPort", number}, {"hostPort", number}};
  };
  trainer["ports"] = json::array(
      {port(contract::kHostRendezvousPortName, contract::host_rendezvous_port(port_base)),
       port(contract::kHostHttpPortName, contract::host_http_port(port_base))});
  const auto policy = spec.find("dnsPolicy");
  if (policy == spec.end() || policy->is_null()) spec["dnsPolicy"] = "ClusterFirstWithHostNet";
}

json rendezvous_ports() {
  return json::array({{{"name", "rendezvous"},
                       {"port", contract::kRendezvousPort},
                       {"targetPort", contract::kRendezvousPort}},
                      {{"name", "host-rendezvous"},
                       {"port", contract::kHostRendezvousServicePort},
                       {"targetPort", contract::kHostRendezvousPortName}}});
}

}  // namespace paceline::render
