// SPDX-License-Identifier: Apache-2.0
#include "common/telemetry/ring/record_check.hpp"

#include <algorithm>
#include <cstdint>

namespace paceline::telemetry {
namespace {

constexpr std::uint64_t kWeekNs = 7ULL * 24 * 3600 * 1'000'000'000ULL;
constexpr std::uint64_t kMillisecondNs = 1'000'000;
constexpr std::uint64_t kMostSamples = 1ULL << 40;
constexpr std::uint64_t kMostTokens = 1ULL << 40;

// The sum of the phases. If one phase alone is longer than `most`, returns 0 and sets `ok` to
// false.
std::uint64_t partition(const std::uint64_t (&phases)[PACELINE_PHASE_COUNT], std::uint64_t most,
                        bool& ok) {
  std::uint64_t total = 0;
  for (const std::uint64_t phase : phases) {
    if (phase > most) ok = false;
    total += std::min(phase, most);
  }
  return total;
}

}  // namespace

bool is_plausible(const paceline_step_record& record) {
  if (record.version != PACELINE_RECORD_VERSION || record.bytes < PACELINE_RECORD_BYTES)
    return false;
  if (record.kind < PACELINE_KIND_STEP || record.kind > PACELINE_KIND_AMENDMENT) return false;
  if (record.wall_ns > kWeekNs) return false;
  bool ok = true;
  if ((record.valid & PACELINE_VALID_HOST_NS) != 0) {
    const std::uint64_t slack = std::max(record.wall_ns / 100, kMillisecondNs);
    const std::uint64_t total = partition(record.host_ns, record.wall_ns + slack, ok);
    if (record.kind == PACELINE_KIND_STEP &&
        (total > record.wall_ns + slack || total + slack < record.wall_ns))
      ok = false;
  }
  if ((record.valid & PACELINE_VALID_DEVICE_WINDOW_NS) != 0 && record.device_window_ns > kWeekNs)
    ok = false;
  if ((record.valid & PACELINE_VALID_DEVICE_NS) != 0) {
    const std::uint64_t total = partition(record.device_ns, kWeekNs, ok);
    const std::uint64_t window = record.device_window_ns;
    const std::uint64_t slack = std::max(window / 100, kMillisecondNs);
    if ((record.valid & PACELINE_VALID_DEVICE_WINDOW_NS) != 0 &&
        (total > window + slack || total + slack < window))
      ok = false;
  }
  if ((record.valid & PACELINE_VALID_SAMPLES) != 0 && record.samples > kMostSamples) ok = false;
  if ((record.valid & PACELINE_VALID_TOKENS) != 0 && record.tokens > kMostTokens) ok = false;
  if ((record.valid & PACELINE_VALID_COMM_TOTAL_NS) != 0 && record.comm_total_ns > kWeekNs)
    ok = false;
  if ((record.valid & PACELINE_VALID_COMM_EXPOSED_NS) != 0 && record.comm_exposed_ns > kWeekNs)
    ok = false;
  return ok;
}

}  // namespace paceline::telemetry
