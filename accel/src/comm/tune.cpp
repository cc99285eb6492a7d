// SPDX-License-Identifier: Apache-2.0
#include "tune.hpp"

#include <algorithm>
#include <limits>

namespace paceline::comm {
namespace {

constexpr std::uint64_t kSmallestTrial = 4096;
constexpr std::uint64_t kStep = 4;
constexpr std::uint64_t kMostSmall = 256UL
                                     << 10;  // where their bytes cost more than their steps save, whatever the links
constexpr int kRounds = 7;
// Another way than for the next smaller size must be worth it: what is within this is noise.
constexpr double kGain = 0.97;

// Other programs only make it slower: the lower quartile is nearer to what it takes alone than the median.
double quartile(std::vector<double> values) {
  const std::size_t place = values.size() / 4;
  std::ranges::nth_element(values, values.begin() + static_cast<std::ptrdiff_t>(place));
  return values[place];
}

}  // namespace

std::optional<std::vector<Choice>> choose(const std::vector<Way>& candidates, std::chrono::milliseconds budget,
                                          const Trial& trial) {
  std::vector<Choice> choices;
  double spent = 0;
  std::size_t best = 0;
  for (std::uint64_t bytes = kSmallestTrial; bytes <= kLargestTrial; bytes *= kStep) {
    std::vector<std::vector<double>> seconds(candidates.size());
    double here = 0;
    for (int round = -1; round < kRounds; ++round) {  // the first warms up
      for (std::size_t i = 0; i < candidates.size(); ++i) {
        if (is_small(candidates[i].algorithm) && bytes > kMostSmall) continue;
        const auto took = trial(candidates[i], bytes);
        if (!took) return std::nullopt;
        here += *took;
        if (round >= 0) seconds[i].push_back(*took);
      }
    }
    std::vector<double> typical;
    for (const auto& each : seconds)
      typical.push_back(each.empty() ? std::numeric_limits<double>::infinity() : quartile(each));
    const auto quickest = static_cast<std::size_t>(std::ranges::min_element(typical) - typical.begin());
    if (choices.empty() || typical[quickest] < kGain * typical[best]) {
      // From the middle between the two sizes on, as sizes are multiplied.
      if (choices.empty() || quickest != best)
        choices.push_back({choices.empty() ? 0 : bytes / 2, candidates[quickest]});
      best = quickest;
    }
    spent += here;
    if (spent + kStep * here <= std::chrono::duration<double>(budget).count()) continue;
    // What is good for small arrays does not stand for large ones that there was no time to try.
    std::size_t large = candidates.size();
    for (std::size_t i = 0; i < candidates.size(); ++i)
      if (!is_small(candidates[i].algorithm) && (large == candidates.size() || typical[i] < typical[large])) large = i;
    if (is_small(candidates[best].algorithm) && large < candidates.size())
      choices.push_back({2 * bytes, candidates[large]});
    break;
  }
  return choices;
}

}  // namespace paceline::comm
