// SPDX-License-Identifier: Apache-2.0
#include "common/telemetry/metrics/text_sink.hpp"

#include <gtest/gtest.h>

#include <array>

namespace paceline::telemetry {
namespace {

TEST(TextSink, WritesTheExpositionFormat) {
  TextSink sink;
  sink.family("a_total", MetricType::kCounter, "Help with \\ and\nnewline.");
  sink.value({{"job", "x\"y\\z\n"}}, 3);
  sink.family("b", MetricType::kGauge, "B.");
  sink.value({}, 0.25);
  EXPECT_EQ(sink.text(),
            "# HELP a_total Help with \\\\ and\\nnewline.\n# TYPE a_total "
            "counter\na_total{job=\"x\\\"y\\\\z\\n\"} 3\n"
            "# HELP b B.\n# TYPE b gauge\nb 0.25\n");
}

TEST(TextSink, HistogramBucketsAreCumulative) {
  TextSink sink;
  sink.family("h", MetricType::kHistogram, "H.");
  const std::array bounds{0.1, 1.0};
  const std::array<std::uint64_t, 2> counts{2, 3};
  sink.histogram({{"rank", "0"}}, bounds, counts, 7, 12.5);
  EXPECT_EQ(sink.text(),
            "# HELP h H.\n# TYPE h histogram\nh_bucket{rank=\"0\",le=\"0.1\"} "
            "2\nh_bucket{rank=\"0\",le=\"1\"} 5\n"
            "h_bucket{rank=\"0\",le=\"+Inf\"} 7\nh_sum{rank=\"0\"} 12.5\nh_count{rank=\"0\"} 7\n");
}

}  // namespace
}  // namespace paceline::telemetry
