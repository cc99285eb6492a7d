// SPDX-License-Identifier: Apache-2.0
// What a pod in the network of its node gets (hostNetwork): ports of the node that no other pod
// there has, and names of the cluster. Pure.
#pragma once

#include <cstdint>

#include <nlohmann/json.hpp>

namespace paceline::render {

/// `spec` is the pod's, `trainer` its container that the launcher wraps. kube-scheduler binds no
/// two pods with the same ports to a node. `port_base`: of the pod's block
/// (common/contract/host_ports.hpp).
void join_host_network(nlohmann::json& spec, nlohmann::json& trainer, std::uint16_t port_base);

/// The ports of the job's Service for the rendezvous. Only one of them leads to the pod of node
/// rank 0, and its launcher is told which. So one Service does for a job whose template changes.
nlohmann::json rendezvous_ports();

}  // namespace paceline::render
