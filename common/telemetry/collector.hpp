// SPDX-License-Identifier: Apache-2.0
// Collector: all rings of one replica's ranks, read into totals, windows and metrics. It lives in
// the launcher, or in the agent where the agent serves the pod.
//
// Ownership: owns the rings and the statistics; bounded by CollectorLimits. Thread-safe.
// Failure: an offer that cannot be used is refused with an Error; everything after that is counted
// as dropped records.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

#include "common/base/clock.hpp"
#include "common/base/error.hpp"
#include "common/base/unique_fd.hpp"
#include "common/telemetry/metrics/rank_metrics.hpp"
#include "common/telemetry/ring/amendment_merger.hpp"
#include "common/telemetry/ring/ring_reader.hpp"
#include "common/telemetry/stats/rank_stats.hpp"

namespace paceline::telemetry {

inline constexpr std::uint64_t kAll = std::numeric_limits<std::uint64_t>::max();

struct CollectorLimits {
  std::size_t ranks = 128;
  std::size_t rings = 1024;
  std::size_t rings_of_rank = 8;
  std::size_t window = RankStats::kWindow;  // steps that `summaries` looks back on
  std::size_t waiting = 128 * 64;           // steps that wait for amendments
};

/// How far a ring was read.
struct Progress {
  std::uint64_t key = 0;
  std::uint64_t counted = 0;  // records before this one are in the totals, or counted as dropped
  std::uint64_t read = 0;     // those up to here wait for what amends them
};

class Collector {
 public:
  Collector(Identity identity, const Clock& clock, CollectorLimits limits = {});

  /// From now on the ranks [first_rank, first_rank + processes) of this attempt are expected; rings
  /// of earlier attempts are read out and dropped.
  void begin_attempt(std::uint32_t attempt, int node_rank, int first_rank, int processes);
  /// Takes the ring of an offer, from record number `start` on; the key names it for `remove`. The
  /// same memfd offered again keeps its reader. Somebody else has counted what is before `start`,
  /// and looked at what is before `known`.
  Result<std::uint64_t> add(const paceline_ring_offer& offer, int fd, std::uint64_t start = 0,
                            std::uint64_t known = 0);
  /// Reads out a ring of an earlier attempt, likewise, at most `most` records. Returns how many.
  Result<std::uint64_t> add_past(const paceline_ring_offer& offer, int fd, std::uint64_t start,
                                 std::uint64_t known, std::uint64_t most = kAll);
  /// Records that were lost before they came here. False where the rank has no series.
  bool add_lost(int rank, std::uint64_t records);
  /// Somebody else serves this rank until the next attempt: forgets it.
  void leave(int rank);
  /// The rank behind this ring is gone: reads it out, at most `most` records, and forgets it.
  /// Returns how many.
  std::uint64_t remove(std::uint64_t key, std::uint64_t most = kAll);
  /// Reads what all rings have published since the last call, in all at most `most` records, and
  /// returns how many; the rest is counted as dropped.
  std::uint64_t poll(std::uint64_t most = kAll);
  /// The end of all rings, likewise; `at` says how far each was read.
  std::uint64_t end(std::uint64_t most = kAll, std::vector<Progress>* at = nullptr);
  std::vector<Progress> progress() const;

  /// Ranks that have series of their own; `limit_ranks` refuses more of them from now on.
  std::size_t ranks() const;
  void limit_ranks(std::size_t most);
  std::vector<RankView> views() const;

  std::vector<RankSummary> summaries() const;
  /// Of these ranks alone, where they are given.
  void export_metrics(MetricsSink& sink, const std::optional<std::set<int>>& only = {}) const;
  std::uint64_t refused() const;

 private:
  struct Ring {
    std::uint64_t key;
    int rank;
    std::uint32_t attempt;
    RingReader reader;
    AmendmentMerger merger;
    std::uint64_t known = 0;  // records up to this number were looked at before us
    std::uint64_t excused = 0;
    std::uint64_t dropped = 0;
  };

  std::uint64_t read(Ring& ring, bool last, std::uint64_t most = kAll);
  Status welcome(const paceline_ring_offer& offer) const;
  RankView view_of(int rank, std::optional<RankTotals> totals) const;

  const Identity identity_;
  const Clock& clock_;
  CollectorLimits limits_;
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
  // ranks that somebody else serves in this attempt; none without a series to be left out
  std::set<int> left_;
};

}  // namespace paceline::telemetry
