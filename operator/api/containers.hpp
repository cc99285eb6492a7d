// SPDX-License-Identifier: Apache-2.0
// Reading a role's pod template: which container trains, what it starts, how many ranks it holds.
// Pure functions over the template's JSON; pointers point into the given role and live as long as
// it does. Nothing here throws on odd documents: what does not have the right type reads as absent.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "operator/api/training_job.hpp"

namespace paceline::api {

/// The container that the launcher wraps: the one named "trainer", else the only one. Null when
/// there is neither.
const nlohmann::json* trainer_of(const Role& role);

/// The position of that container in spec.containers; -1 when there is none.
int trainer_index(const Role& role);

/// The strings of a list field ("command", "args"); empty when absent.
std::vector<std::string> strings_of(const nlohmann::json& container, std::string_view key);

/// env entries that carry a literal value, in order.
std::vector<std::pair<std::string, std::string>> literal_environment(
    const nlohmann::json& container);

/// A resource quantity ("1500m", "2Gi", 4) in thousandths of its unit; nothing when it is not one.
std::optional<std::int64_t> parse_quantity_milli(const nlohmann::json& quantity);
std::optional<std::int64_t> parse_quantity_text(std::string_view text);

/// What a container asks for of one resource, in thousandths: `section` is "requests" or "limits".
std::optional<std::int64_t> resource_milli(const nlohmann::json& container,
                                           std::string_view section, std::string_view resource);

/// Whole accelerators that the trainer asks for (any */gpu resource, Neuron, Gaudi, NPU).
int accelerators_of(const nlohmann::json& container);

/// Whether its trainer asks for one.
bool has_accelerators(const Role& role);

/// Whether pods with accelerators may run only where GPUDirect RDMA works.
bool requires_gpu_direct(const Spec& spec);

/// Ranks in one replica of the role: the number in spec.framework; with Auto the accelerators,
/// else 1. With Passthrough it is what the kept launcher is told, and its own flag wins.
int processes_of(const Spec& spec, const Role& role);

/// Ranks of the whole gang.
int world_size(const Spec& spec);

}  // namespace paceline::api
