// SPDX-License-Identifier: Apache-2.0
#include "common/base/timestamp.hpp"

#include <chrono>
#include <cstdio>

namespace paceline {
namespace {

using namespace std::chrono;

// 64 bits of nanoseconds end in the year 2262. Within these years any two times can be subtracted.
constexpr int kFirstYear = 1970;
constexpr int kLastYear = 2200;

std::string seconds_text(WallTime time, sys_seconds& whole) {
  whole = floor<seconds>(time);
  const auto day = floor<days>(whole);
  const year_month_day date(day);
  const hh_mm_ss clock(whole - day);
  char text[32];
  std::snprintf(text, sizeof text, "%04d-%02u-%02uT%02d:%02d:%02d", static_cast<int>(date.year()),
                static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()),
                static_cast<int>(clock.hours().count()), static_cast<int>(clock.minutes().count()),
                static_cast<int>(clock.seconds().count()));
  return text;
}

}  // namespace

std::string format_time(WallTime time) {
  sys_seconds whole;
  return seconds_text(time, whole) + "Z";
}

std::string format_micro_time(WallTime time) {
  sys_seconds whole;
  const std::string base = seconds_text(time, whole);
  char fraction[16];
  std::snprintf(fraction, sizeof fraction, ".%06dZ",
                static_cast<int>(duration_cast<microseconds>(time - whole).count()));
  return base + fraction;
}

Result<WallTime> parse_time(std::string_view text) {
  const auto wrong = [&] {
    return fail(Code::kInvalid, Origin::kProtocol,
                "\"" + std::string(text.substr(0, 40)) + "\" is not an RFC 3339 time in UTC");
  };
  int y = 0, mo = 0, d = 0, h = 0, mi = 0, s = 0, used = 0;
  const std::string copy(text);
  if (std::sscanf(copy.c_str(), "%4d-%2d-%2dT%2d:%2d:%2d%n", &y, &mo, &d, &h, &mi, &s, &used) !=
          6 ||
      used != 19)
    return wrong();
  const year_month_day date(year(y), month(static_cast<unsigned>(mo)),
                            day(static_cast<unsigned>(d)));
  if (!date.ok() || h < 0 || h > 23 || mi < 0 || mi > 59 || s < 0 || s > 60) return wrong();
  if (y < kFirstYear || y > kLastYear) return wrong();
  nanoseconds fraction(0);
  std::size_t at = 19;
  if (at < copy.size() && copy[at] == '.') {
    std::int64_t unit = 100000000;
    for (++at; at < copy.size() && copy[at] >= '0' && copy[at] <= '9'; ++at, unit /= 10)
      fraction += nanoseconds((copy[at] - '0') * unit);
  }
  if (copy.substr(at) != "Z" && copy.substr(at) != "+00:00") return wrong();
  return WallTime(duration_cast<WallTime::duration>(sys_days(date).time_since_epoch() + hours(h) +
                                                    minutes(mi) + seconds(s) + fraction));
}

}  // namespace paceline
