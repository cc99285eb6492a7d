// SPDX-License-Identifier: Apache-2.0
#include "cli/watch/text.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <utility>

#include "common/base/duration.hpp"

namespace paceline::cli {
namespace {

using Range = std::pair<char32_t, char32_t>;

constexpr char32_t kBroken = 0xFFFD;

// East Asian wide characters and emoji.
constexpr std::array<Range, 12> kWide{{{0x1100, 0x115F},
                                       {0x2E80, 0x303E},
                                       {0x3041, 0xA4CF},
                                       {0xA960, 0xA97F},
                                       {0xAC00, 0xD7A3},
                                       {0xF900, 0xFAFF},
                                       {0xFE30, 0xFE6F},
                                       {0xFF00, 0xFF60},
                                       {0xFFE0, 0xFFE6},
                                       {0x1F300, 0x1F64F},
                                       {0x1F680, 0x1FAFF},
                                       {0x20000, 0x3FFFD}}};

// Control characters, marks without a width, and marks that change the direction of writing.
constexpr std::array<Range, 12> kHarmful{{{0x00, 0x1F},
                                          {0x7F, 0x9F},
                                          {0xAD, 0xAD},
                                          {0x300, 0x36F},
                                          {0x61C, 0x61C},
                                          {0x200B, 0x200F},
                                          {0x2028, 0x202E},
                                          {0x2060, 0x206F},
                                          {0xD800, 0xDFFF},
                                          {0xFE00, 0xFE0F},
                                          {0xFEFF, 0xFEFF},
                                          {0xE0000, 0x10FFFF}}};

template <std::size_t N>
bool in(const std::array<Range, N>& ranges, char32_t point) {
  return std::ranges::any_of(
      ranges, [&](const Range& range) { return point >= range.first && point <= range.second; });
}

struct Decoded {
  char32_t point = kBroken;
  std::size_t bytes = 1;
};

/// The first character of a text that is not empty.
Decoded decode(std::string_view text) {
  const auto first = static_cast<unsigned char>(text.front());
  if (first < 0x80) return {first, 1};
  const std::size_t bytes = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < bytes) return {};
  char32_t point = first & (0xFFU >> (bytes + 1));
  for (std::size_t i = 1; i < bytes; ++i) {
    const auto next = static_cast<unsigned char>(text[i]);
    if ((next & 0xC0U) != 0x80U) return {};
    point = point << 6U | (next & 0x3FU);
  }
  constexpr std::array<char32_t, 5> kLeast{0, 0, 0x80, 0x800, 0x10000};
  return point < kLeast[bytes] ? Decoded{} : Decoded{point, bytes};
}

std::size_t width_of(char32_t point) { return in(kWide, point) ? 2 : 1; }

}  // namespace

std::string clean(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const Decoded next = decode(text);
    if (next.point == '\n' || next.point == '\t' || next.point == '\r') {
      result += ' ';
    } else if (next.point == kBroken || in(kHarmful, next.point)) {
      result += '?';
    } else {
      result += text.substr(0, next.bytes);
    }
    text.remove_prefix(next.bytes);
  }
  return result;
}

std::size_t columns_of(std::string_view text) {
  std::size_t columns = 0;
  while (!text.empty()) {
    const Decoded next = decode(text);
    columns += width_of(next.point);
    text.remove_prefix(next.bytes);
  }
  return columns;
}

std::string cut(std::string_view text, std::size_t width) {
  if (columns_of(text) <= width) return std::string(text);
  if (width == 0) return "";
  std::size_t columns = 0;
  std::size_t end = 0;
  while (end < text.size()) {
    const Decoded next = decode(text.substr(end));
    if (columns + width_of(next.point) > width - 1) break;
    columns += width_of(next.point);
    end += next.bytes;
  }
  return std::string(text.substr(0, end)) + "…";
}

std::string left(std::string_view text, std::size_t width) {
  std::string result = cut(text, width);
  return result + std::string(width - std::min(width, columns_of(result)), ' ');
}

std::string right(std::string_view text, std::size_t width) {
  const std::string result = cut(text, width);
  return std::string(width - std::min(width, columns_of(result)), ' ') + result;
}

std::string seconds_text(double seconds) {
  return seconds > 0 && seconds < 1e9
             ? format_duration(std::chrono::nanoseconds(static_cast<std::int64_t>(seconds * 1e9)))
             : "-";
}

std::string percent(double share) {
  std::array<char, 32> buffer{};
  std::snprintf(buffer.data(), buffer.size(), "%.1f%%", share * 100);
  return buffer.data();
}

std::string rate(double value) {
  std::array<char, 64> buffer{};
  std::snprintf(buffer.data(), buffer.size(), value < 100 ? "%.1f" : "%.0f", value);
  return buffer.data();
}

std::string short_number(double value) {
  constexpr std::array<const char*, 5> kUnits{"", "k", "M", "G", "T"};
  std::size_t unit = 0;
  while (value >= 9999.5 && unit + 1 < kUnits.size()) {
    value /= 1000;
    ++unit;
  }
  std::array<char, 64> buffer{};
  const int digits = unit == 0 ? 0 : value < 10 ? 2 : value < 100 ? 1 : 0;
  std::snprintf(buffer.data(), buffer.size(), "%.*f%s", digits, value, kUnits[unit]);
  return buffer.data();
}

}  // namespace paceline::cli
