// SPDX-License-Identifier: Apache-2.0
#include "common/telemetry/stats/rank_state.hpp"

#include "common/telemetry/stats/phases.hpp"

namespace paceline::telemetry {
namespace {

// The publishing thread writes a heartbeat about once a second.
constexpr std::uint64_t kSilenceNs = 5'000'000'000;

constexpr std::array<std::string_view, 4> kSources{"host", "event", "nccl", "cupti"};
constexpr std::array<std::uint64_t, 4> kCapabilities{
    PACELINE_CAPABILITY_HOST_MARKS, PACELINE_CAPABILITY_DEVICE_EVENTS,
    PACELINE_CAPABILITY_NCCL_PROFILER, PACELINE_CAPABILITY_CUPTI};

}  // namespace

std::optional<LiveState> live_state(const RingView& ring, std::uint64_t now_ns) {
  if (ring.heartbeat_ns() == 0) return std::nullopt;
  paceline_live_state live{};
  if (!ring.live(live) || live.since_ns == 0 || live.phase >= kPhases) return std::nullopt;
  const std::uint64_t spent = now_ns > live.since_ns ? now_ns - live.since_ns : 0;
  return LiveState{live.phase, static_cast<double>(spent) / 1e9, live.step};
}

ProfilerStates profiler_states(const RingView& ring, std::uint64_t now_ns) {
  const std::uint64_t beat = ring.heartbeat_ns();
  const bool silent = now_ns > beat && now_ns - beat > kSilenceNs;
  const std::string_view reason = beat != 0 ? (silent ? "silent" : "measuring")
                                            : (ring.write_index() == 0 ? "starting" : "ended");
  ProfilerStates states;
  for (std::size_t i = 0; i < states.size(); ++i) {
    const bool offered = (ring.claims().capabilities & kCapabilities[i]) != 0;
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
