// SPDX-License-Identifier: Apache-2.0
// The newest steps of a ring, with the facts that amendments add to them. Traces and reports of a
// person's request read them; the collector's own readers are not disturbed. Stateless. Nothing
// fails: what cannot be read or is implausible is left out.
#pragma once

#include <cstddef>
#include <vector>

#include "common/telemetry/ring/ring_view.hpp"

namespace paceline::telemetry {

/// At most `most` steps, oldest first. The final record, which is no step, is left out.
std::vector<paceline_step_record> recent_steps(const RingView& ring, std::size_t most);

}  // namespace paceline::telemetry
