// SPDX-License-Identifier: Apache-2.0
#include "loader/order/batches.hpp"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <optional>
#include <queue>
#include <utility>

#include "loader/order/random.hpp"

namespace paceline::loader {
namespace {

using Samples = std::span<const std::uint64_t>;

// Streams of random numbers. order.cpp uses the numbers of windows as streams, so these lie far
// above.
constexpr std::uint64_t kStepsStream = std::uint64_t{1} << 62;
constexpr std::uint64_t kRanksStream = std::uint64_t{1} << 63;

// The samples of one pool, sorted with the longest first.
class Pool {
 public:
  Pool(const Batching& batching, Samples lengths, Samples samples)
      : batching_(batching), lengths_(lengths), samples_(samples.size()) {
    // Samples of equal length keep their order in the sequence, so chance decides which share a
    // batch.
    std::vector<std::size_t> places(samples.size());
    std::iota(places.begin(), places.end(), std::size_t{0});
    const auto key = [&](std::size_t place) { return std::pair(~lengths_[samples[place]], place); };
    std::ranges::sort(places, {}, key);
    std::ranges::transform(places, samples_.begin(),
                           [&](std::size_t place) { return samples[place]; });
  }

  // Returns how many batches a budget needs, if the sorted samples are cut in order and each batch
  // is as full as the budget allows.
  [[nodiscard]] std::size_t needed(std::uint64_t budget) const {
    std::size_t batches = 0;
    for (std::size_t begin = 0; begin < samples_.size(); begin = end_of(begin, budget)) ++batches;
    return batches;
  }

  // Cuts the sorted samples into `count` batches of about the same cost. `count` is at least
  // needed(max_tokens), and at most the number of samples.
  [[nodiscard]] std::vector<Samples> cut(std::size_t count) const {
    std::uint64_t low = 1;
    std::uint64_t high = batching_.max_tokens;
    if (!samples_.empty()) low = lengths_[samples_.front()];
    while (low < high) {
      const std::uint64_t middle = low + (high - low) / 2;
      if (needed(middle) <= count) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    std::vector<Samples> batches;
    for (std::size_t begin = 0; begin < samples_.size();) {
      const std::size_t end = end_of(begin, high);
      batches.push_back(Samples(samples_).subspan(begin, end - begin));
      begin = end;
    }
    divide_dearest(batches, count);
    return batches;
  }

  // Returns the cost of a batch. The batch need not be sorted.
  [[nodiscard]] std::uint64_t cost(Samples batch) const {
    std::uint64_t sum = 0;
    std::uint64_t longest = 0;
    for (const std::uint64_t sample : batch) {
      sum += lengths_[sample];
      longest = std::max(longest, lengths_[sample]);
    }
    return batching_.padded ? longest * batch.size() : sum;
  }

 private:
  [[nodiscard]] std::size_t end_of(std::size_t begin, std::uint64_t budget) const {
    const std::size_t most =
        begin + std::min<std::uint64_t>(batching_.max_samples, samples_.size() - begin);
    const std::uint64_t longest = lengths_[samples_[begin]];
    if (batching_.padded)
      return std::min<std::size_t>(most, begin + std::max<std::uint64_t>(budget / longest, 1));
    std::size_t end = begin + 1;
    for (std::uint64_t sum = longest; end < most; ++end) {
      sum += lengths_[samples_[end]];
      if (sum > budget) break;
    }
    return end;
  }

  void divide_dearest(std::vector<Samples>& batches, std::size_t count) const {
    using Entry = std::pair<std::uint64_t, std::size_t>;
    std::priority_queue<Entry> dearest;
    const auto push = [&](std::size_t index) {
      if (batches[index].size() > 1) dearest.emplace(cost(batches[index]), index);
    };
    for (std::size_t i = 0; i < batches.size() && batches.size() < count; ++i) push(i);
    while (batches.size() < count && !dearest.empty()) {
      const std::size_t index = dearest.top().second;
      dearest.pop();
      const Samples whole = batches[index];
      batches[index] = whole.first(whole.size() / 2);
      batches.push_back(whole.subspan(whole.size() / 2));
      push(index);
      push(batches.size() - 1);
    }
    std::ranges::sort(batches, {}, [](Samples batch) { return batch.data(); });
  }

  const Batching& batching_;
  Samples lengths_;
  std::vector<std::uint64_t> samples_;
};

using Step = std::vector<std::vector<std::uint64_t>>;  // one batch for each rank

std::uint64_t spread(const Pool& pool, const Step& step) {
  std::uint64_t least = UINT64_MAX;
  std::uint64_t most = 0;
  for (const auto& batch : step) {
    const std::uint64_t cost = pool.cost(batch);
    least = std::min(least, cost);
    most = std::max(most, cost);
  }
  return most - least;
}

// Deals the samples of a step's batches out to the ranks, forwards and backwards in turn.
Step dealt(std::span<const Samples> batches) {
  Step step(batches.size());
  std::size_t number = 0;
  for (const Samples batch : batches)
    for (const std::uint64_t sample : batch) {
      const std::size_t place = number % batches.size();
      const bool back = number / batches.size() % 2 == 1;
      step[back ? batches.size() - 1 - place : place].push_back(sample);
      ++number;
    }
  return step;
}

bool fits(const Batching& batching, const Pool& pool, const Step& step) {
  return std::ranges::all_of(step, [&](const auto& batch) {
    return batch.size() <= batching.max_samples && pool.cost(batch) <= batching.max_tokens;
  });
}

Step step_of(const Batching& batching, const Pool& pool, std::span<const Samples> batches) {
  Step step;
  for (const Samples batch : batches) step.emplace_back(batch.begin(), batch.end());
  Step other = dealt(batches);
  if (fits(batching, pool, other) && spread(pool, other) < spread(pool, step)) return other;
  return step;
}

void append(const Batching& batching, const Pool& pool, std::size_t steps, std::uint64_t number,
            Batches& batches) {
  const std::vector<Samples> cuts = pool.cut(steps * batching.ranks);
  std::vector<std::size_t> order(steps);
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (batching.shuffle)
    permute(std::span(order), Random(batching.seed, batching.epoch, kStepsStream + number));
  for (const std::size_t at : order) {
    Step step =
        step_of(batching, pool, std::span(cuts).subspan(at * batching.ranks, batching.ranks));
    // Without this, the first rank would always get the longest samples.
    permute(std::span(step),
            Random(batching.seed, batching.epoch, kRanksStream + batches.ends.size()));
    for (const auto& batch : step) {
      batches.samples.insert(batches.samples.end(), batch.begin(), batch.end());
      batches.ends.push_back(batches.samples.size());
    }
  }
}

}  // namespace

Batches batches_of(const Batching& batching, Samples lengths, Samples sequence) {
  Batches batches;
  const std::size_t ranks = batching.ranks;
  const std::size_t pools =
      std::max<std::size_t>((sequence.size() + batching.pool / 2) / batching.pool, 1);
  std::size_t begin = 0;
  for (std::size_t number = 0; number < pools; ++number) {
    const bool last = number + 1 == pools;
    const std::size_t end = last ? sequence.size() : sequence.size() / pools * (number + 1);
    std::vector<std::uint64_t> samples(sequence.begin() + static_cast<std::ptrdiff_t>(begin),
                                       sequence.begin() + static_cast<std::ptrdiff_t>(end));
    const auto steps_of = [&](const Pool& pool) {
      return (pool.needed(batching.max_tokens) + ranks - 1) / ranks;
    };
    auto pool = std::make_optional<Pool>(batching, lengths, samples);
    std::size_t steps = steps_of(*pool);
    if (steps * ranks > samples.size()) {  // there are fewer samples than batches
      if (last && !batching.drop_last && !samples.empty()) {
        for (std::size_t i = 0; samples.size() < steps * ranks; ++i)
          samples.push_back(sequence[i % sequence.size()]);
      } else {
        samples.resize(samples.size() / ranks * ranks);  // the next pool takes the rest
      }
      pool.emplace(batching, lengths, samples);
      steps = steps_of(*pool);
    }
    append(batching, *pool, steps, number, batches);
    begin += std::min(samples.size(), end - begin);
  }
  return batches;
}

}  // namespace paceline::loader
