// SPDX-License-Identifier: Apache-2.0
#include "cli/watch/text.hpp"

#include <gtest/gtest.h>

#include <random>

#include "cli/watch/phases.hpp"

namespace paceline::cli {
namespace {

TEST(Text, NothingThatATerminalActsOnStays) {
  EXPECT_EQ(clean("a\x1b[31mb\x07"), "a?[31mb?");
  EXPECT_EQ(clean("two\nlines\tand more"), "two lines and more");
  EXPECT_EQ(clean("turn \xE2\x80\xAE round"), "turn ? round") << "right-to-left override";
  EXPECT_EQ(clean("c1 \xC2\x9B"
                  "31m"),
            "c1 ?31m")
      << "a control sequence in one character";
  EXPECT_EQ(clean("zero\xE2\x80\x8Bwidth"), "zero?width");
  EXPECT_EQ(clean("\xFF\xFE cut \xE4\xB8"), "?? cut ??") << "no UTF-8";
  EXPECT_EQ(clean("\xC0\xAF"), "??") << "a slash, written too long";
  EXPECT_EQ(clean("größe 模型"), "größe 模型");
}

TEST(Text, AnyBytesBecomeCleanText) {
  std::mt19937 random(20);
  for (int i = 0; i < 2000; ++i) {
    std::string bytes(random() % 40, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    const std::string once = clean(bytes);
    EXPECT_EQ(clean(once), once);
    for (const char c : once) EXPECT_TRUE(static_cast<unsigned char>(c) >= 0x20 && c != 0x7F);
    const std::size_t width = random() % 20;
    EXPECT_LE(columns_of(cut(once, width)), width);
    EXPECT_EQ(columns_of(left(once, width)), width);
    EXPECT_EQ(columns_of(right(once, width)), width);
  }
}

TEST(Text, WideCharactersTakeTwoColumns) {
  EXPECT_EQ(columns_of("模型"), 4U);
  EXPECT_EQ(cut("模型-7b", 5), "模型…");
  EXPECT_EQ(left("模型-7b", 4), "模… ") << "the second character does not fit beside the dots";
}

TEST(Text, NumbersAreShort) {
  EXPECT_EQ(short_number(0), "0");
  EXPECT_EQ(short_number(9999), "9999");
  EXPECT_EQ(short_number(12500), "12.5k");
  EXPECT_EQ(short_number(3.2e6), "3200k");
  EXPECT_EQ(short_number(3.2e7), "32.0M");
  for (double value = 1; value < 1e15; value *= 1.07) EXPECT_LE(short_number(value).size(), 5U);
  EXPECT_EQ(seconds_text(0), "-");
  EXPECT_EQ(seconds_text(0.0123), "12.3ms");
}

TEST(Bar, CellsFollowSharesWithinOne) {
  std::mt19937 random(7);
  for (int i = 0; i < 500; ++i) {
    telemetry::PhaseSeconds shares{};
    for (double& share : shares) share = static_cast<double>(random() % 100);
    shares = [&] {
      const double total = telemetry::sum(shares);
      for (double& share : shares) share = total > 0 ? share / total : 0;
      return shares;
    }();
    const std::size_t width = random() % 120;
    const auto cells = bar_cells(shares, width);
    ASSERT_EQ(cells.size(), width);
    for (std::size_t phase = 0; phase < telemetry::kPhases; ++phase) {
      const auto count = static_cast<double>(std::ranges::count(cells, phase));
      EXPECT_NEAR(count, shares[phase] * static_cast<double>(width), 1.0001);
    }
  }
}

}  // namespace
}  // namespace paceline::cli
