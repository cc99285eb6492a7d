// SPDX-License-Identifier: Apache-2.0
#include "common/base/duration.hpp"

#include <gtest/gtest.h>

namespace paceline {
namespace {

using namespace std::chrono_literals;

TEST(ParseDuration, ReadsNumberUnitPairs) {
  EXPECT_EQ(parse_duration("30s").value(), 30s);
  EXPECT_EQ(parse_duration("1h30m").value(), 90min);
  EXPECT_EQ(parse_duration("1.5ms").value(), 1500us);
  EXPECT_EQ(parse_duration("0").value(), 0s);
}

TEST(ParseDuration, RefusesWhatIsNotADuration) {
  for (const char* text :
       {"", "5", "-5s", "s", "1e3s", "5 s", "inf s", "nan", "99999999h", "5x", "5s4"}) {
    const auto parsed = parse_duration(text);
    ASSERT_FALSE(parsed.has_value()) << text;
    EXPECT_EQ(parsed.error().code, Code::kInvalid);
    EXPECT_NE(parsed.error().message.find('"' + std::string(text) + '"'), std::string::npos);
  }
}

TEST(FormatDuration, KeepsThreeDigits) {
  EXPECT_EQ(format_duration(0ns), "0s");
  EXPECT_EQ(format_duration(12'345us), "12.3ms");
  EXPECT_EQ(format_duration(999'600us), "1.00s");
  EXPECT_EQ(format_duration(1'524ms), "1.52s");
  EXPECT_EQ(format_duration(90s), "1m30s");
  EXPECT_EQ(format_duration(5400s), "1h30m");
}

}  // namespace
}  // namespace paceline
