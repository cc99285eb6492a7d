// SPDX-License-Identifier: Apache-2.0
// StepHistory: how long a step took over the life of the job, in at most 256 points of equal
// distance. When they are full, every second one goes and the distance doubles. A point is taken
// when somebody asks the launcher for something, as the operator and `paceline run` often do.
//
// Owns its points. Not thread-safe. Nothing here fails.
#pragma once

#include <chrono>
#include <optional>
#include <vector>

#include "common/base/clock.hpp"

namespace paceline::summary {

class StepHistory {
 public:
  struct Point {
    double at = 0;  // seconds since the first point
    double step_seconds = 0;
  };

  /// Takes a point if the last one is old enough and `step_seconds` is known (above 0).
  void add(SteadyTime now, double step_seconds);
  const std::vector<Point>& points() const { return points_; }

 private:
  std::optional<SteadyTime> first_;
  std::chrono::duration<double> every_{2};
  std::vector<Point> points_;
};

}  // namespace paceline::summary
