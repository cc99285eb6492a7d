// SPDX-License-Identifier: Apache-2.0
#include "launcher/summary/documents.hpp"

#include <cmath>

#include "common/base/timestamp.hpp"
#include "launcher/rendezvous/json_forms.hpp"

namespace paceline::summary {
namespace {

using nlohmann::json;
using rendezvous::form;

constexpr std::size_t kMostInMessage = 2;  // findings

// More digits help no reader, and the termination message has little room.
double rounded(double value) {
  return value == 0 || !std::isfinite(value) ? 0 : std::round(value * 1e7) / 1e7;
}

json percentiles(double p50, double p95) { return {{"p50", rounded(p50)}, {"p95", rounded(p95)}}; }

json breakdown(const telemetry::PhaseSeconds& shares) {
  json object = json::object();
  for (std::size_t phase = 0; phase < telemetry::kPhases; ++phase) {
    const double share = std::round(shares[phase] * 1e6) / 1e6;
    if (share > 0) object[std::string(telemetry::phase_name(phase))] = share;
  }
  return object;
}

json device_times(const telemetry::DeviceSummary& device) {
  return {{"breakdown", breakdown(device.breakdown)},
          {"idle", std::round(device.idle * 1e6) / 1e6}};
}

json culprit_or_null(const std::optional<rendezvous::Culprit>& culprit) {
  return culprit ? form(*culprit) : json();
}

/// With "effects" only if something is known of them, so that a reader keeps what it knows.
void put_effects(json& document, const std::optional<Effects>& effects) {
  if (!effects) return;
  json& list = document["effects"] = json::array();
  for (const Effect& effect : *effects) {
    json& entry = list.emplace_back(json{{"feature", effect.feature}, {"kept", effect.kept}});
    if (effect.gain) entry["gain"] = std::round(*effect.gain * 1e4) / 1e4;
    if (!effect.reason.empty()) entry["reason"] = effect.reason;
  }
}

/// Only if there are any.
void put_findings(json& document, const diagnosis::Findings& findings) {
  for (const diagnosis::Finding& finding : findings) {
    json& entry = document["findings"].emplace_back(json{
        {"kind", to_string(finding.kind)}, {"text", finding.text}, {"advice", finding.advice}});
    if (finding.rank) entry["rank"] = *finding.rank;
    if (!finding.node.empty()) entry["node"] = finding.node;
    if (finding.since) entry["since"] = format_time(*finding.since);
    if (finding.gain) {
      const auto shown = [](double gain) { return std::round(gain * 1e4) / 1e4; };
      entry["gain"] = {shown(finding.gain->low), shown(finding.gain->high)};
    }
  }
}

/// Only rank 0's launcher knows it.
void put_goodput(json& document, const std::optional<telemetry::Goodput>& goodput, int restarts) {
  if (goodput) document["goodput"] = goodput_form(*goodput, restarts);
}

void put_saved(json& document, const std::optional<rendezvous::SavedStep>& saved) {
  if (!saved) return;
  document["checkpoint"] = {{"lastStep", saved->step}, {"attempt", saved->attempt}};
}

std::string dump(const json& document) {
  return document.dump(-1, ' ', false, json::error_handler_t::replace);
}

json ending_document(const Ending& ending) {
  return {{"version", 1},
          {"verdict", ending.verdict},
          {"attempt", ending.attempt},
          {"restarts", ending.restarts},
          {"culprit", culprit_or_null(ending.culprit)},
          {"message", ending.message},
          {"report", ending.report}};
}

}  // namespace

json training(const telemetry::JobSummary& summary, const std::optional<ModelFlops>& model,
              bool with_ranks) {
  json object{{"step", summary.step},
              {"steps", summary.steps},
              {"samplesPerSecond", std::round(summary.samples_per_second * 10) / 10},
              {"stepSeconds", percentiles(summary.p50, summary.p95)},
              {"breakdown", breakdown(summary.breakdown)},
              {"bottleneck", summary.bottleneck}};
  if (summary.device) object["device"] = device_times(*summary.device);
  object["slowestRank"] = summary.slowest_rank < 0 ? json() : json(summary.slowest_rank);
  if (summary.tokens_per_second > 0)
    object["tokensPerSecond"] = std::round(summary.tokens_per_second * 10) / 10;
  if (model) {
    if (const double speed = flops_per_second(*model, summary); speed > 0)
      object["flopsPerSecond"] = std::round(speed);
    if (const auto share = mfu(*model, summary)) object["mfu"] = rounded(*share);
  }
  if (!with_ranks) return object;
  json ranks = json::array();
  for (const auto& rank : summary.ranks) {
    json& entry = ranks.emplace_back(json{
        {"rank", rank.rank},
        {"nodeRank", rank.node_rank},
        {"step", rank.step},
        {"steps", rank.steps},
        {"settled", {{"steps", rank.settled.steps}, {"seconds", rounded(rank.settled.seconds)}}},
        {"samplesPerSecond", std::round(rank.samples_per_second * 10) / 10},
        {"stepSeconds", percentiles(rank.p50, rank.p95)},
        {"breakdown", breakdown(telemetry::shares(telemetry::sum(rank.window) > 0 ? rank.window
                                                                                  : rank.total))}});
    const auto device = telemetry::device_summary(
        telemetry::sum(rank.device_window) > 0 ? rank.device_window : rank.device_total);
    if (device) entry["device"] = device_times(*device);
  }
  object["ranks"] = std::move(ranks);
  return object;
}

std::string summary_document(const JobState& state, const telemetry::JobSummary& summary) {
  json document{{"version", 1},
                {"jobUid", state.job_uid},
                {"phase", state.phase},
                {"attempt", state.attempt},
                {"restarts", state.restarts},
                {"gathered", state.gathered},
                {"expected", state.expected},
                {"missing", state.missing},
                {"culprit", culprit_or_null(state.culprit)},
                {"training", training(summary, state.model, true)}};
  put_effects(document, state.effects);
  if (state.history != nullptr && !state.history->points().empty()) {
    json& history = document["training"]["history"] = json::array();
    for (const StepHistory::Point& point : state.history->points())
      history.push_back(
          {{"at", std::round(point.at * 10) / 10}, {"stepSeconds", rounded(point.step_seconds)}});
  }
  put_findings(document, state.findings);
  put_goodput(document, state.goodput, state.restarts);
  put_saved(document, state.saved);
  return dump(document);
}

std::string stacks_document(int attempt, const std::map<int, std::string>& stacks) {
  json document{{"version", 1}, {"attempt", attempt}, {"ranks", json::array()}};
  for (const auto& [rank, text] : stacks)
    document["ranks"].push_back({{"rank", rank}, {"text", text}});
  return dump(document);
}

std::string termination_message(const Ending& ending, const telemetry::JobSummary& summary,
                                std::size_t limit) {
  json document = ending_document(ending);
  document["training"] = training(summary, ending.model, false);
  put_effects(document, ending.effects);
  // The most serious: the others would take the place of the rank's last lines.
  diagnosis::Findings findings = ending.findings;
  if (findings.size() > kMostInMessage) findings.resize(kMostInMessage);
  put_findings(document, findings);
  put_goodput(document, ending.goodput, ending.restarts);
  put_saved(document, ending.saved);
  std::string text = dump(document);
  if (text.size() > limit && document.contains("effects")) {
    for (json& effect : document["effects"]) effect.erase("reason");
    text = dump(document);
  }
  while (text.size() > limit && document["culprit"].is_object() &&
         !document["culprit"]["lastLines"].empty()) {
    json& lines = document["culprit"]["lastLines"];
    lines.erase(lines.begin());
    text = dump(document);
  }
  for (const char* part : {"findings", "effects", "training", "goodput"}) {
    if (text.size() <= limit) break;
    document.erase(part);
    text = dump(document);
  }
  // JSON escapes make a byte up to six times as long, so halve the text until it fits.
  std::string message = ending.message;
  while (text.size() > limit && !message.empty()) {
    message.resize(message.size() / 2);
    document["message"] = message;
    text = dump(document);
  }
  if (text.size() > limit)
    text = dump({{"version", 1},
                 {"verdict", ending.verdict},
                 {"attempt", ending.attempt},
                 {"restarts", ending.restarts},
                 {"culprit", json()},
                 {"message", ""}});
  return text;
}

std::string report_document(const Ending& ending, const telemetry::JobSummary& summary) {
  json document = ending_document(ending);
  document["training"] = training(summary, ending.model, true);
  put_effects(document, ending.effects);
  put_findings(document, ending.findings);
  put_goodput(document, ending.goodput, ending.restarts);
  return dump(document);
}

}  // namespace paceline::summary
