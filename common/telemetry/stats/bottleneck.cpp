// SPDX-License-Identifier: Apache-2.0
#include "common/telemetry/stats/bottleneck.hpp"

#include <array>

namespace paceline::telemetry {

std::string_view bottleneck(const PhaseSeconds& shares) {
  if (sum(shares) <= 0 || shares[PACELINE_PHASE_UNATTRIBUTED] > 0.5) return "unknown";
  struct Class {
    std::string_view name;
    double share;
    double threshold;
  };
  const std::array classes{
      Class{"data", shares[PACELINE_PHASE_DATA_WAIT] + shares[PACELINE_PHASE_H2D], 0.20},
      Class{"communication",
            shares[PACELINE_PHASE_COMM_EXPOSED] + shares[PACELINE_PHASE_PIPELINE_BUBBLE], 0.20},
      Class{"checkpoint", shares[PACELINE_PHASE_CHECKPOINT], 0.20},
      Class{"host",
            shares[PACELINE_PHASE_OTHER] + shares[PACELINE_PHASE_IDLE_HOST] +
                shares[PACELINE_PHASE_IDLE_GAP],
            0.30},
  };
  std::string_view name = "compute";
  double most = 1.0;
  for (const Class& candidate : classes) {
    const double excess = candidate.share / candidate.threshold;
    if (excess >= most) {
      most = excess;
      name = candidate.name;
    }
  }
  return name;
}

}  // namespace paceline::telemetry
