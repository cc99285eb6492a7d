// SPDX-License-Identifier: Apache-2.0
// Chooses the CPUs of each rank. The ranks of a replica are spread evenly over the NUMA nodes that
// the container may use, and each rank is bound to all allowed CPUs of its node. Nothing is bound
// if there is one NUMA node, or if a node would have no allowed CPU. `paceline run` uses it too.
//
// The plan is pure; reading takes the root folder as a parameter.
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

namespace paceline::process {

/// "0-3,8" → 0 1 2 3 8; malformed parts are left out.
std::vector<int> parse_cpu_list(std::string_view text);

/// CPUs of each NUMA node, by node number; empty if the kernel shows none.
std::vector<std::vector<int>> numa_nodes(const std::filesystem::path& root);

/// CPUs that this process may use.
std::vector<int> allowed_cpus();

/// For each local rank its CPUs; an empty list means unbound.
std::vector<std::vector<int>> plan_binding(const std::vector<int>& allowed,
                                           const std::vector<std::vector<int>>& nodes,
                                           int processes);

}  // namespace paceline::process
