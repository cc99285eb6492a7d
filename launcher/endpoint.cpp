// SPDX-License-Identifier: Apache-2.0
#include "launcher/endpoint.hpp"

#include <utility>

#include "common/telemetry/metrics/text_sink.hpp"

namespace paceline::launcher {
namespace {

bool same_secret(const std::string& a, const std::string& b) {
  if (a.size() != b.size()) return false;
  unsigned difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    difference |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]);
  return difference == 0;
}

void put_gains(telemetry::TextSink& sink, const telemetry::Labels& job,
               const std::optional<summary::Effects>& effects) {
  if (!effects) return;
  bool first = true;
  for (const summary::Effect& effect : *effects) {
    if (!effect.gain) continue;
    if (std::exchange(first, false))
      sink.family("paceline_job_effect_gain_ratio", telemetry::MetricType::kGauge,
                  "How much quicker steps are with a feature than without it, less 1, as the tuner "
                  "of rank 0 measured it.");
    telemetry::Labels labels = job;
    labels.emplace_back("feature", effect.feature);
    labels.emplace_back("kept", effect.kept ? "true" : "false");
    sink.value(labels, *effect.gain);
  }
}

std::string metrics(const EndpointState& state) {
  using telemetry::MetricType;
  telemetry::TextSink sink;
  const bool any = state.collector != nullptr && (!state.ranks || !state.ranks->empty());
  if (any) state.collector->export_metrics(sink, state.ranks);
  const telemetry::Labels job{{"namespace", state.config->job_namespace},
                              {"job", state.config->job_name}};
  if (state.whole_job) {
    sink.family("paceline_job_restarts_total", MetricType::kCounter,
                "Restarts of the gang that failures have spent.");
    sink.value(job, state.state.restarts);
    sink.family("paceline_job_replicas_gathered", MetricType::kGauge,
                "Replicas whose launchers are connected to rank 0's.");
    sink.value(job, state.state.gathered);
    if (state.summary.skew > 0) {
      sink.family("paceline_step_skew_ratio", MetricType::kGauge,
                  "Own time per step of the slowest rank over the median rank's; waiting for other "
                  "ranks is not own time.");
      sink.value(job, state.summary.skew);
    }
    put_gains(sink, job, state.state.effects);
  }
  return sink.text();
}

}  // namespace

summary::JobState job_state(const Config& config, const rendezvous::Gang* gang,
                            const rendezvous::Member& member) {
  if (gang == nullptr)
    return {config.job_uid,
            member.running() ? "Running" : "Gathering",
            member.attempt(),
            member.restarts(),
            1,
            1,
            std::nullopt};
  return {config.job_uid,
          std::string(rendezvous::to_string(gang->phase())),
          gang->attempt(),
          gang->restarts(),
          gang->gathered(),
          gang->expected(),
          gang->culprit(),
          gang->missing(),
          summary::read_effects(config.effects_file())};
}

summary::HttpAnswer answer_request(const EndpointState& state,
                                   const summary::HttpRequest& request) {
  if (request.method != "GET")
    return {405, "text/plain; charset=utf-8", "only GET is served here\n"};
  const auto& [method, path, authorization, body] = request;
  if (path == "/healthz") return {200, "text/plain; charset=utf-8", "ok\n"};
  if (path == "/metrics") return {200, std::string(telemetry::kTextContentType), metrics(state)};
  if (path == "/v1/summary") {
    if (!same_secret(authorization, "Bearer " + state.config->token))
      return {401, "text/plain; charset=utf-8",
              "show the job's token: Authorization: Bearer <token>\n"};
    return {200, "application/json", summary::summary_document(state.state, state.summary) + "\n"};
  }
  return {};
}

}  // namespace paceline::launcher
