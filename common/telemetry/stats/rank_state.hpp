// SPDX-License-Identifier: Apache-2.0
// What a rank is doing now and which of its sources of measurement are on, read from its ring's
// header without any record: so a hang is visible.
//
// Pure reads of a ring; the time is given. Everything in the header is the rank's own word: what
// makes no sense is left out, never passed on.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "common/telemetry/ring/ring_view.hpp"

namespace paceline::telemetry {

struct LiveState {
  std::size_t phase = 0;
  double seconds = 0;      // since it was entered
  std::uint64_t step = 0;  // the one under way, from 1
};

/// One source of measurement in one rank, and why it is on or off.
struct ProfilerState {
  std::string_view source;  // host, event, nccl, cupti
  bool on = false;
  std::string_view reason;
};
using ProfilerStates = std::array<ProfilerState, 4>;

/// Nothing where the rank is gone, has not begun, or is being written at this moment.
std::optional<LiveState> live_state(const RingView& ring, std::uint64_t now_ns);

/// Reasons: "measuring", "starting", "silent" (no sign of life for 5 s: frozen or killed), "ended",
/// and for a source that this rank's runtime does not have "not_offered".
ProfilerStates profiler_states(const RingView& ring, std::uint64_t now_ns);

/// Of a rank without a ring: "ended" where it had one in this attempt, else "no_training_mark_yet".
ProfilerStates profiler_states_without_ring(bool had_one);

}  // namespace paceline::telemetry
