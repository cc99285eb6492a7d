// SPDX-License-Identifier: Apache-2.0
// Counts the processes of this cgroup that the kernel has killed for lack of memory. RankSet
// compares the count to tell an out-of-memory kill from any other SIGKILL. Reads cgroup v2
// (memory.events) and v1 (memory.oom_control) below the given root. Stateless; thread-safe. Returns
// nullopt if the count cannot be read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace paceline::process {

std::optional<std::uint64_t> oom_kills(const std::filesystem::path& root);

}  // namespace paceline::process
