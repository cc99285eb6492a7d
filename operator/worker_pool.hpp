// SPDX-License-Identifier: Apache-2.0
// WorkerPool: the work of the operator while it leads. It feeds the caches and reconciles keys with
// several workers until it is stopped. Then it stops the watches, empties the queue, and waits for
// calls in flight, in this order.
//
// Its parts must outlive it. `start` and `stop` are each called once, by one thread. A key whose
// reconciliation failed returns with its own back-off.
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

/// Reconciles one key and schedules its return. The simulation uses it too.
void work_once(kube::WorkQueue& queue, apply::Controller& controller, const std::string& key);

}  // namespace paceline
