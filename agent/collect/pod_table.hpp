// SPDX-License-Identifier: Apache-2.0
// PodTable: the pods of this node whose rings the agent reads, with the totals of their ranks'
// steps, while they run and five minutes longer. SlotCollector owns it.
//
// Ownership: owns a collector for each pod. An Entry lives until its time after `end` is over. Not
// thread-safe. Failure: a ring that cannot be taken is an Error of that pod alone; what exceeds a
// bound is left out or counted as dropped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agent/checks/check.hpp"
#include "agent/collect/limits.hpp"
#include "agent/collect/token_bucket.hpp"
#include "agent/inject/kubelet.hpp"
#include "agent/probe/hardware/hardware.hpp"
#include "common/telemetry/collector.hpp"
#include "common/telemetry/slot/slot_link.hpp"

namespace paceline::agent {

class PodTable {
 public:
  struct Entry {
    Entry(PodName its_pod, const telemetry::Identity& who, const Clock& clock,
          const telemetry::CollectorLimits& limits, const TokenBucket& quota)
        : pod(std::move(its_pod)), identity(who), collector(who, clock, limits), records(quota) {}

    PodName pod;
    telemetry::Identity identity;
    telemetry::Collector collector;
    TokenBucket records;
    std::size_t ranks = 0;  // how many ranks it may have
    int first_rank = 0;
    int processes = 0;
    std::vector<PodDevice> devices;        // as the kubelet assigned them
    std::vector<std::optional<int>> gpus;  // the GPU of each device; once known it stays
    // by check and subject, as the pod reported them
    std::map<std::pair<std::string, std::string>, Finding> findings;
    bool live = true;
    SteadyTime ended{};
  };

  PodTable(std::string node, const Clock& clock, CollectLimits limits);

  /// Adds a pod whose identity is proved. A pod that ended recently continues its totals. Returns
  /// null if the pod is already here.
  Entry* take(const SlotOwner& owner, const std::string& job, const std::string& role);
  void begin_attempt(Entry& entry, const telemetry::SlotFrame& begin);
  Result<std::uint64_t> add(Entry& entry, const telemetry::SlotFrame& frame, int ring);
  /// Reads a ring of an earlier attempt at once.
  Status add_past(Entry& entry, const telemetry::SlotFrame& frame, int ring);
  void remove(Entry& entry, std::uint64_t key);
  /// Reads all rings to their end and returns the progress of each.
  std::vector<telemetry::Progress> end(Entry& entry);

  /// The node's GPUs, for the label `gpu`.
  void know(std::vector<Gpu> gpus);

  /// Reads all rings within each pod's quota, and drops pods whose time is over.
  void poll();

  std::size_t live() const;
  /// the newest first
  std::vector<const Entry*> entries() const;
  /// Each rank of a job once; if one pod replaced another, the newer pod's.
  std::vector<telemetry::RankView> views() const;

 private:
  std::uint64_t may_read(Entry& entry);
  void place(Entry& entry) const;
  void forget();

  const std::string node_;
  const Clock& clock_;
  const CollectLimits limits_;
  std::list<Entry> entries_;  // the newest first
  std::vector<Gpu> gpus_;
};

}  // namespace paceline::agent
