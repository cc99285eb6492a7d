// SPDX-License-Identifier: Apache-2.0
#include "common/base/excerpt.hpp"

#include <gtest/gtest.h>

namespace paceline {
namespace {

TEST(Excerpt, IsTheWholeTextIfThatIsShort) {
  EXPECT_EQ(excerpt(""), "");
  EXPECT_EQ(excerpt("no room", 7), "no room");
  EXPECT_EQ(excerpt("kein Platz übrig – 東京 🚀"), "kein Platz übrig – 東京 🚀");
}

TEST(Excerpt, EndsBeforeACharacterThatDoesNotFit) {
  EXPECT_EQ(excerpt("no room", 2), "no");
  EXPECT_EQ(excerpt("aé", 2), "a");
  EXPECT_EQ(excerpt("aé", 3), "aé");
  EXPECT_EQ(excerpt("a🚀", 4), "a");
  EXPECT_EQ(excerpt("🚀", 0), "");
}

TEST(Excerpt, ReplacesBytesThatAreNotUtf8) {
  EXPECT_EQ(excerpt("caf\xe9 zu"), "caf? zu") << "Latin-1";
  EXPECT_EQ(excerpt("cut \xf0\x9f\x9a"), "cut ???") << "a character that was cut before";
  EXPECT_EQ(excerpt("\x80"), "?");
  EXPECT_EQ(excerpt("\xc0\xaf"), "??") << "a longer form of a slash";
  EXPECT_EQ(excerpt("\xed\xa0\x80"), "???") << "half a pair of UTF-16";
  EXPECT_EQ(excerpt("\xf4\x90\x80\x80"), "????") << "beyond the last character";
  EXPECT_EQ(excerpt("\xff\xfe", 1), "?");
}

}  // namespace
}  // namespace paceline
