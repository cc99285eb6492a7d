// SPDX-License-Identifier: Apache-2.0
#include "launcher/summary/goodput.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>

#include "common/base/timestamp.hpp"

namespace paceline::summary {
namespace {

using nlohmann::json;
using telemetry::Goodput;
using telemetry::kUses;
using telemetry::Use;

constexpr double kMostSeconds = 1e10;
constexpr int kMostRestarts = 1 << 30;

double milli(double seconds) { return std::round(seconds * 1e3) / 1e3; }

double seconds_in(const json& object, const std::string& key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  if (!object.is_object() || found == object.end() || !found->is_number()) return 0;
  const double value = found->get<double>();
  return std::isfinite(value) && value > 0 ? std::min(value, kMostSeconds) : 0;
}

telemetry::Activity activity_of(rendezvous::GangPhase phase) {
  switch (phase) {
    case rendezvous::GangPhase::kGathering: return telemetry::Activity::kGathering;
    case rendezvous::GangPhase::kRunning: return telemetry::Activity::kRunning;
    case rendezvous::GangPhase::kRestarting: return telemetry::Activity::kRestarting;
    case rendezvous::GangPhase::kSucceeded:
    case rendezvous::GangPhase::kFailed: break;
  }
  return telemetry::Activity::kEnded;
}

telemetry::GoodputLedger ledger_of(std::string_view text, int restarts, const Clock& clock) {
  const EarlierGoodput earlier = read_earlier(text, clock.wall());
  return {clock.steady(), earlier.goodput, earlier.gap, restarts > earlier.restarts};
}

}  // namespace

json goodput_form(const Goodput& goodput, int restarts) {
  json object = json::object();
  json losses = json::object();
  double all = milli(goodput[Use::kUseful]);
  const double useful = all;
  for (std::size_t use = 1; use < kUses; ++use) {
    const double seconds = milli(goodput.seconds[use]);
    if (seconds > 0) losses[std::string(telemetry::use_name(use))] = seconds;
    all += seconds;
  }
  object["seconds"] = all;
  object["losses"] = std::move(losses);
  object["restarts"] = restarts;
  if (!goodput.trained) return object;
  object["ratio"] = all > 0 ? useful / all : 0;
  if (goodput.checkpointed) object["sinceCheckpoint"] = milli(goodput.since_checkpoint);
  if (goodput.unknown_losses > 0) object["lostStepsUnknown"] = goodput.unknown_losses;
  if (goodput.user_step >= 0) {
    object["userStep"] = goodput.user_step;
    object["stepMicroseconds"] = std::llround(goodput.step_seconds * 1e6);
  }
  return object;
}

EarlierGoodput read_earlier(std::string_view text, WallTime now) {
  EarlierGoodput earlier;
  const json object = json::parse(text, nullptr, false);
  if (!object.is_object()) return earlier;
  Goodput& goodput = earlier.goodput;
  const auto losses = object.find("losses");
  double lost = 0;
  for (std::size_t use = 1; losses != object.end() && use < kUses; ++use) {
    goodput.seconds[use] = seconds_in(*losses, std::string(telemetry::use_name(use)));
    lost += goodput.seconds[use];
  }
  goodput[Use::kUseful] = std::max(0.0, seconds_in(object, "seconds") - lost);
  goodput.trained = object.contains("ratio");
  goodput.checkpointed = object.contains("sinceCheckpoint");
  goodput.since_checkpoint =
      goodput.checkpointed ? seconds_in(object, "sinceCheckpoint") : goodput[Use::kUseful];
  goodput.unknown_losses =
      static_cast<int>(std::min<double>(seconds_in(object, "lostStepsUnknown"), kMostRestarts));
  const auto step = object.find("userStep");
  if (step != object.end() && step->is_number_integer()) {
    goodput.user_step = std::max<std::int64_t>(-1, step->get<std::int64_t>());
    goodput.step_seconds = seconds_in(object, "stepMicroseconds") / 1e6;
  }
  earlier.restarts =
      static_cast<int>(std::min<double>(seconds_in(object, "restarts"), kMostRestarts));
  const auto told = object.find("asOf");
  if (told == object.end() || !told->is_string()) return earlier;
  // If the clock was set back meanwhile, the gap is unknown and left out.
  if (const auto as_of = parse_time(told->get<std::string>()))
    earlier.gap = std::max(0.0, std::chrono::duration<double>(now - *as_of).count());
  return earlier;
}

std::string goodput_line(const Goodput& goodput) {
  const double all = goodput.wall();
  if (!goodput.trained || all <= 0) return "";
  std::array<char, 64> buffer{};
  (void)std::snprintf(buffer.data(), buffer.size(), "goodput %.1f %% of %.1f s",
                      goodput.ratio() * 100, all);
  std::string line = buffer.data();
  std::string losses;
  for (std::size_t use = 1; use < kUses; ++use) {
    const double share = goodput.seconds[use] / all;
    if (share < 0.0005) continue;
    (void)std::snprintf(buffer.data(), buffer.size(), " %.1f %%", share * 100);
    losses += (losses.empty() ? "" : ", ") + std::string(telemetry::use_name(use)) + buffer.data();
  }
  if (goodput.unknown_losses > 0)
    losses += (losses.empty() ? "" : ", ") + std::string("lostSteps unknown");
  return losses.empty() ? line : line + " (" + losses + ")";
}

GoodputMeter::GoodputMeter(std::string_view earlier, int restarts, const Clock& clock)
    : clock_(clock), ledger_(ledger_of(earlier, restarts, clock)) {}

void GoodputMeter::follow(const rendezvous::Gang& gang) {
  const telemetry::Activity activity = activity_of(gang.phase());
  if (ledger_.differs(activity, gang.attempt()))
    ledger_.change(clock_.steady(), activity, gang.attempt(), gang.ranks());
}

telemetry::Goodput GoodputMeter::at_present(const rendezvous::Gang& gang) const {
  return ledger_.at(clock_.steady(), gang.ranks());
}

}  // namespace paceline::summary
