// SPDX-License-Identifier: Apache-2.0
#include "facts.hpp"

#include <algorithm>

namespace paceline::device {
namespace {

constexpr std::uint8_t kCupti = PACELINE_SOURCE_CUPTI << 4U;

// Whether CUPTI has measured this phase, so that its 0 means none.
bool is_measured(std::uint32_t phase, const Partition& partition) {
  switch (phase) {
    case PACELINE_PHASE_H2D:
    case PACELINE_PHASE_MEMCPY_OTHER:
    case PACELINE_PHASE_COMPUTE_UNDIVIDED:
    case PACELINE_PHASE_IDLE_GAP: return true;
    case PACELINE_PHASE_IDLE_HOST: return partition.launches_known;
    // A graph may hold collectives that are not told apart.
    case PACELINE_PHASE_COMM_EXPOSED: return partition.graph_launches == 0;
    default: return false;
  }
}

}  // namespace

paceline_step_record facts_of(const Partition& partition, bool truncated) {
  paceline_step_record facts{};
  facts.flags = PACELINE_FLAG_SAMPLED_L2;
  if (truncated) facts.flags |= PACELINE_FLAG_TRUNCATED_POOL;
  if (partition.graph_launches > 0) facts.flags |= PACELINE_FLAG_GRAPH_REPLAY;
  facts.valid = PACELINE_VALID_DEVICE_NS | PACELINE_VALID_DEVICE_WINDOW_NS |
                PACELINE_VALID_KERNELS | PACELINE_VALID_GRAPH_LAUNCHES | PACELINE_VALID_H2D_BYTES;
  std::ranges::copy(partition.ns, facts.device_ns);
  for (std::uint32_t phase = 0; phase < PACELINE_PHASE_COUNT; ++phase) {
    if (partition.ns[phase] != 0 || is_measured(phase, partition)) facts.source[phase] = kCupti;
  }
  facts.device_window_ns = partition.window_ns;
  facts.kernels = partition.kernels;
  facts.graph_launches = partition.graph_launches;
  facts.h2d_bytes = partition.h2d_bytes;
  if (partition.graph_launches == 0) {
    facts.valid |= PACELINE_VALID_COMM_TOTAL_NS | PACELINE_VALID_COMM_EXPOSED_NS;
    facts.comm_total_ns = partition.comm_total_ns;
    facts.comm_exposed_ns = partition.comm_exposed_ns;
  }
  return facts;
}

}  // namespace paceline::device
