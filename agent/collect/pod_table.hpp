// SPDX-License-Identifier: Apache-2.0
// The pods of this node whose rings the agent reads, and what their ranks' steps add up to: while
// they run, and five minutes longer.
//
// Ownership: owns a collector for each pod; an Entry lives until its time after `end` is over. Not
// thread-safe. Failure: a ring that cannot be taken is an Error of that pod's own; what exceeds a
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
    std::size_t ranks = 0;  // that it may have
    int first_rank = 0;
    int processes = 0;
    std::vector<PodDevice> devices;        // by the kubelet's word
    std::vector<std::optional<int>> gpus;  // which GPU each of them is on; once known it stays
    // by check and subject: the pod's own word
    std::map<std::pair<std::string, std::string>, Finding> findings;
    bool live = true;
    SteadyTime ended{};
  };

  PodTable(std::string node, const Clock& clock, CollectLimits limits);

  /// A pod whose identity is proved. One that was here within its time goes on counting; null where
  /// it is here already.
  Entry* take(const SlotOwner& owner, const std::string& job, const std::string& role);
  void begin_attempt(Entry& entry, const telemetry::SlotFrame& begin);
  Result<std::uint64_t> add(Entry& entry, const telemetry::SlotFrame& frame, int ring);
  /// A ring of an earlier attempt: read out at once.
  Status add_past(Entry& entry, const telemetry::SlotFrame& frame, int ring);
  void remove(Entry& entry, std::uint64_t key);
  /// Reads everything out and says how far.
  std::vector<telemetry::Progress> end(Entry& entry);

  /// The node's GPUs, for the label of that name.
  void know(std::vector<Gpu> gpus);

  /// Reads all rings, each pod within its quota, and forgets pods whose time is over.
  void poll();

  std::size_t live() const;
  /// Those within their time, the newest first.
  std::vector<const Entry*> entries() const;
  /// Each rank of a job once: where a pod has followed another, the newer one's.
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
