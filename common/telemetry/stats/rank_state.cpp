// SPDX-License-Identifier: Apache-2.0
#include "common/telemetry/stats/rank_state.hpp"

#include "common/telemetry/stats/phases.hpp"

namespace paceline::telemetry {
namespace {

// The publishing thread writes a heartbeat about once a second.
constexpr std::uint64_t kSilenceNs = 5'000'000'000;

// What JSON carries exactly. Steps and collectives do not get there; of a communicator's number
// these bits tell it from others.
constexpr std::uint64_t kShown = (1ULL << 53U) - 1;

constexpr std::array<std::string_view, 4> kSources{"host", "event", "nccl", "cupti"};
constexpr std::array<std::uint64_t, 4> kCapabilities{
    PACELINE_CAPABILITY_HOST_MARKS, PACELINE_CAPABILITY_DEVICE_EVENTS,
    PACELINE_CAPABILITY_NCCL_PROFILER, PACELINE_CAPABILITY_CUPTI};

std::int64_t done_of(const paceline_live_state& live) {
  const bool known = live.collective_seq != 0 && live.collective_done <= live.collective_seq;
  return known ? static_cast<std::int64_t>(live.collective_done & kShown) : -1;
}

}  // namespace

std::optional<LiveState> live_state(const RingView& ring, std::uint64_t now_ns) {
  const std::uint64_t beat = ring.heartbeat_ns();
  if (beat == 0) return std::nullopt;
  paceline_live_state live{};
  if (!ring.live(live) || live.since_ns == 0 || live.phase >= kPhases) return std::nullopt;
  const auto seconds_since = [now_ns](std::uint64_t then) {
    return now_ns > then ? static_cast<double>(now_ns - then) / 1e9 : 0;
  };
  return LiveState{.phase = live.phase,
                   .seconds = seconds_since(live.since_ns),
                   .step = live.step & kShown,
                   .silent = seconds_since(beat),
                   .collective = live.collective_seq & kShown,
                   .done = done_of(live),
                   .group = live.group_id & kShown,
                   .group_size = live.group_size};
}

ProfilerStates profiler_states(const RingView& ring, std::uint64_t now_ns) {
  const std::uint64_t beat = ring.heartbeat_ns();
  const bool silent = now_ns > beat && now_ns - beat > kSilenceNs;
  const std::string_view reason = beat != 0 ? (silent ? "silent" : "measuring")
                                            : (ring.write_index() == 0 ? "starting" : "ended");
  const std::uint64_t capabilities = ring.sources().capabilities;
  ProfilerStates states;
  for (std::size_t i = 0; i < states.size(); ++i) {
    const bool offered = (capabilities & kCapabilities[i]) != 0;
    states[i] = {kSources[i], offered && beat != 0 && !silent, offered ? reason : "not_offered"};
  }
  return states;
}

ProfilerStates profiler_states_without_ring(bool had_one) {
  ProfilerStates states;
  for (std::size_t i = 0; i < states.size(); ++i)
    states[i] = {kSources[i], false, had_one ? "ended" : "no_training_mark_yet"};
  return states;
}

}  // namespace paceline::telemetry
