// SPDX-License-Identifier: Apache-2.0
// WorkerPool: the operator while it leads. Feeds the caches, then reconciles keys with several
// workers, until told to stop; then it drains in order: watches first, queue next, what is in
// flight last.
//
// Refers to its parts, which outlive it. `start` once, `stop` once, from one thread. A key whose
// reconciliation failed comes back with its own back-off.
#pragma once

#include <memory>
#include <stop_token>
#include <thread>
#include <vector>

#include "common/kube/control/work_queue.hpp"
#include "common/kube/watch/reflector.hpp"
#include "operator/apply/controller.hpp"

namespace paceline {

class WorkerPool {
 public:
  WorkerPool(kube::Api& api, apply::Stores& stores, kube::WorkQueue& queue,
             apply::Controller& controller, std::size_t workers);
  ~WorkerPool();
  void start();
  void stop();

 private:
  void work(const std::stop_token& stop);

  apply::Stores& stores_;
  kube::WorkQueue& queue_;
  apply::Controller& controller_;
  const std::size_t workers_;
  std::vector<std::unique_ptr<kube::Reflector>> reflectors_;
  std::vector<std::jthread> feeds_;
  std::vector<std::jthread> threads_;
};

/// One key: reconcile, and say when it comes back. Shared with the simulation.
void work_once(kube::WorkQueue& queue, apply::Controller& controller, const std::string& key);

}  // namespace paceline
