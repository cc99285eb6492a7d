// SPDX-License-Identifier: Apache-2.0
#include "operator/metrics.hpp"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

namespace paceline {
namespace {

void counter(prometheus::Registry& registry, const char* name, const char* help,
             std::uint64_t value) {
  prometheus::BuildCounter().Name(name).Help(help).Register(registry).Add({}).Increment(
      static_cast<double>(value));
}

void gauge(prometheus::Registry& registry, const char* name, const char* help, double value) {
  prometheus::BuildGauge().Name(name).Help(help).Register(registry).Add({}).Set(value);
}

void pass_times(prometheus::Registry& registry, const apply::PassTimes& times) {
  const prometheus::Histogram::BucketBoundaries bounds(times.kBounds.begin(), times.kBounds.end());
  prometheus::BuildHistogram()
      .Name("paceline_operator_scheduler_pass_seconds")
      .Help("Wall time of a pass over the queue.")
      .Register(registry)
      .Add({}, bounds)
      .ObserveMultiple({times.buckets.begin(), times.buckets.end()}, times.total_s);
  gauge(registry, "paceline_operator_scheduler_pass_longest_seconds",
        "The longest pass since the process started.", times.longest_s);
}

}  // namespace

std::string operator_metrics(const OperatorState& state) {
  prometheus::Registry registry;
  const apply::Counters& counters = state.counters;
  counter(registry, "paceline_operator_reconciles_total", "Reconciliations of jobs.",
          counters.reconciles);
  counter(registry, "paceline_operator_status_writes_total",
          "Status writes that the API server took.", counters.status_writes);
  counter(registry, "paceline_operator_pods_created_total", "Pods created.", counters.pods_created);
  counter(registry, "paceline_operator_pods_ungated_total", "Pods ungated.", counters.pods_ungated);
  counter(registry, "paceline_operator_pods_deleted_total", "Pods deleted.", counters.pods_deleted);
  counter(registry, "paceline_operator_conflicts_total", "Plans made on a stale cache and dropped.",
          counters.conflicts);
  counter(registry, "paceline_operator_errors_total", "API calls that failed and are tried again.",
          counters.errors);
  counter(registry, "paceline_operator_internal_errors_total",
          "Exceptions that were contained; each is a bug, and the log names the job.",
          counters.internal_errors);
  counter(registry, "paceline_operator_scheduler_passes_total", "Passes over the queue.",
          counters.scheduler_passes);
  pass_times(registry, counters.pass_times);
  counter(registry, "paceline_operator_events_dropped_total",
          "Events that the API server refused or did not take in ten minutes.",
          state.events_dropped);
  gauge(registry, "paceline_operator_leading", "1 while this process is the leader.",
        state.leading ? 1 : 0);
  gauge(registry, "paceline_operator_queue_depth", "Keys that wait for a worker.",
        static_cast<double>(state.queue_depth));
  gauge(registry, "paceline_operator_cached_pods", "Pods in the cache.",
        static_cast<double>(state.cached_pods));
  gauge(registry, "paceline_operator_cached_nodes", "Nodes in the cache.",
        static_cast<double>(state.cached_nodes));
  auto& jobs = prometheus::BuildGauge()
                   .Name("paceline_operator_jobs")
                   .Help("Jobs by phase.")
                   .Register(registry);
  for (const auto& [phase, count] : counters.jobs_by_phase)
    jobs.Add({{"phase", phase}}).Set(static_cast<double>(count));
  return prometheus::TextSerializer().Serialize(registry.Collect());
}

}  // namespace paceline
