// SPDX-License-Identifier: Apache-2.0
#include "agent/collect/pod_table.hpp"

#include <algorithm>
#include <iterator>
#include <set>
#include <tuple>
#include <utility>

#include "agent/probe/hardware/accelerator.hpp"

namespace paceline::agent {
namespace {

/// For a pod that does not say how many ranks it will have.
constexpr int kRanksOfUnknown = 16;
constexpr int kMostTold = 1 << 16;
constexpr std::size_t kMostNamed = 16;

/// The ranks of a pod use its GPUs in order, as their local ranks and CUDA number them. If ranks
/// and GPUs do not divide evenly, no GPU is reported.
std::string gpu_label(const PodTable::Entry& entry, int rank) {
  std::set<int> gpus;
  for (const auto& gpu : entry.gpus) {
    if (!gpu) return {};
    gpus.insert(*gpu);
  }
  const auto name = [](int gpu) { return "GPU" + std::to_string(gpu); };
  if (gpus.size() == 1) return name(*gpus.begin());
  const int place = rank - entry.first_rank;
  if (entry.gpus.size() == gpus.size() && static_cast<int>(gpus.size()) == entry.processes &&
      place >= 0 && place < entry.processes) {
    return name(*std::next(gpus.begin(), place));
  }
  std::string all;
  if (entry.processes != 1 || gpus.size() > kMostNamed) return all;
  for (const int gpu : gpus) all += (all.empty() ? "" : ",") + name(gpu);
  return all;
}

}  // namespace

PodTable::PodTable(std::string node, const Clock& clock, CollectLimits limits)
    : node_(std::move(node)), clock_(clock), limits_(limits) {}

PodTable::Entry* PodTable::take(const SlotOwner& owner, const std::string& job,
                                const std::string& role) {
  const PodName& pod = owner.pod;
  const auto same = std::ranges::find_if(entries_, [&](const Entry& entry) {
    return entry.pod == pod && entry.identity.job == job && entry.identity.role == role;
  });
  if (same != entries_.end() && same->live) return nullptr;
  if (same != entries_.end()) {
    entries_.splice(entries_.begin(), entries_, same);
    same->live = true;
    return &*same;
  }
  const telemetry::Identity identity{pod.name_space, job, role, node_};
  telemetry::CollectorLimits limits;
  limits.ranks = limits_.sure_ranks;
  limits.rings = limits_.rings_of_pod;
  limits.rings_of_rank = limits_.rings_of_rank;
  limits.window = 0;
  limits.waiting = limits_.waiting_of_pod;
  entries_.emplace_front(
      pod, identity, clock_, limits,
      TokenBucket(limits_.records_per_second, limits_.records_per_second, clock_.steady()));
  entries_.front().devices = owner.devices;
  entries_.front().gpus.resize(owner.devices.size());
  place(entries_.front());
  return &entries_.front();
}

void PodTable::begin_attempt(Entry& entry, const telemetry::SlotFrame& begin) {
  entry.records.take(clock_.steady(), static_cast<double>(entry.collector.end(may_read(entry))));
  const int told = begin.processes > kMostTold ? kRanksOfUnknown : begin.processes;
  const std::size_t wanted = std::min(limits_.ranks_of_pod, static_cast<std::size_t>(told));
  std::size_t shared = 0;
  for (const Entry& other : entries_) {
    if (other.live && &other != &entry && other.ranks > limits_.sure_ranks)
      shared += other.ranks - limits_.sure_ranks;
  }
  const std::size_t left = limits_.more_ranks > shared ? limits_.more_ranks - shared : 0;
  entry.ranks = std::min(std::max(wanted, limits_.sure_ranks), limits_.sure_ranks + left);
  entry.first_rank = begin.first_rank;
  entry.processes = begin.processes;
  entry.collector.limit_ranks(entry.ranks);
  entry.collector.begin_attempt(begin.attempt, begin.node_rank, begin.first_rank, begin.processes);
}

Result<std::uint64_t> PodTable::add(Entry& entry, const telemetry::SlotFrame& frame, int ring) {
  return entry.collector.add(frame.offer, ring, frame.start, frame.read);
}

Status PodTable::add_past(Entry& entry, const telemetry::SlotFrame& frame, int ring) {
  const auto taken =
      entry.collector.add_past(frame.offer, ring, frame.start, frame.read, may_read(entry));
  if (!taken) return std::unexpected(taken.error());
  entry.records.take(clock_.steady(), static_cast<double>(*taken));
  return {};
}

void PodTable::remove(Entry& entry, std::uint64_t key) {
  entry.records.take(clock_.steady(),
                     static_cast<double>(entry.collector.remove(key, may_read(entry))));
}

std::vector<telemetry::Progress> PodTable::end(Entry& entry) {
  std::vector<telemetry::Progress> at;
  entry.records.take(clock_.steady(),
                     static_cast<double>(entry.collector.end(may_read(entry), &at)));
  entry.live = false;
  entry.ended = clock_.steady();
  forget();
  return at;
}

void PodTable::know(std::vector<Gpu> gpus) {
  gpus_ = std::move(gpus);
  for (Entry& entry : entries_) place(entry);
}

/// A GPU that fell off the bus keeps its name, so that its ranks' series stay the same.
void PodTable::place(Entry& entry) const {
  for (std::size_t i = 0; i < entry.devices.size(); ++i) {
    if (entry.gpus[i]) continue;
    const Gpu* gpu = gpu_of_device(entry.devices[i].resource, entry.devices[i].id, gpus_);
    if (gpu != nullptr) entry.gpus[i] = gpu->index;
  }
}

std::uint64_t PodTable::may_read(Entry& entry) {
  const SteadyTime now = clock_.steady();
  const double share = limits_.full_quotas / static_cast<double>(std::max<std::size_t>(1, live()));
  entry.records.allow(limits_.records_per_second * std::min(1.0, share), now);
  return static_cast<std::uint64_t>(std::max(0.0, entry.records.level(now)));
}

void PodTable::poll() {
  for (Entry& entry : entries_) {
    if (entry.live)
      entry.records.take(clock_.steady(),
                         static_cast<double>(entry.collector.poll(may_read(entry))));
  }
  forget();
}

void PodTable::forget() {
  const SteadyTime now = clock_.steady();
  std::erase_if(entries_, [&](const Entry& entry) {
    return !entry.live && now - entry.ended >= limits_.keep_ended;
  });
  std::size_t ranks = 0;
  for (const Entry& entry : entries_)
    ranks += entry.live ? 0 : std::max<std::size_t>(1, entry.ranks);
  while (ranks > limits_.ended_ranks) {
    auto oldest = entries_.end();
    for (auto at = entries_.begin(); at != entries_.end(); ++at) {
      if (!at->live && (oldest == entries_.end() || at->ended <= oldest->ended)) oldest = at;
    }
    ranks -= std::max<std::size_t>(1, oldest->ranks);
    entries_.erase(oldest);
  }
}

std::vector<const PodTable::Entry*> PodTable::entries() const {
  std::vector<const Entry*> all;
  for (const Entry& entry : entries_) all.push_back(&entry);
  return all;
}

std::size_t PodTable::live() const {
  return static_cast<std::size_t>(
      std::ranges::count_if(entries_, [](const Entry& entry) { return entry.live; }));
}

std::vector<telemetry::RankView> PodTable::views() const {
  std::vector<telemetry::RankView> all;
  std::set<std::tuple<std::string, std::string, std::string, int>> seen;
  for (const Entry& entry : entries_) {
    for (auto& view : entry.collector.views()) {
      view.gpu = gpu_label(entry, view.rank);
      if (seen.emplace(entry.identity.job_namespace, entry.identity.job, entry.identity.role,
                       view.rank)
              .second)
        all.push_back(std::move(view));
    }
  }
  return all;
}

}  // namespace paceline::agent
