// SPDX-License-Identifier: Apache-2.0
// How many processes of our own cgroup the kernel has killed for lack of memory: the difference
// tells a rank's OOM from any other SIGKILL. Reads cgroup v2 (memory.events) and v1
// (memory.oom_control) below an injected root. Stateless; thread-safe. Failure reads as "unknown".
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace paceline::process {

std::optional<std::uint64_t> oom_kills(const std::filesystem::path& root);

}  // namespace paceline::process
