// SPDX-License-Identifier: Apache-2.0
#include "common/base/log.hpp"

#include "operator/worker_pool.hpp"

#include <condition_variable>
#include <mutex>

#include "common/kube/api/kueue.hpp"

namespace paceline {
namespace {

constexpr std::size_t kPollers = 4;  // summaries read at the same time

}  // namespace

void work_once(kube::WorkQueue& queue, apply::Controller& controller, const std::string& key) {
  apply::Outcome outcome;
  try {
    outcome = controller.reconcile(key);
  } catch (const std::exception& error) {
    controller.contain(key, error);
    outcome.failed = true;
  }
  if (outcome.failed) {
    queue.add_backoff(key);
  } else {
    queue.forget(key);
    if (outcome.again) queue.add_after(key, *outcome.again);
  }
  queue.done(key);
}

WorkerPool::WorkerPool(kube::Api& api, apply::Stores& stores, kube::WorkQueue& queue,
                       apply::Controller& controller, std::size_t workers)
    : stores_(stores), queue_(queue), controller_(controller), workers_(workers) {
  const auto add = [&](const kube::Resource& resource, kube::ObjectSink& sink) {
    kube::ReflectorOptions options;
    // Helm adds no CRDs on upgrade: jobs then run without profiles. Few clusters have Kueue.
    options.absent_is_empty = resource.plural == kube::kRuntimeProfiles.plural ||
                              resource.group == kube::kKueueWorkloads.group;
    reflectors_.push_back(
        std::make_unique<kube::Reflector>(api, resource, std::move(options), sink));
  };
  add(kube::kNodes, stores.nodes);
  add(kube::kPods, stores.pods);
  add(kube::kResourceQuotas, stores.quotas);
  add(kube::kPriorityClasses, stores.priorities);
  add(kube::kRuntimeProfiles, stores.profiles);
  add(kube::kNodeFabrics, stores.fabrics);
  add(kube::kResourceFlavors, stores.flavors);
  add(kube::kTopologies, stores.topologies);
  add(kube::kKueueWorkloads, stores.workloads);
  add(kube::kLocalQueues, stores.local_queues);
  add(kube::kTrainingJobs, stores.jobs);
}

WorkerPool::~WorkerPool() { stop(); }

void WorkerPool::start() {
  for (const auto& reflector : reflectors_) {
    feeds_.emplace_back([&reflector](const std::stop_token& stop) { reflector->run(stop); });
  }
  for (std::size_t i = 0; i < kPollers; ++i) {
    threads_.emplace_back(
        [this](const std::stop_token& stop) { controller_.summaries().run(stop); });
  }
  for (std::size_t i = 0; i < workers_; ++i) {
    threads_.emplace_back([this](const std::stop_token& stop) { work(stop); });
  }
}

void WorkerPool::work(const std::stop_token& stop) {
  // Start reconciling only when all caches are complete.
  std::mutex mutex;
  std::condition_variable_any never;
  std::unique_lock lock(mutex);
  while (!stores_.synced() && !stop.stop_requested())
    never.wait_for(lock, stop, std::chrono::milliseconds(20), [] { return false; });
  while (const auto key = queue_.get(stop)) {
    work_once(queue_, controller_, *key);
    if (queue_.take_overflowed()) {
      for (const auto& job : stores_.jobs.list())
        queue_.add(kube::key_of(job->meta.ns, job->meta.name));
      queue_.add(apply::kScheduleKey);
    }
  }
}

void WorkerPool::stop() {
  for (auto& feed : feeds_) feed.request_stop();
  feeds_.clear();
  queue_.shut_down();
  for (auto& thread : threads_) thread.request_stop();
  threads_.clear();
}

}  // namespace paceline
