// SPDX-License-Identifier: Apache-2.0
// Reads a role's pod template: which container trains, what it starts, how many ranks it holds.
// Pure functions over the template's JSON. Returned pointers point into the given role and live as
// long as it does. Nothing here throws: a value of the wrong type reads as absent.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "operator/api/training_job.hpp"

namespace paceline::api {

/// The container that the launcher wraps: the one named "trainer", otherwise the only one. Null if
/// there is neither.
const nlohmann::json* trainer_of(const Role& role);

/// The position of that container in spec.containers; -1 if there is none.
int trainer_index(const Role& role);

/// The strings of a list field ("command", "args"); empty if it is absent.
std::vector<std::string> strings_of(const nlohmann::json& container, std::string_view key);

/// The env entries with a literal value, in order.
std::vector<std::pair<std::string, std::string>> literal_environment(
    const nlohmann::json& container);

/// A resource quantity ("1500m", "2Gi", 4) in thousandths of its unit; nullopt if it is not a
/// quantity.
std::optional<std::int64_t> parse_quantity_milli(const nlohmann::json& quantity);
std::optional<std::int64_t> parse_quantity_text(std::string_view text);

/// The amount of one resource in a container's `section` ("requests" or "limits"), in thousandths.
std::optional<std::int64_t> resource_milli(const nlohmann::json& container,
                                           std::string_view section, std::string_view resource);

/// The whole accelerators that the trainer requests (any */gpu resource, Neuron, Gaudi, NPU).
int accelerators_of(const nlohmann::json& container);

/// True if the role's trainer requests an accelerator.
bool has_accelerators(const Role& role);

/// True if the role's pods are in the network of their node, whose address they have.
bool uses_host_network(const Role& role);

/// True if names of the cluster's DNS resolve in every pod of the job.
bool uses_cluster_dns(const Spec& spec);

/// True if pods with accelerators may run only where GPUDirect RDMA works.
bool requires_gpu_direct(const Spec& spec);

/// The processes in one replica of the role: its own number, or the one in spec.framework; with
/// Auto the number of accelerators, otherwise 1. A role that does not train has one unless it says
/// so. With Passthrough the kept launcher is told this number, and its own flag wins.
int processes_of(const Spec& spec, const Role& role);

/// The ranks of the whole gang: the processes of the roles that train.
int world_size(const Spec& spec);

}  // namespace paceline::api
