// SPDX-License-Identifier: Apache-2.0
// Which ranks hold up the others in one window. Pure.
//
// A rank's own time is what it computes and how long it waits for its data; waiting for other ranks
// is in the other phases. Time between the steps is left out: programs wait there for other ranks
// in collectives of their own.
#pragma once

#include <cstddef>
#include <vector>

#include "launcher/diagnosis/finding.hpp"
#include "launcher/diagnosis/window.hpp"

namespace paceline::diagnosis {

inline constexpr double kStragglerRatio = 1.2;
/// Of a step's time: less is not worth the alarm.
inline constexpr double kStragglerShare = 0.05;

/// At most four, the slowest first.
std::vector<Finding> stragglers(const Windows& windows);

}  // namespace paceline::diagnosis
