// SPDX-License-Identifier: Apache-2.0
#include "launcher/diagnosis/diagnosis.hpp"

#include <algorithm>
#include <utility>

#include "launcher/diagnosis/advice.hpp"
#include "launcher/diagnosis/lost_processor.hpp"
#include "launcher/diagnosis/stragglers.hpp"

namespace paceline::diagnosis {
namespace {

// Launchers need so long to capture stacks, at most; those of the others are judged without.
constexpr std::chrono::seconds kStackTime{6};
// A window without enough steps grows up to so many times its length, then begins anew.
constexpr int kLongestWindow = 10;
// Longer between two updates: the launcher was paused, and its ranks perhaps with it.
constexpr std::chrono::seconds kPause{3};

double seconds_between(SteadyTime from, SteadyTime to) {
  return std::chrono::duration<double>(to - from).count();
}

/// The last summaries of an attempt stay until its members tell of the next one.
bool is_of(const Facts& facts, const telemetry::RankSummary& summary) {
  return summary.use.attempt == facts.attempt;
}

std::string name_of(const Facts& facts, int node_rank) {
  const auto node = static_cast<std::size_t>(node_rank);
  return node < facts.nodes.size() ? facts.nodes[node] : "";
}

/// What the GPUs do in a slow step says more than the host's launches.
bool wants_window(const Finding& finding, const Facts& facts) {
  return (finding.kind == Kind::kStraggler || finding.kind == Kind::kRegression) &&
         std::ranges::any_of(facts.job.ranks, [](const telemetry::RankSummary& rank) {
           return rank.host_times_of_gpu != 0 || telemetry::sum(rank.device_total) > 0;
         });
}

}  // namespace

News Diagnosis::update(const Facts& facts) {
  News news;
  if (updated_at_ && facts.now - *updated_at_ > kPause) paused_until_ = facts.now;
  updated_at_ = facts.now;
  if (facts.attempt != attempt_ || facts.world_size != world_size_) begin_attempt(facts);
  trial_ = trial_ || facts.trial;
  if (!facts.running) {
    before_.clear();
    judged_at_ = facts.now;
    set_hang(std::nullopt, facts, news);
    return news;
  }
  if (settings_.hang_after.count() > 0) look_for_hang(facts, news);
  look_at_window(facts, news);
  return news;
}

void Diagnosis::begin_attempt(const Facts& facts) {
  if (facts.world_size != world_size_) {
    regression_.forget();
    tracked_.clear();
  }
  attempt_ = facts.attempt;
  world_size_ = facts.world_size;
  before_.clear();
  stacks_asked_.reset();
  asked_again_ = false;
}

std::vector<RankAt> Diagnosis::ranks_at(const Facts& facts) const {
  std::map<int, RankAt> ranks;
  for (const auto& [rank, node] : facts.node_of)
    ranks[rank] = {.rank = rank, .node = name_of(facts, node)};
  for (const telemetry::RankSummary& summary : facts.job.ranks) {
    const auto rank = ranks.find(summary.rank);
    if (rank == ranks.end() || !is_of(facts, summary)) continue;
    rank->second.node = name_of(facts, summary.node_rank);
    rank->second.steps = summary.steps;
    rank->second.p95 = summary.p95;
    rank->second.live = summary.live;
  }
  std::vector<RankAt> all;
  all.reserve(ranks.size());
  for (auto& [rank, at] : ranks) {
    if (stacks_asked_ && facts.stacks.of_rank != nullptr) {
      const auto stack = facts.stacks.of_rank->find(rank);
      if (stack != facts.stacks.of_rank->end()) at.stack = read_stack(stack->second);
    }
    all.push_back(std::move(at));
  }
  return all;
}

void Diagnosis::look_for_hang(const Facts& facts, News& news) {
  const auto ranks = ranks_at(facts);
  auto quiet = quiet_of(ranks, std::chrono::duration<double>(settings_.hang_after).count());
  if (quiet && paused_until_)
    quiet->seconds = std::min(quiet->seconds, seconds_between(*paused_until_, facts.now));
  if (!quiet || !quiet->wants_stacks()) {
    stacks_asked_.reset();
    asked_again_ = false;
    return set_hang(std::nullopt, facts, news);
  }
  // A program that is between its steps may have got on since, without a mark.
  const bool late = quiet->seconds >= kLongPatience * quiet->patience;
  if (!stacks_asked_ || (late && !hang_ && !std::exchange(asked_again_, true))) {
    asked_again_ = late;
    stacks_asked_ = facts.now;
    news.capture_stacks = true;
    return;
  }
  if (!facts.stacks.complete && facts.now - *stacks_asked_ < kStackTime) return;
  set_hang(hang_of(ranks, *quiet, facts.waits_for), facts, news);
}

void Diagnosis::set_hang(std::optional<Finding> finding, const Facts& facts, News& news) {
  if (finding && hang_ && finding->is_about(*hang_)) {
    finding->since = hang_->since;
    const bool now_certain = finding->certain && !hang_->certain;
    hang_ = std::move(finding);
    if (now_certain) news.appeared.push_back(*hang_);
    return;
  }
  if (hang_) news.gone.push_back(*hang_);
  hang_ = std::move(finding);
  if (!hang_) return;
  hang_->since = facts.wall;
  news.appeared.push_back(*hang_);
}

std::optional<Windows> Diagnosis::windows_until(const Facts& facts) const {
  Windows windows;
  if (facts.job.ranks.empty()) return std::nullopt;
  for (const telemetry::RankSummary& after : facts.job.ranks) {
    const auto before = before_.find(after.rank);
    if (before == before_.end() || !is_of(facts, after)) return std::nullopt;
    auto window = between(before->second, after);
    if (!window) return std::nullopt;
    window->node = name_of(facts, after.node_rank);
    windows.push_back(*std::move(window));
  }
  return windows;
}

/// Whether the window has begun with the ranks of today, after their first steps.
bool Diagnosis::goes_on(const Facts& facts) const {
  return !before_.empty() &&
         std::ranges::all_of(facts.job.ranks, [this](const telemetry::RankSummary& rank) {
           const auto before = before_.find(rank.rank);
           return before != before_.end() && before->second.settled.steps > 0 &&
                  before->second.step <= rank.step;
         });
}

void Diagnosis::look_at_window(const Facts& facts, News& news) {
  const double elapsed = seconds_between(before_at_, facts.now);
  const double length = std::chrono::duration<double>(settings_.window).count();
  if (!before_.empty() && elapsed < length) return;
  if (const auto windows = windows_until(facts)) {
    take(found_in(*windows, facts), facts, news);
    judged_at_ = facts.now;
  } else if (seconds_between(judged_at_, facts.now) >= kLongestWindow * length) {
    // Without steps nothing shows what was found before.
    take({}, facts, news);
    judged_at_ = facts.now;
  } else if (elapsed < kLongestWindow * length && goes_on(facts)) {
    return;  // the steps are long: the window grows
  }
  before_.clear();
  for (const telemetry::RankSummary& rank : facts.job.ranks) {
    if (is_of(facts, rank)) before_[rank.rank] = rank;
  }
  before_at_ = facts.now;
  trial_ = facts.trial;
}

Findings Diagnosis::found_in(const Windows& windows, const Facts& facts) {
  Findings found = facts.waits_for == WaitsFor::kRanks ? stragglers(windows) : Findings{};
  const bool waits_for_one = !found.empty();
  if (auto lost = lost_by_all(windows)) found.push_back(*std::move(lost));
  if (!trial_) {
    if (auto slower = regression_.add(windows)) found.push_back(*std::move(slower));
  }
  // Waiting for a straggler is in the time of communication.
  auto bottleneck = bottleneck_of(facts.job, facts.waits_for);
  const bool of_waiting =
      bottleneck && (bottleneck->subject == "communication" || bottleneck->subject == "imbalance");
  if (bottleneck && !(waits_for_one && of_waiting)) found.push_back(*std::move(bottleneck));
  return found;
}

void Diagnosis::take(Findings found, const Facts& facts, News& news) {
  for (Tracked& tracked : tracked_) {
    const auto hit = std::ranges::find_if(
        found, [&](const Finding& each) { return each.is_about(tracked.finding); });
    if (hit == found.end()) {
      ++tracked.misses;
      tracked.hits = 0;
      continue;
    }
    hit->since = tracked.finding.since;
    tracked.finding = std::move(*hit);
    found.erase(hit);
    ++tracked.hits;
    tracked.misses = 0;
  }
  for (Finding& each : found) tracked_.push_back({std::move(each), 1, 0, false});
  for (Tracked& tracked : tracked_) {
    if (tracked.shown && tracked.misses >= kWindows) news.gone.push_back(tracked.finding);
    if (tracked.shown || tracked.hits < kWindows) continue;
    tracked.shown = true;
    tracked.finding.since = facts.wall;
    news.appeared.push_back(tracked.finding);
    news.open_window = news.open_window || wants_window(tracked.finding, facts);
  }
  std::erase_if(tracked_, [](const Tracked& tracked) {
    return tracked.shown ? tracked.misses >= kWindows : tracked.misses > 0;
  });
}

Findings Diagnosis::findings() const {
  Findings all;
  if (hang_) all.push_back(*hang_);
  for (const Tracked& tracked : tracked_) {
    if (tracked.shown) all.push_back(tracked.finding);
  }
  std::ranges::stable_sort(all, {}, &Finding::kind);
  return all;
}

}  // namespace paceline::diagnosis
