// SPDX-License-Identifier: Apache-2.0
#include "common/telemetry/collector.hpp"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

namespace paceline::telemetry {
namespace {

constexpr std::size_t kRingsPerRank = 8;
constexpr std::size_t kMostRanks = 128;
constexpr std::uint64_t kAmendingSources =
    PACELINE_CAPABILITY_DEVICE_EVENTS | PACELINE_CAPABILITY_NCCL_PROFILER | PACELINE_CAPABILITY_CUPTI;

}  // namespace

Collector::Collector(Identity identity, const Clock& clock) : identity_(std::move(identity)), clock_(clock) {}

void Collector::begin_attempt(std::uint32_t attempt, int node_rank, int first_rank, int processes) {
  const std::lock_guard lock(mutex_);
  for (Ring& ring : rings_) read(ring, true);
  rings_.clear();
  attempt_ = attempt;
  node_rank_ = node_rank;
  // Rank numbers belong to the replica for the life of the job unless the gang was changed; then old series would lie.
  if (first_rank != first_rank_ || processes != processes_) ranks_.clear();
  first_rank_ = first_rank;
  processes_ = processes;
  seen_.clear();
  for (auto& [rank, stats] : ranks_) stats.begin_attempt();
}

Result<std::uint64_t> Collector::add(const paceline_ring_offer& offer, int fd) {
  const std::lock_guard lock(mutex_);
  const auto refuse = [&](std::string why) {
    ++refused_;
    return fail(Code::kInvalid, Origin::kProtocol,
                "ring of rank " + std::to_string(offer.world_rank) + " refused: " + std::move(why));
  };
  if (offer.world_rank < first_rank_ || offer.world_rank >= first_rank_ + processes_)
    return refuse("that rank does not live here");
  if (offer.attempt != attempt_) return refuse("it belongs to attempt " + std::to_string(offer.attempt));
  std::size_t open = 0;
  for (Ring& ring : rings_) {
    if (ring.reader.view().is_same_file(fd)) {
      ring.key = next_key_++;
      return ring.key;
    }
    if (ring.rank == offer.world_rank) ++open;
  }
  if (open >= kRingsPerRank) return refuse("it has too many rings open");
  if (ranks_.size() >= kMostRanks && !ranks_.contains(offer.world_rank)) return refuse("there are too many ranks here");
  auto view = RingView::map(fd);
  if (!view) return refuse(view.error().message);
  const bool amends = (view->claims().capabilities & kAmendingSources) != 0;
  const std::uint64_t key = next_key_++;
  rings_.push_back({key, offer.world_rank, offer.attempt, RingReader(std::move(*view)), AmendmentMerger(amends)});
  ranks_.try_emplace(offer.world_rank);
  seen_.insert(offer.world_rank);
  return key;
}

void Collector::read(Ring& ring, bool last) {
  RankStats& stats = ranks_[ring.rank];
  const auto take = [&](const paceline_step_record& record) { stats.add(record); };
  const SteadyTime now = clock_.steady();
  ring.reader.poll([&](const paceline_step_record& record) { ring.merger.add(record, now, take); });
  if (last) {
    ring.merger.flush(take);
  } else {
    ring.merger.expire(now, take);
  }
  const std::uint64_t dropped = ring.reader.gaps() + ring.reader.invalid() + ring.merger.late();
  stats.add_dropped(dropped - ring.dropped);
  ring.dropped = dropped;
}

void Collector::remove(std::uint64_t key) {
  const std::lock_guard lock(mutex_);
  const auto ring =
      std::find_if(rings_.begin(), rings_.end(), [&](const Ring& candidate) { return candidate.key == key; });
  if (ring == rings_.end()) return;
  read(*ring, true);
  rings_.erase(ring);
}

void Collector::poll() {
  const std::lock_guard lock(mutex_);
  for (Ring& ring : rings_) read(ring, false);
}

std::vector<RankSummary> Collector::summaries() const {
  const std::lock_guard lock(mutex_);
  std::vector<RankSummary> result;
  result.reserve(ranks_.size());
  for (const auto& [rank, stats] : ranks_) result.push_back(stats.summary(rank, node_rank_));
  return result;
}

RankView Collector::view_of(int rank, const RankTotals* totals) const {
  // A process that replaced itself leaves its old ring behind: the newest one speaks.
  const auto ring =
      std::find_if(rings_.rbegin(), rings_.rend(), [&](const Ring& candidate) { return candidate.rank == rank; });
  if (ring == rings_.rend()) return {rank, totals, std::nullopt, profiler_states_without_ring(seen_.contains(rank))};
  const auto now = static_cast<std::uint64_t>(clock_.steady().time_since_epoch() / std::chrono::nanoseconds(1));
  return {rank, totals, live_state(ring->reader.view(), now), profiler_states(ring->reader.view(), now)};
}

void Collector::export_metrics(MetricsSink& sink) const {
  const std::lock_guard lock(mutex_);
  std::vector<RankView> views;
  views.reserve(ranks_.size());
  for (const auto& [rank, stats] : ranks_) views.push_back(view_of(rank, &stats.totals()));
  // Who has not told anything yet shows as that, where it is known who is to come.
  if (processes_ <= static_cast<int>(kMostRanks)) {
    for (int rank = first_rank_; rank < first_rank_ + processes_; ++rank) {
      if (!ranks_.contains(rank)) views.push_back(view_of(rank, nullptr));
    }
  }
  export_ranks(identity_, views, sink);
}

std::uint64_t Collector::refused() const {
  const std::lock_guard lock(mutex_);
  return refused_;
}

}  // namespace paceline::telemetry
