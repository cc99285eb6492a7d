// SPDX-License-Identifier: Apache-2.0
// MetricsSink: where metrics go, whatever serves them; in the static launcher a small text writer
// (docs/operate/metrics.md says why).
//
// The caller emits a whole scrape: every family once, all its series right after it. Series of one
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
  /// One series of the family begun last (counter or gauge).
  virtual void value(const Labels& labels, double value) = 0;
  /// One series of a histogram: `counts[i]` observations at most `bounds[i]` and more than the
  /// bound before; `total` of all, with `sum`.
  virtual void histogram(const Labels& labels, std::span<const double> bounds,
                         std::span<const std::uint64_t> counts, std::uint64_t total,
                         double sum) = 0;
};

}  // namespace paceline::telemetry
