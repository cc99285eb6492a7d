// SPDX-License-Identifier: Apache-2.0
#include "common/telemetry/metrics/rank_metrics.hpp"

#include <algorithm>
#include <utility>

namespace paceline::telemetry {
namespace {

using More = std::vector<std::pair<std::string, std::string>>;

class Exporter {
 public:
  explicit Exporter(MetricsSink& sink) : sink_(sink) {}

  void totals(const std::vector<RankView>& ranks);
  void states(const std::vector<RankView>& ranks);

 private:
  void counter(const std::vector<RankView>& ranks, std::string_view name, std::string_view help,
               std::uint64_t RankTotals::* field) {
    sink_.family(name, MetricType::kCounter, help);
    for (const RankView& view : ranks)
      sink_.value(labels(view), static_cast<double>((*view.totals).*field));
  }

  static Labels labels(const RankView& view, More more = {}) {
    Labels all{{"namespace", view.identity->job_namespace},
               {"job", view.identity->job},
               {"role", view.identity->role},
               {"rank", std::to_string(view.rank)},
               {"node", view.identity->node},
               {"gpu", view.gpu}};
    for (auto& label : more) all.push_back(std::move(label));
    return all;
  }

  MetricsSink& sink_;
};

void Exporter::totals(const std::vector<RankView>& ranks) {
  sink_.family("paceline_step_seconds", MetricType::kHistogram, "Wall time of a training step.");
  for (const RankView& view : ranks) {
    const RankTotals& totals = *view.totals;
    sink_.histogram(labels(view), kStepBuckets, totals.buckets, totals.steps, totals.step_seconds);
  }
  sink_.family("paceline_step_phase_seconds_total", MetricType::kCounter,
               "Time per phase of the training step. The clocks host and device are two "
               "partitions: never add them.");
  for (const RankView& view : ranks) {
    for (std::size_t phase = 0; phase < kPhases; ++phase) {
      const std::string name(phase_name(phase));
      sink_.value(labels(view, {{"phase", name}, {"clock", "host"}}), view.totals->host[phase]);
      if ((view.totals->device_phases >> phase & 1U) != 0)
        sink_.value(labels(view, {{"phase", name}, {"clock", "device"}}),
                    view.totals->device[phase]);
    }
  }
  sink_.family("paceline_comm_seconds_total", MetricType::kCounter,
               "Communication time, exposed (the step waits for it) or hidden behind compute.");
  for (const RankView& view : ranks) {
    sink_.value(labels(view, {{"exposed", "true"}}), view.totals->comm_exposed_seconds);
    if (view.totals->has_comm_hidden)
      sink_.value(labels(view, {{"exposed", "false"}}), view.totals->comm_hidden_seconds);
  }
  counter(ranks, "paceline_steps_total", "Training steps completed.", &RankTotals::steps);
  counter(ranks, "paceline_samples_total", "Samples trained on.", &RankTotals::samples);
  const auto counts_tokens = [](const RankView& view) { return view.totals->has_tokens; };
  if (std::ranges::any_of(ranks, counts_tokens)) {
    sink_.family("paceline_tokens_total", MetricType::kCounter,
                 "Tokens of the batches trained on, padding included.");
    for (const RankView& view : ranks) {
      if (counts_tokens(view)) sink_.value(labels(view), static_cast<double>(view.totals->tokens));
    }
  }
  counter(ranks, "paceline_scaler_skipped_steps_total",
          "Steps in which a gradient scaler skipped an optimizer: the gradients were not finite.",
          &RankTotals::scaler_skips);
  counter(ranks, "paceline_dropped_records_total",
          "Step records that were lost before they could be counted.", &RankTotals::dropped);
}

void Exporter::states(const std::vector<RankView>& ranks) {
  sink_.family("paceline_profiler_state", MetricType::kGauge,
               "Whether a source of measurement is on (1) or off (0) in a rank, and why.");
  for (const RankView& view : ranks) {
    for (const ProfilerState& state : view.profilers) {
      sink_.value(labels(view, {{"source", std::string(state.source)},
                                {"reason", std::string(state.reason)}}),
                  state.on ? 1 : 0);
    }
  }
  if (std::none_of(ranks.begin(), ranks.end(),
                   [](const RankView& view) { return view.live.has_value(); }))
    return;
  sink_.family("paceline_live_phase_seconds", MetricType::kGauge,
               "How long a rank has been in the phase that it is in now: a hang shows here before "
               "any record.");
  for (const RankView& view : ranks) {
    if (view.live)
      sink_.value(labels(view, {{"phase", std::string(phase_name(view.live->phase))}}),
                  view.live->seconds);
  }
  sink_.family("paceline_live_step", MetricType::kGauge,
               "The step under way in a rank, from 1 in each attempt.");
  for (const RankView& view : ranks) {
    if (view.live) sink_.value(labels(view), static_cast<double>(view.live->step));
  }
}

}  // namespace

void export_ranks(const std::vector<RankView>& ranks, MetricsSink& sink) {
  Exporter exporter(sink);
  std::vector<RankView> measured;
  std::copy_if(ranks.begin(), ranks.end(), std::back_inserter(measured),
               [](const RankView& view) { return view.totals.has_value(); });
  exporter.totals(measured);
  exporter.states(ranks);
}

}  // namespace paceline::telemetry
