// SPDX-License-Identifier: Apache-2.0
// What ranks write beside the request for a trace: a short state, and the trace itself. They come
// from the user's process. So anything but a regular file of bounded size is ignored, and texts are
// made printable. Stateless.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "common/base/error.hpp"

namespace paceline::traces {

inline constexpr std::uint64_t kMostTraceBytes = 256ULL << 20;  // of one rank, compressed
inline constexpr std::size_t kPieceBytes = 512 * 1024;

struct RankState {
  std::string state;  // waiting, recording, writing, done, failed
  std::string reason;
  std::int64_t first_step = 0;
  std::int64_t profiler_step_zero = 0;  // the step that the profiler calls ProfilerStep#0
  std::uint64_t bytes = 0;              // of the trace, if it is done
};

/// nullopt if this rank has told nothing of the request of that number.
std::optional<RankState> read_state(const std::filesystem::path& folder, int rank,
                                    std::uint64_t sequence);

/// At most kPieceBytes of the trace from `offset` on; empty at its end.
Result<std::string> read_piece(const std::filesystem::path& folder, int rank, std::uint64_t offset);

/// Removes what a rank writes. Nothing else that may lie there is looked at: the folder is the
/// ranks', and a deep tree in it would hold up the launcher.
void remove_files(const std::filesystem::path& folder, int rank);

}  // namespace paceline::traces
