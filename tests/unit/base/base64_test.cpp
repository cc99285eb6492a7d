// SPDX-License-Identifier: Apache-2.0
#include "common/base/base64.hpp"

#include <gtest/gtest.h>

namespace paceline {
namespace {

TEST(Base64, RoundTripsEveryLength) {
  for (const std::string& bytes : {std::string(), std::string("a"), std::string("ab"),
                                   std::string("abc"), std::string("\xff\x00\x80z", 4)}) {
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
}  // namespace paceline
