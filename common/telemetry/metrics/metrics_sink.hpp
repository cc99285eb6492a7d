// SPDX-License-Identifier: Apache-2.0
// MetricsSink: receives metrics, whatever serves them. The static launcher uses a small text writer
// (docs/operate/metrics.md gives the reason).
//
// The caller emits a whole scrape: each family once, followed by all its series. All series of a
// family have the same label names. Not thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace paceline::telemetry {

using Labels = std::vector<std::pair<std::string, std::string>>;

enum class MetricType { kCounter, kGauge, kHistogram };

class MetricsSink {
 public:
  virtual ~MetricsSink() = default;
  virtual void family(std::string_view name, MetricType type, std::string_view help) = 0;
  /// One series of the last family (counter or gauge).
  virtual void value(const Labels& labels, double value) = 0;
  /// One series of a histogram. `counts[i]` is the number of observations in (bounds[i-1],
  /// bounds[i]]; `total` counts all observations, and `sum` adds them up.
  virtual void histogram(const Labels& labels, std::span<const double> bounds,
                         std::span<const std::uint64_t> counts, std::uint64_t total,
                         double sum) = 0;
};

}  // namespace paceline::telemetry
