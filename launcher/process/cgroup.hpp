// SPDX-License-Identifier: Apache-2.0
// What the kernel did to the processes of this cgroup: how many it killed for lack of memory, and
// how long it held them at their processor limit. RankSet compares the count to tell an
// out-of-memory kill from any other SIGKILL. Also how much memory is left, for Standbys. Reads
// cgroup v2 and v1 below the given root.
// Stateless; thread-safe. Returns nullopt if the value cannot be read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace paceline::process {

std::optional<std::uint64_t> oom_kills(const std::filesystem::path& root);
/// Since the cgroup was made.
std::optional<double> throttled_seconds(const std::filesystem::path& root);

struct Memory {
  std::uint64_t total = 0;
  std::uint64_t left = 0;
};

/// Of the cgroup or of the machine, whichever has less left. Pages that the kernel can drop count
/// as left.
std::optional<Memory> memory(const std::filesystem::path& root);

}  // namespace paceline::process
