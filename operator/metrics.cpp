// SPDX-License-Identifier: Apache-2.0
#include "operator/metrics.hpp"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include "common/kube/api/kueue.hpp"

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

template <typename Times>
void histogram(prometheus::Registry& registry, const char* name, const char* help,
               const Times& times) {
  const prometheus::Histogram::BucketBoundaries bounds(times.kBounds.begin(), times.kBounds.end());
  prometheus::BuildHistogram()
      .Name(name)
      .Help(help)
      .Register(registry)
      .Add({}, bounds)
      .ObserveMultiple({times.buckets.begin(), times.buckets.end()}, times.total_s);
}

void times(prometheus::Registry& registry, const apply::Counters& counters) {
  histogram(registry, "paceline_operator_scheduler_pass_seconds",
            "Wall time of a pass over the queue.", counters.pass_times);
  gauge(registry, "paceline_operator_scheduler_pass_longest_seconds",
        "The longest pass since the process started.", counters.pass_times.longest_s);
  histogram(registry, "paceline_operator_reconcile_seconds",
            "Wall time of a reconciliation of a job, calls of the API included.",
            counters.reconcile_times);
  histogram(registry, "paceline_operator_job_wait_seconds",
            "Time from a job's creation to its first placement.", counters.wait_times);
}

void families(prometheus::Registry& registry, const OperatorState& state) {
  auto& waiting =
      prometheus::BuildGauge()
          .Name("paceline_operator_waiting_jobs")
          .Help("Jobs that wait for a placement; queues beyond the 50 longest count as other.")
          .Register(registry);
  for (const auto& [key, count] : state.waiting)
    waiting.Add({{"queue", key.first}, {"reason", key.second}}).Set(static_cast<double>(count));
  auto& calls =
      prometheus::BuildCounter()
          .Name("paceline_operator_api_calls_total")
          .Help("Answers of the API server; code 0 if none came. A watch counts when it ends.")
          .Register(registry);
  for (const auto& [key, count] : state.calls)
    calls.Add({{"verb", key.verb}, {"resource", key.resource}, {"code", std::to_string(key.code)}})
        .Increment(static_cast<double>(count));
  auto& cached = prometheus::BuildGauge()
                     .Name("paceline_operator_cached_objects")
                     .Help("Objects in the cache of a resource.")
                     .Register(registry);
  for (const auto& [resource, count] : state.cached)
    cached.Add({{"resource", std::string(resource)}}).Set(static_cast<double>(count));
}

}  // namespace

OperatorState state_of(const apply::Controller& controller, const apply::Stores& stores,
                       const kube::WorkQueue& queue) {
  OperatorState state;
  state.counters = controller.counters();
  state.queue_depth = queue.size();
  state.cached = {{kube::kTrainingJobs.plural, stores.jobs.size()},
                  {kube::kPods.plural, stores.pods.size()},
                  {kube::kNodes.plural, stores.nodes.size()},
                  {kube::kResourceQuotas.plural, stores.quotas.size()},
                  {kube::kPriorityClasses.plural, stores.priorities.size()},
                  {kube::kRuntimeProfiles.plural, stores.profiles.size()},
                  {kube::kNodeFabrics.plural, stores.fabrics.size()},
                  {kube::kKueueWorkloads.plural, stores.workloads.size()},
                  {kube::kLocalQueues.plural, stores.local_queues.size()},
                  {kube::kResourceFlavors.plural, stores.flavors.size()},
                  {kube::kTopologies.plural, stores.topologies.size()}};
  state.waiting = waiting_jobs(stores.jobs.list());
  return state;
}

std::string operator_metrics(const OperatorState& state) {
  prometheus::Registry registry;
  const apply::Counters& counters = state.counters;
  counter(registry, "paceline_operator_reconciles_total", "Reconciliations of jobs.",
          counters.reconciles);
  counter(registry, "paceline_operator_status_writes_total",
          "Status writes that the API server took.", counters.status_writes);
  counter(registry, "paceline_operator_pods_created_total", "Pods created.", counters.pods_created);
  counter(registry, "paceline_operator_pods_ungated_total", "Pods ungated.", counters.pods_ungated);
  counter(registry, "paceline_operator_placeholders_created_total",
          "Pods created that hold room for a job that waits for nodes.",
          counters.placeholders_created);
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
  counter(registry, "paceline_operator_resizes_total", "Running jobs that were given another size.",
          counters.resizes);
  times(registry, counters);
  families(registry, state);
  counter(registry, "paceline_operator_events_dropped_total",
          "Events that the API server refused or did not take in ten minutes.",
          state.events_dropped);
  gauge(registry, "paceline_operator_leading", "1 while this process is the leader.",
        state.leading ? 1 : 0);
  gauge(registry, "paceline_operator_queue_depth", "Keys that wait for a worker or for their time.",
        static_cast<double>(state.queue_depth));
  const std::map<std::string_view, std::size_t> cached(state.cached.begin(), state.cached.end());
  gauge(registry, "paceline_operator_cached_pods", "Pods in the cache.",
        static_cast<double>(cached.contains("pods") ? cached.at("pods") : 0));
  gauge(registry, "paceline_operator_cached_nodes", "Nodes in the cache.",
        static_cast<double>(cached.contains("nodes") ? cached.at("nodes") : 0));
  auto& jobs = prometheus::BuildGauge()
                   .Name("paceline_operator_jobs")
                   .Help("Jobs by phase.")
                   .Register(registry);
  for (const auto& [phase, count] : counters.jobs_by_phase)
    jobs.Add({{"phase", phase}}).Set(static_cast<double>(count));
  return prometheus::TextSerializer().Serialize(registry.Collect());
}

}  // namespace paceline
