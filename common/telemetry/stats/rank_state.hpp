// SPDX-License-Identifier: Apache-2.0
// What a rank is doing now, and which of its measurement sources are on. Read from the header of
// its ring, so that a hang is visible without any record.
//
// Only reads the ring; the caller passes the time. The header is the rank's own claim, so values
// that make no sense are dropped.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "common/telemetry/ring/ring_view.hpp"
#include "common/telemetry/stats/summary.hpp"

namespace paceline::telemetry {

/// One source of measurement in one rank, and why it is on or off.
struct ProfilerState {
  std::string_view source;  // host, event, nccl, cupti
  bool on = false;
  std::string_view reason;
};
using ProfilerStates = std::array<ProfilerState, 4>;

/// nullopt if the rank has ended, has not begun, or is writing its state at this moment.
std::optional<LiveState> live_state(const RingView& ring, std::uint64_t now_ns);

/// Reasons: "measuring", "starting", "silent" (no heartbeat for 5 s: frozen or killed), "ended",
/// and "not_offered" for a source that this rank's runtime does not have.
ProfilerStates profiler_states(const RingView& ring, std::uint64_t now_ns);

/// For a rank without a ring: "ended" if it had one in this attempt, otherwise
/// "no_training_mark_yet".
ProfilerStates profiler_states_without_ring(bool had_one);

}  // namespace paceline::telemetry
