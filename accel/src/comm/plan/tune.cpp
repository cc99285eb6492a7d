// SPDX-License-Identifier: Apache-2.0
#include "comm/plan/tune.hpp"

#include <algorithm>
#include <limits>

namespace paceline::comm {
namespace {

constexpr std::uint64_t kSmallestTrial = 4096;
constexpr std::uint64_t kStep = 4;
constexpr std::uint64_t kMostSmall =
    256UL
    // where their bytes cost more than their steps save, whatever the links
    << 10;
constexpr std::uint64_t kLeastStriped = 256UL << 10;
constexpr int kRounds = 7;
// Another way than for the next smaller size must be worth it: what is within this is noise.
constexpr double kGain = 0.97;

// Other programs only make it slower: the lower quartile is nearer to what it takes alone than the
// median.
double quartile(std::vector<double> values) {
  const std::size_t place = values.size() / 4;
  std::ranges::nth_element(values, values.begin() + static_cast<std::ptrdiff_t>(place));
  return values[place];
}

// Chunks that hold a whole array go one way: the largest stands for them, since what is found here
// may have to stand for larger arrays as well.
bool goes_as_another(const Way& way, const std::vector<Way>& ways, std::uint64_t bytes) {
  return way.algorithm == Algorithm::kHierarchical && way.chunk >= bytes &&
         std::ranges::any_of(ways, [&](const Way& other) {
           return other.algorithm == way.algorithm && other.chunk > way.chunk;
         });
}

// Of each of `ways`, one after the other in turn, the typical time; ways that are not tried take
// for ever. Nothing where a trial failed.
std::optional<std::vector<double>> times_of(const std::vector<Way>& ways, std::uint64_t bytes,
                                            const Trial& trial, double& spent) {
  std::vector<std::vector<double>> seconds(ways.size());
  for (int round = -1; round < kRounds; ++round) {  // the first warms up
    for (std::size_t i = 0; i < ways.size(); ++i) {
      if ((is_latency_bound(ways[i].algorithm) && bytes > kMostSmall) ||
          goes_as_another(ways[i], ways, bytes))
        continue;
      const auto took = trial(ways[i], bytes);
      if (!took) return std::nullopt;
      spent += *took;
      if (round >= 0) seconds[i].push_back(*took);
    }
  }
  std::vector<double> typical;
  for (const auto& each : seconds)
    typical.push_back(each.empty() ? std::numeric_limits<double>::infinity() : quartile(each));
  return typical;
}

// The place of the quickest, or of the one so far, where that is as quick but for noise.
std::size_t quickest_of(const std::vector<double>& seconds, std::size_t so_far) {
  const auto quickest =
      static_cast<std::size_t>(std::ranges::min_element(seconds) - seconds.begin());
  return seconds[quickest] < kGain * seconds[so_far] ? quickest : so_far;
}

}  // namespace

std::optional<std::vector<Choice>> choose(const std::vector<Way>& candidates,
                                          const std::vector<std::uint32_t>& flows,
                                          std::chrono::milliseconds budget, const Trial& trial) {
  std::vector<Choice> choices;
  double spent = 0;
  std::size_t best = 0;
  std::uint32_t best_flows = 0;
  for (std::uint64_t bytes = kSmallestTrial; bytes <= kLargestTrial; bytes *= kStep) {
    double here = 0;
    const auto typical = times_of(candidates, bytes, trial, here);
    if (!typical) return std::nullopt;
    best = choices.empty()
               ? static_cast<std::size_t>(std::ranges::min_element(*typical) - typical->begin())
               : quickest_of(*typical, best);
    Way way = candidates[best];
    // Smaller arrays have no more than one stripe in each step.
    if (!flows.empty() && !is_latency_bound(way.algorithm) && bytes >= kLeastStriped) {
      std::vector<Way> striped(flows.size() + 1, way);
      for (std::size_t i = 0; i < flows.size(); ++i) striped[i + 1].flows = flows[i];
      const auto so_far = std::ranges::find(striped, best_flows, &Way::flows) - striped.begin();
      const auto each = times_of(striped, bytes, trial, here);
      if (!each) return std::nullopt;
      way = striped[quickest_of(*each, static_cast<std::size_t>(so_far))];
      best_flows = way.flows;
    }
    // From the middle between the two sizes on, as sizes are multiplied.
    if (choices.empty() || way != choices.back().way)
      choices.push_back({choices.empty() ? 0 : bytes / 2, way});
    spent += here;
    if (spent + kStep * here <= std::chrono::duration<double>(budget).count()) continue;
    // What is good for small arrays does not stand for large ones that there was no time to try.
    std::size_t large = candidates.size();
    for (std::size_t i = 0; i < candidates.size(); ++i)
      if (!is_latency_bound(candidates[i].algorithm) &&
          (large == candidates.size() || (*typical)[i] < (*typical)[large]))
        large = i;
    if (is_latency_bound(candidates[best].algorithm) && large < candidates.size())
      choices.push_back({2 * bytes, candidates[large]});
    break;
  }
  return choices;
}

}  // namespace paceline::comm
