// SPDX-License-Identifier: Apache-2.0
// Which CPUs a rank runs on by default: the ranks of a replica are spread evenly over the NUMA
// nodes that the container may use, each bound to all allowed CPUs of its node. On one NUMA node,
// or where a node would hold no CPU, nothing is bound. Planning is pure; reading takes an injected
// root.
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

namespace paceline::process {

/// "0-3,8" → 0 1 2 3 8; what is malformed is left out.
std::vector<int> parse_cpu_list(std::string_view text);

/// CPUs of each NUMA node, by node number; empty where the kernel tells none.
std::vector<std::vector<int>> numa_nodes(const std::filesystem::path& root);

/// CPUs that this process may run on.
std::vector<int> allowed_cpus();

/// For each local rank its CPUs; an empty list means unbound.
std::vector<std::vector<int>> plan_binding(const std::vector<int>& allowed,
                                           const std::vector<std::vector<int>>& nodes,
                                           int processes);

}  // namespace paceline::process
