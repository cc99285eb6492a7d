// SPDX-License-Identifier: Apache-2.0
// Collector: all rings of one replica's ranks, read into totals, windows and metrics. It lives in the launcher, or in the agent where the agent
// serves the pod.
//
// Ownership: owns the mapped rings and the statistics; bounded: at most `processes` ranks and kRingsPerRank open rings of each. Thread-safe.
// Failure: an offer that cannot be used is refused with an Error; everything after that is counted as dropped records.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "common/base/clock.hpp"
#include "common/base/error.hpp"
#include "common/telemetry/amendment_merger.hpp"
#include "common/telemetry/rank_metrics.hpp"
#include "common/telemetry/rank_stats.hpp"
#include "common/telemetry/ring_reader.hpp"
#include "common/telemetry/unique_fd.hpp"

namespace paceline::telemetry {

class Collector {
 public:
  Collector(Identity identity, const Clock& clock);

  /// From now on the ranks [first_rank, first_rank + processes) of this attempt are expected; rings of earlier attempts are read out and dropped.
  void begin_attempt(std::uint32_t attempt, int node_rank, int first_rank, int processes);
  /// Takes the ring of an offer; the key names it for `remove`. The same memfd offered again keeps its reader.
  Result<std::uint64_t> add(const paceline_ring_offer& offer, int fd);
  /// The rank behind this ring is gone: reads it out and unmaps it.
  void remove(std::uint64_t key);
  /// Reads what all rings have published since the last call.
  void poll();

  std::vector<RankSummary> summaries() const;
  void export_metrics(MetricsSink& sink) const;
  std::uint64_t refused() const;

 private:
  struct Ring {
    std::uint64_t key;
    int rank;
    std::uint32_t attempt;
    RingReader reader;
    AmendmentMerger merger;
    std::uint64_t dropped = 0;
  };

  void read(Ring& ring, bool last);
  RankView view_of(int rank, const RankTotals* totals) const;

  const Identity identity_;
  const Clock& clock_;
  mutable std::mutex mutex_;
  std::uint32_t attempt_ = 0;
  int node_rank_ = 0;
  int first_rank_ = 0;
  int processes_ = 0;
  std::uint64_t next_key_ = 1;
  std::uint64_t refused_ = 0;
  std::vector<Ring> rings_;
  std::map<int, RankStats> ranks_;
  std::set<int> seen_;  // ranks that had a ring in this attempt
};

}  // namespace paceline::telemetry
