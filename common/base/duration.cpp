// SPDX-License-Identifier: Apache-2.0
#include "common/base/duration.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

namespace paceline {
namespace {

using std::chrono::nanoseconds;

struct Unit {
  std::string_view name;
  double nanos;
};

// Longer names first: "ms" must not be read as "m" followed by an "s".
constexpr std::array<Unit, 5> kUnits{
    {{"ms", 1e6}, {"us", 1e3}, {"h", 3.6e12}, {"m", 6e10}, {"s", 1e9}}};
constexpr double kLimitNanos = 10.0 * 365 * 24 * 3.6e12;

std::string three_digits(double value, const char* unit) {
  const int decimals = value >= 100 ? 0 : value >= 10 ? 1 : 2;
  char text[32];
  std::snprintf(text, sizeof text, "%.*f%s", decimals, value, unit);
  return text;
}

}  // namespace

Result<nanoseconds> parse_duration(std::string_view text) {
  const auto wrong = [&] {
    return fail(Code::kInvalid, Origin::kConfig,
                "\"" + std::string(text.substr(0, 64)) +
                    "\" is not a duration; write for example 30s, 1h30m or 500ms");
  };
  if (text == "0") return nanoseconds(0);
  if (text.empty()) return wrong();
  double total = 0;
  std::string_view rest = text;
  while (!rest.empty()) {
    double number = 0;
    const auto [end, error] =
        std::from_chars(rest.data(), rest.data() + rest.size(), number, std::chars_format::fixed);
    if (error != std::errc() || rest.front() == '-' || !std::isfinite(number)) return wrong();
    rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
    const Unit* unit = nullptr;
    for (const Unit& candidate : kUnits) {
      if (rest.starts_with(candidate.name)) {
        unit = &candidate;
        break;
      }
    }
    if (unit == nullptr) return wrong();
    rest.remove_prefix(unit->name.size());
    total += number * unit->nanos;
    if (total > kLimitNanos) return wrong();
  }
  return nanoseconds(static_cast<std::int64_t>(std::llround(total)));
}

std::string format_duration(nanoseconds duration) {
  const auto nanos = static_cast<double>(duration.count());
  if (nanos <= 0) return "0s";
  if (nanos < 999.5e3) return three_digits(nanos / 1e3, "us");
  if (nanos < 999.5e6) return three_digits(nanos / 1e6, "ms");
  if (nanos < 59.95e9) return three_digits(nanos / 1e9, "s");
  const auto seconds = static_cast<std::int64_t>(std::llround(nanos / 1e9));
  std::string text;
  if (seconds >= 3600) text += std::to_string(seconds / 3600) + "h";
  if (seconds % 3600 >= 60) text += std::to_string(seconds % 3600 / 60) + "m";
  if (seconds < 3600 && seconds % 60 != 0) text += std::to_string(seconds % 60) + "s";
  return text;
}

}  // namespace paceline
