// SPDX-License-Identifier: Apache-2.0
#include "common/base/timestamp.hpp"

#include <gtest/gtest.h>

namespace paceline {
namespace {

TEST(Timestamp, RoundTripsWithAndWithoutMicroseconds) {
  const auto time = parse_time("2026-02-28T23:59:58.000123Z");
  ASSERT_TRUE(time);
  EXPECT_EQ(format_micro_time(*time), "2026-02-28T23:59:58.000123Z");
  EXPECT_EQ(format_time(*time), "2026-02-28T23:59:58Z");
  EXPECT_EQ(format_time(*parse_time("2026-02-28T23:59:58Z")), "2026-02-28T23:59:58Z");
  EXPECT_EQ(*parse_time("2026-02-28T23:59:58.25Z") - *parse_time("2026-02-28T23:59:58Z"),
            std::chrono::milliseconds(250));
}

TEST(Timestamp, RefusesWhatIsNoTime) {
  for (const char* text :
       {"", "yesterday", "2026-02-30T00:00:00Z", "2026-01-01T25:00:00Z", "2026-01-01T00:00:00",
        "2026-01-01T00:00:00+02:00", "2026-01-01T-1:00:00Z", "0026-01-01T00:00:00Z",
        "9026-01-01T00:00:00Z"}) {
    EXPECT_FALSE(parse_time(text)) << text;
  }
}

}  // namespace
}  // namespace paceline
