// SPDX-License-Identifier: Apache-2.0
// Collector: reads all rings of one replica's ranks into totals, windows and metrics. It runs in
// the launcher, or in the agent if the agent serves the pod.
//
// Ownership: owns the rings and the statistics, bounded by CollectorLimits. Thread-safe.
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
  std::size_t window = RankStats::kWindow;  // steps in the window of `summaries`
  std::size_t waiting = 128 * 64;           // steps waiting for amendments
};

/// How far a ring has been read.
struct Progress {
  std::uint64_t key = 0;
  std::uint64_t counted = 0;  // records before this one are in the totals or counted as dropped
  std::uint64_t read = 0;     // records from `counted` up to this one wait for amendments
};

/// What a rank does and has done, for a person who asks.
struct RecentSteps {
  int rank = -1;
  std::uint32_t attempt = 0;
  std::optional<paceline_live_state> live;  // nullopt: it has no ring, or no more
  std::vector<paceline_step_record> steps;  // oldest first, with their amendments
};

class Collector {
 public:
  Collector(Identity identity, const Clock& clock, CollectorLimits limits = {});

  /// Expects the ranks [first_rank, first_rank + processes) of this attempt from now on. Rings of
  /// earlier attempts are read to their end and dropped.
  void begin_attempt(std::uint32_t attempt, int node_rank, int first_rank, int processes);
  /// Takes the ring of an offer, from record number `start` on. Returns its key, for `remove`. If
  /// the same memfd is offered again, its reader is kept. Another reader has counted the records
  /// before `start` and has seen those before `known`. An offer that cannot be used is refused with
  /// an Error; later problems count as dropped records.
  Result<std::uint64_t> add(const paceline_ring_offer& offer, int fd, std::uint64_t start = 0,
                            std::uint64_t known = 0);
  /// Reads a ring of an earlier attempt to its end, at most `most` records. Returns how many it
  /// read.
  Result<std::uint64_t> add_past(const paceline_ring_offer& offer, int fd, std::uint64_t start,
                                 std::uint64_t known, std::uint64_t most = kAll);
  /// Counts records that were lost before they arrived here. False if the rank has no series.
  bool add_lost(int rank, std::uint64_t records);
  /// Another program serves this rank until the next attempt: forget it.
  void leave(int rank);
  /// The rank of this ring has ended: reads the ring to its end, at most `most` records, and
  /// forgets it. Returns how many it read.
  std::uint64_t remove(std::uint64_t key, std::uint64_t most = kAll);
  /// Reads the records that all rings published since the last call, at most `most` in all; the
  /// rest counts as dropped. Returns how many it read.
  std::uint64_t poll(std::uint64_t most = kAll);
  /// Ends all rings in the same way. `at` receives how far each was read.
  std::uint64_t end(std::uint64_t most = kAll, std::vector<Progress>* at = nullptr);
  std::vector<Progress> progress() const;

  /// The number of ranks that have a series. After `limit_ranks` further ranks above `most` are
  /// refused.
  std::size_t ranks() const;
  void limit_ranks(std::size_t most);
  std::vector<RankView> views() const;

  std::vector<RankSummary> summaries() const;
  /// The process of each rank that has a ring, as the rank claims: compare it before use.
  std::map<int, std::uint32_t> processes() const;
  /// At most `most` steps of each rank, also of those that have no ring yet. Of a rank that has
  /// ended, the last ones, until it starts again.
  std::vector<RecentSteps> recent(std::size_t most) const;
  /// Only of the ranks in `only`, if it is given.
  void export_metrics(MetricsSink& sink, const std::optional<std::set<int>>& only = {}) const;
  std::uint64_t refused() const;

 private:
  struct Ring {
    std::uint64_t key;
    int rank;
    std::uint32_t attempt;
    RingReader reader;
    AmendmentMerger merger;
    std::uint64_t known = 0;  // another reader has seen the records before this one
    std::uint64_t excused = 0;
    std::uint64_t dropped = 0;
  };

  static void note_sources(Ring& ring, RankStats& stats);
  std::uint64_t read(Ring& ring, bool last, std::uint64_t most = kAll);
  Status welcome(const paceline_ring_offer& offer) const;
  const Ring* newest_ring(int rank) const;
  std::uint64_t now_ns() const;
  RankStats& stats_of(int rank);
  RankView view_of(int rank, std::optional<RankTotals> totals) const;

  const Identity identity_;
  const Clock& clock_;
  CollectorLimits limits_;
  mutable std::mutex mutex_;
  std::uint32_t attempt_ = 0;
  SteadyTime attempt_began_{};
  int node_rank_ = 0;
  int first_rank_ = 0;
  int processes_ = 0;
  std::uint64_t next_key_ = 1;
  std::uint64_t refused_ = 0;
  std::vector<Ring> rings_;
  std::map<int, RankStats> ranks_;
  std::map<int, std::vector<paceline_step_record>>
      ended_;           // the last steps of ranks without a ring
  std::set<int> seen_;  // ranks that had a ring in this attempt
  // ranks that another program serves in this attempt; ranks without a series are not in it
  std::set<int> left_;
};

}  // namespace paceline::telemetry
