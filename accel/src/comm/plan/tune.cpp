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
    // from here on the bytes cost more than fewer steps save, on any link
    << 10;
constexpr std::uint64_t kLeastStriped = 256UL << 10;
constexpr int kRounds = 7;
// A change from the next smaller size's way must gain at least this much; less is noise.
constexpr double kGain = 0.97;

// Use the lower quartile: other programs only add time, so it is nearer to the true time than the
// median.
double quartile(std::vector<double> values) {
  const std::size_t place = values.size() / 4;
  std::ranges::nth_element(values, values.begin() + static_cast<std::ptrdiff_t>(place));
  return values[place];
}

// All chunks that hold the whole array behave alike. The largest represents them, because the
// result may also apply to larger arrays.
bool goes_as_another(const Way& way, const std::vector<Way>& ways, std::uint64_t bytes) {
  return way.algorithm == Algorithm::kHierarchical && way.chunk >= bytes &&
         std::ranges::any_of(ways, [&](const Way& other) {
           return other.algorithm == way.algorithm && other.chunk > way.chunk;
         });
}

// The typical time of each way, measured in turn. A way that is not tried has an infinite time.
// nullopt if a trial failed.
std::optional<std::vector<double>> times_of(const std::vector<Way>& ways, std::uint64_t bytes,
                                            const Trial& trial, double& spent) {
  std::vector<std::vector<double>> seconds(ways.size());
  for (int round = -1; round < kRounds; ++round) {  // the first round warms up
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

// The index of the quickest way. It stays at `so_far` if the quickest gains no more than noise.
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
    // A smaller array has at most one stripe in each step, so the number of flows does not matter.
    if (!flows.empty() && !is_latency_bound(way.algorithm) && bytes >= kLeastStriped) {
      std::vector<Way> striped(flows.size() + 1, way);
      for (std::size_t i = 0; i < flows.size(); ++i) striped[i + 1].flows = flows[i];
      const auto so_far = std::ranges::find(striped, best_flows, &Way::flows) - striped.begin();
      const auto each = times_of(striped, bytes, trial, here);
      if (!each) return std::nullopt;
      way = striped[quickest_of(*each, static_cast<std::size_t>(so_far))];
      best_flows = way.flows;
    }
    // The choice starts at the geometric middle between the two sizes.
    if (choices.empty() || way != choices.back().way)
      choices.push_back({choices.empty() ? 0 : bytes / 2, way});
    spent += here;
    if (spent + kStep * here <= std::chrono::duration<double>(budget).count()) continue;
    // A way for small arrays must not apply to large ones that there was no time to try.
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
