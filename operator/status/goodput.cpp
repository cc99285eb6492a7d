// SPDX-License-Identifier: Apache-2.0
#include "operator/status/goodput.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>

#include "common/base/timestamp.hpp"

namespace paceline::status {
namespace {

using nlohmann::json;

constexpr std::array kLosses{"waiting",    "starting",   "restarting", "lostSteps",
                             "checkpoint", "evaluation", "unexplained"};
constexpr double kMostSeconds = 1e10;

std::optional<double> amount(const json& object, const char* key, double most = kMostSeconds) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  if (!object.is_object() || found == object.end() || !found->is_number()) return std::nullopt;
  const double value = found->get<double>();
  return std::isfinite(value) && value >= 0 && value <= most ? std::optional(value) : std::nullopt;
}

std::int64_t seconds_of(const json& goodput) {
  return goodput.is_object() ? goodput.value("seconds", std::int64_t{0}) : 0;
}

}  // namespace

json goodput_of(const json& source) {
  const auto seconds = amount(source, "seconds");
  if (!seconds) return {};
  json goodput = json::object();
  json& losses = goodput["losses"] = json::object();
  const auto reported = source.find("losses");
  double lost = 0;
  std::int64_t all = 0;
  for (const char* loss : kLosses) {
    const double value = reported == source.end() ? 0 : amount(*reported, loss).value_or(0);
    lost += value;
    const std::int64_t whole = std::llround(value);
    if (whole > 0) losses[loss] = whole;
    all += whole;
  }
  const std::int64_t useful = std::llround(std::max(0.0, *seconds - lost));
  all += useful;
  goodput["seconds"] = all;
  goodput["restarts"] = std::llround(amount(source, "restarts", 1e6).value_or(0));
  if (!amount(source, "ratio")) return goodput;
  goodput["ratio"] = all > 0 ? useful * 1000 / all : 0;
  if (const auto since = amount(source, "sinceCheckpoint"))
    goodput["sinceCheckpoint"] = std::llround(*since);
  if (const auto unknown = amount(source, "lostStepsUnknown", 1e6); unknown && *unknown > 0)
    goodput["lostStepsUnknown"] = std::llround(*unknown);
  if (const auto step = amount(source, "userStep", 9e15)) {
    goodput["userStep"] = std::llround(*step);
    goodput["stepMicroseconds"] =
        std::llround(amount(source, "stepMicroseconds", kMostSeconds * 1e6).value_or(0));
  }
  return goodput;
}

json longer_goodput(const json& kept, const json& reported, WallTime as_of) {
  if (reported.is_null() || seconds_of(reported) <= seconds_of(kept)) return kept;
  json longer = reported;
  longer["asOf"] = format_time(as_of);
  return longer;
}

json goodput_after_pause(json kept, std::chrono::nanoseconds pause) {
  const auto told = kept.is_object() ? kept.find("asOf") : kept.end();
  if (!kept.is_object() || told == kept.end() || !told->is_string()) return kept;
  if (const auto as_of = parse_time(told->get<std::string>()); as_of && pause.count() > 0)
    *told = format_time(*as_of + std::chrono::duration_cast<WallTime::duration>(pause));
  return kept;
}

}  // namespace paceline::status
