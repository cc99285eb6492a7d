// SPDX-License-Identifier: Apache-2.0
#include "common/telemetry/rank_metrics.hpp"

#include <utility>

namespace paceline::telemetry {

void export_ranks(const Identity& identity, const std::vector<RankView>& ranks, MetricsSink& sink) {
  const auto labels = [&](int rank, std::vector<std::pair<std::string, std::string>> more = {}) {
    Labels all{{"namespace", identity.job_namespace}, {"job", identity.job},   {"role", identity.role},
               {"rank", std::to_string(rank)},        {"node", identity.node}, {"gpu", ""}};
    for (auto& label : more) all.push_back(std::move(label));
    return all;
  };
  sink.family("paceline_step_seconds", MetricType::kHistogram, "Wall time of a training step.");
  for (const auto& [rank, totals] : ranks) {
    sink.histogram(labels(rank), kStepBuckets, totals->buckets, totals->steps, totals->step_seconds);
  }
  sink.family("paceline_step_phase_seconds_total", MetricType::kCounter,
              "Time per phase of the training step. The clocks host and device are two partitions: never add them.");
  for (const auto& [rank, totals] : ranks) {
    for (std::size_t phase = 0; phase < kPhases; ++phase) {
      const std::string name(phase_name(phase));
      sink.value(labels(rank, {{"phase", name}, {"clock", "host"}}), totals->host[phase]);
      if (totals->has_device) sink.value(labels(rank, {{"phase", name}, {"clock", "device"}}), totals->device[phase]);
    }
  }
  sink.family("paceline_comm_seconds_total", MetricType::kCounter,
              "Communication time, exposed (the step waits for it) or hidden behind compute.");
  for (const auto& [rank, totals] : ranks) {
    sink.value(labels(rank, {{"exposed", "true"}}), totals->comm_exposed_seconds);
    if (totals->has_comm_hidden) sink.value(labels(rank, {{"exposed", "false"}}), totals->comm_hidden_seconds);
  }
  sink.family("paceline_steps_total", MetricType::kCounter, "Training steps completed.");
  for (const auto& [rank, totals] : ranks) sink.value(labels(rank), static_cast<double>(totals->steps));
  sink.family("paceline_samples_total", MetricType::kCounter, "Samples trained on.");
  for (const auto& [rank, totals] : ranks) sink.value(labels(rank), static_cast<double>(totals->samples));
  sink.family("paceline_dropped_records_total", MetricType::kCounter,
              "Step records that were lost before they could be counted.");
  for (const auto& [rank, totals] : ranks) sink.value(labels(rank), static_cast<double>(totals->dropped));
}

}  // namespace paceline::telemetry
