// SPDX-License-Identifier: Apache-2.0
#include "common/kube/timestamp.hpp"

#include <gtest/gtest.h>

#include "common/kube/base64.hpp"

namespace paceline::kube {
namespace {

TEST(Timestamp, RoundTripsWithAndWithoutMicroseconds) {
  const auto time = parse_time("2026-02-28T23:59:58.000123Z");
  ASSERT_TRUE(time);
  EXPECT_EQ(format_micro_time(*time), "2026-02-28T23:59:58.000123Z");
  EXPECT_EQ(format_time(*time), "2026-02-28T23:59:58Z");
  EXPECT_EQ(format_time(*parse_time("2026-02-28T23:59:58Z")), "2026-02-28T23:59:58Z");
}

TEST(Timestamp, RefusesWhatIsNoTime) {
  for (const char* text : {"", "yesterday", "2026-02-30T00:00:00Z", "2026-01-01T25:00:00Z", "2026-01-01T00:00:00",
                           "2026-01-01T00:00:00+02:00"}) {
    EXPECT_FALSE(parse_time(text)) << text;
  }
}

TEST(Base64, RoundTripsEveryLength) {
  for (const std::string& bytes :
       {std::string(), std::string("a"), std::string("ab"), std::string("abc"), std::string("\xff\x00\x80z", 4)}) {
    const auto decoded = decode_base64(encode_base64(bytes));
    ASSERT_TRUE(decoded);
    EXPECT_EQ(*decoded, bytes);
  }
  EXPECT_EQ(encode_base64("hello"), "aGVsbG8=");
  EXPECT_FALSE(decode_base64("a?b="));
  EXPECT_FALSE(decode_base64("a"));
  EXPECT_FALSE(decode_base64("aGVs=bG8="));
}

}  // namespace
}  // namespace paceline::kube
