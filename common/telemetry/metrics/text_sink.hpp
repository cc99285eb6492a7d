// SPDX-License-Identifier: Apache-2.0
// TextSink: writes the Prometheus text exposition format 0.0.4. Owns its text. Not thread-safe.
// Nothing fails.
#pragma once

#include <string>

#include "common/telemetry/metrics/metrics_sink.hpp"

namespace paceline::telemetry {

inline constexpr std::string_view kTextContentType = "text/plain; version=0.0.4; charset=utf-8";

class TextSink final : public MetricsSink {
 public:
  void family(std::string_view name, MetricType type, std::string_view help) override;
  void value(const Labels& labels, double value) override;
  void histogram(const Labels& labels, std::span<const double> bounds,
                 std::span<const std::uint64_t> counts, std::uint64_t total, double sum) override;
  const std::string& text() const { return text_; }

 private:
  void series(std::string_view suffix, const Labels& labels, std::string_view bound, double value);

  std::string text_;
  std::string name_;
};

}  // namespace paceline::telemetry
