// SPDX-License-Identifier: Apache-2.0
#include "common/telemetry/collector.hpp"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "common/telemetry/ring/recent_steps.hpp"

namespace paceline::telemetry {
namespace {

constexpr std::uint64_t kAmendingSources = PACELINE_CAPABILITY_DEVICE_EVENTS |
                                           PACELINE_CAPABILITY_NCCL_PROFILER |
                                           PACELINE_CAPABILITY_CUPTI;

/// The most lost records that one message may report, so that an untrusted peer cannot overflow a
/// counter.
constexpr std::uint64_t kMostLost = 1ULL << 40U;
/// The number of ranks that may be left in one attempt, counting ranks that replaced each other.
constexpr std::size_t kMostLeft = 1024;
/// The number of steps that are kept of a rank that has ended.
constexpr std::size_t kLastSteps = 64;

}  // namespace

Collector::Collector(Identity identity, const Clock& clock, CollectorLimits limits)
    : identity_(std::move(identity)), clock_(clock), limits_(limits) {}

void Collector::begin_attempt(std::uint32_t attempt, int node_rank, int first_rank, int processes) {
  const std::lock_guard lock(mutex_);
  for (Ring& ring : rings_) read(ring, true, kAll);
  rings_.clear();
  attempt_ = attempt;
  attempt_began_ = clock_.steady();
  node_rank_ = node_rank;
  // A replica keeps its rank numbers for the life of the job, unless the gang was changed. After a
  // change the old series would be wrong.
  if (first_rank != first_rank_ || processes != processes_) {
    ranks_.clear();
    ended_.clear();
  }
  first_rank_ = first_rank;
  processes_ = processes;
  seen_.clear();
  left_.clear();
  for (auto& [rank, stats] : ranks_) stats.begin_attempt(attempt_, attempt_began_);
}

RankStats& Collector::stats_of(int rank) {
  const auto [entry, added] = ranks_.try_emplace(rank, limits_.window);
  if (added) entry->second.begin_attempt(attempt_, attempt_began_);
  return entry->second;
}

/// True if this replica may have a ring of this rank.
Status Collector::welcome(const paceline_ring_offer& offer) const {
  const auto refuse = [](const char* why) { return fail(Code::kInvalid, Origin::kProtocol, why); };
  if (offer.world_rank < first_rank_ || offer.world_rank - first_rank_ >= processes_)
    return refuse("that rank does not live here");
  if (left_.contains(offer.world_rank)) return refuse("somebody else serves that rank");
  const bool full = ranks_.size() >= limits_.ranks || left_.size() >= kMostLeft;
  if (full && !ranks_.contains(offer.world_rank)) return refuse("there are too many ranks here");
  return {};
}

Result<std::uint64_t> Collector::add(const paceline_ring_offer& offer, int fd, std::uint64_t start,
                                     std::uint64_t known) {
  const std::lock_guard lock(mutex_);
  const auto refuse = [&](std::string why) {
    ++refused_;
    return fail(Code::kInvalid, Origin::kProtocol,
                "ring of rank " + std::to_string(offer.world_rank) + " refused: " + std::move(why));
  };
  if (auto welcomed = welcome(offer); !welcomed) return refuse(welcomed.error().message);
  if (offer.attempt != attempt_)
    return refuse("it belongs to attempt " + std::to_string(offer.attempt));
  std::size_t open = 0;
  for (Ring& ring : rings_) {
    if (ring.reader.view().is_same_file(fd)) {
      ring.key = next_key_++;
      return ring.key;
    }
    if (ring.rank == offer.world_rank) ++open;
  }
  if (open >= limits_.rings_of_rank) return refuse("it has too many rings open");
  if (rings_.size() >= limits_.rings) return refuse("there are too many rings here");
  auto view = RingView::open(fd);
  if (!view) return refuse(view.error().message);
  const bool amends = (view->sources().capabilities & kAmendingSources) != 0;
  const std::uint64_t key = next_key_++;
  rings_.push_back({key, offer.world_rank, offer.attempt,
                    RingReader(std::move(*view), start, known), AmendmentMerger(amends), known});
  stats_of(offer.world_rank)
      .set_on_gpu(rings_.back().reader.view().sources().device_kind == PACELINE_DEVICE_CUDA);
  seen_.insert(offer.world_rank);
  ended_.erase(offer.world_rank);
  return key;
}

Result<std::uint64_t> Collector::add_past(const paceline_ring_offer& offer, int fd,
                                          std::uint64_t start, std::uint64_t known,
                                          std::uint64_t most) {
  const std::lock_guard lock(mutex_);
  const auto refuse = [&](std::string why) {
    ++refused_;
    return fail(
        Code::kInvalid, Origin::kProtocol,
        "past ring of rank " + std::to_string(offer.world_rank) + " refused: " + std::move(why));
  };
  if (auto welcomed = welcome(offer); !welcomed) return refuse(welcomed.error().message);
  if (offer.attempt >= attempt_)
    return refuse("its attempt " + std::to_string(offer.attempt) + " is not over");
  for (const Ring& ring : rings_) {
    if (ring.reader.view().is_same_file(fd)) return refuse("it is being read");
  }
  auto view = RingView::open(fd);
  if (!view) return refuse(view.error().message);
  const bool amends = (view->sources().capabilities & kAmendingSources) != 0;
  Ring ring{0,
            offer.world_rank,
            offer.attempt,
            RingReader(std::move(*view), start, known),
            AmendmentMerger(amends),
            known};
  stats_of(offer.world_rank);
  return read(ring, true, most);
}

bool Collector::add_lost(int rank, std::uint64_t records) {
  const std::lock_guard lock(mutex_);
  const auto stats = ranks_.find(rank);
  if (stats == ranks_.end()) return false;
  stats->second.add_dropped(std::min(records, kMostLost));
  return true;
}

void Collector::leave(int rank) {
  const std::lock_guard lock(mutex_);
  const bool shown = ranks_.contains(rank) || processes_ <= static_cast<int>(limits_.ranks);
  std::erase_if(rings_, [&](const Ring& ring) { return ring.rank == rank; });
  ranks_.erase(rank);
  ended_.erase(rank);
  if (shown && rank >= first_rank_ && rank - first_rank_ < processes_) left_.insert(rank);
}

void Collector::note_sources(Ring& ring, RankStats& stats) {
  const RingView::Sources sources = ring.reader.view().sources();
  if ((sources.capabilities & kAmendingSources) != 0) ring.merger.expect_amendments();
  stats.set_on_gpu(sources.device_kind == PACELINE_DEVICE_CUDA);
}

std::uint64_t Collector::read(Ring& ring, bool last, std::uint64_t most) {
  RankStats& stats = ranks_.at(ring.rank);
  const auto take = [&](const paceline_step_record& record) { stats.add(record); };
  const SteadyTime now = clock_.steady();
  bool asked = false;
  const std::uint64_t read = ring.reader.poll(
      [&](const paceline_step_record& record) {
        // A source that starts late sets its bit before it publishes an amendment. So it is enough
        // to ask after the records were found, once.
        if (!std::exchange(asked, true)) note_sources(ring, stats);
        const std::uint64_t late = ring.merger.late();
        ring.merger.add(record, now, take);
        // The previous reader counted it as late already.
        if (record.seq <= ring.known) ring.excused += ring.merger.late() - late;
      },
      most);
  if (last) {
    ring.merger.flush(take);
  } else {
    ring.merger.expire(now, take);
  }
  const std::uint64_t dropped =
      ring.reader.gaps() + ring.reader.invalid() + ring.merger.late() - ring.excused;
  stats.add_dropped(dropped - ring.dropped);
  ring.dropped = dropped;
  return read;
}

std::uint64_t Collector::remove(std::uint64_t key, std::uint64_t most) {
  const std::lock_guard lock(mutex_);
  const auto ring = std::find_if(rings_.begin(), rings_.end(),
                                 [&](const Ring& candidate) { return candidate.key == key; });
  if (ring == rings_.end()) return 0;
  const std::uint64_t taken = read(*ring, true, most);
  // Who keeps no window is never asked for steps.
  if (limits_.window > 0) ended_[ring->rank] = recent_steps(ring->reader.view(), kLastSteps);
  rings_.erase(ring);
  return taken;
}

std::uint64_t Collector::poll(std::uint64_t most) {
  const std::lock_guard lock(mutex_);
  std::uint64_t taken = 0;
  std::size_t waiting = 0;
  for (std::size_t i = 0; i < rings_.size(); ++i) {
    // A ring that needs less than its share leaves the rest to the next rings.
    taken += read(rings_[i], waiting >= limits_.waiting, (most - taken) / (rings_.size() - i));
    waiting += rings_[i].merger.waiting();
  }
  return taken;
}

std::uint64_t Collector::end(std::uint64_t most, std::vector<Progress>* at) {
  const std::lock_guard lock(mutex_);
  std::uint64_t taken = 0;
  for (std::size_t i = 0; i < rings_.size(); ++i)
    taken += read(rings_[i], true, (most - taken) / (rings_.size() - i));
  if (at != nullptr) {
    for (const Ring& ring : rings_)
      at->push_back({ring.key, ring.reader.cursor(), ring.reader.cursor()});
  }
  rings_.clear();
  return taken;
}

std::vector<Progress> Collector::progress() const {
  const std::lock_guard lock(mutex_);
  std::vector<Progress> all;
  all.reserve(rings_.size());
  for (const Ring& ring : rings_) {
    const std::uint64_t read = ring.reader.cursor();
    all.push_back({ring.key, ring.merger.oldest().value_or(read), read});
  }
  return all;
}

std::size_t Collector::ranks() const {
  const std::lock_guard lock(mutex_);
  return ranks_.size();
}

void Collector::limit_ranks(std::size_t most) {
  const std::lock_guard lock(mutex_);
  limits_.ranks = most;
}

std::vector<RankSummary> Collector::summaries() const {
  const std::lock_guard lock(mutex_);
  std::vector<RankSummary> result;
  result.reserve(ranks_.size());
  for (const auto& [rank, stats] : ranks_) {
    result.push_back(stats.summary(rank, node_rank_));
    if (const Ring* ring = newest_ring(rank))
      result.back().live = live_state(ring->reader.view(), now_ns());
  }
  return result;
}

std::map<int, std::uint32_t> Collector::processes() const {
  const std::lock_guard lock(mutex_);
  std::map<int, std::uint32_t> result;
  for (const auto& [rank, stats] : ranks_) {
    if (const Ring* ring = newest_ring(rank)) result[rank] = ring->reader.view().claims().pid;
  }
  return result;
}

// A process that replaced itself (exec) leaves its old ring behind. Null if the rank has none.
const Collector::Ring* Collector::newest_ring(int rank) const {
  const auto ring = std::find_if(rings_.rbegin(), rings_.rend(),
                                 [&](const Ring& candidate) { return candidate.rank == rank; });
  return ring == rings_.rend() ? nullptr : &*ring;
}

std::uint64_t Collector::now_ns() const {
  return static_cast<std::uint64_t>(clock_.steady().time_since_epoch() /
                                    std::chrono::nanoseconds(1));
}

std::vector<RecentSteps> Collector::recent(std::size_t most) const {
  const std::lock_guard lock(mutex_);
  std::set<int> ranks;
  for (const Ring& ring : rings_) ranks.insert(ring.rank);
  const bool numbered = processes_ <= static_cast<int>(limits_.ranks);
  for (int rank = first_rank_; numbered && rank < first_rank_ + processes_; ++rank)
    ranks.insert(rank);
  std::vector<RecentSteps> all;
  for (const int rank : ranks) {
    RecentSteps& entry = all.emplace_back(RecentSteps{rank, attempt_, std::nullopt, {}});
    const Ring* ring = newest_ring(rank);
    if (ring == nullptr) {
      const auto ended = ended_.find(rank);
      if (ended == ended_.end()) continue;
      const auto& steps = ended->second;
      entry.steps.assign(steps.end() - static_cast<std::ptrdiff_t>(std::min(most, steps.size())),
                         steps.end());
      continue;
    }
    paceline_live_state live{};
    if (ring->reader.view().live(live)) entry.live = live;
    entry.steps = recent_steps(ring->reader.view(), most);
  }
  return all;
}

RankView Collector::view_of(int rank, std::optional<RankTotals> totals) const {
  const Ring* ring = newest_ring(rank);
  if (ring == nullptr) {
    return {&identity_,
            rank,
            std::move(totals),
            std::nullopt,
            profiler_states_without_ring(seen_.contains(rank)),
            {}};
  }
  const std::uint64_t now = now_ns();
  return {&identity_,
          rank,
          std::move(totals),
          live_state(ring->reader.view(), now),
          profiler_states(ring->reader.view(), now),
          {}};
}

std::vector<RankView> Collector::views() const {
  const std::lock_guard lock(mutex_);
  std::vector<RankView> views;
  views.reserve(ranks_.size());
  for (const auto& [rank, stats] : ranks_) views.push_back(view_of(rank, stats.totals()));
  // Expected ranks without a ring are shown as such.
  if (processes_ <= static_cast<int>(limits_.ranks)) {
    for (int rank = first_rank_; rank < first_rank_ + processes_; ++rank) {
      if (!ranks_.contains(rank) && !left_.contains(rank))
        views.push_back(view_of(rank, std::nullopt));
    }
  }
  return views;
}

void Collector::export_metrics(MetricsSink& sink, const std::optional<std::set<int>>& only) const {
  auto all = views();
  if (only) std::erase_if(all, [&](const RankView& view) { return !only->contains(view.rank); });
  export_ranks(all, sink);
}

std::uint64_t Collector::refused() const {
  const std::lock_guard lock(mutex_);
  return refused_;
}

}  // namespace paceline::telemetry
