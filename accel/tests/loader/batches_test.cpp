// SPDX-License-Identifier: Apache-2.0
// Batches of equal cost: what is in them for every number of ranks, how equal they are beside
// batches of random samples, and that they stay what they are from release to release.
#include "loader/order/batches.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "check.hpp"
#include "loader/order/random.hpp"
#include "paceline/batches.h"

using paceline::loader::Batches;
using paceline::loader::Batching;
using paceline::loader::Random;

namespace {

using Numbers = std::vector<std::uint64_t>;

// Of sentences: most are short, a few are long.
Numbers lengths_like_texts(std::size_t count, std::uint64_t longest) {
  Random random(3, 0, 0);
  Numbers lengths(count);
  for (auto& length : lengths) {
    const double u = random.fraction();
    length = 1 + static_cast<std::uint64_t>(static_cast<double>(longest - 1) * u * u * u);
  }
  return lengths;
}

Numbers sequence_of(std::size_t count) {
  Numbers sequence(count);
  std::iota(sequence.begin(), sequence.end(), std::uint64_t{0});
  paceline::loader::permute(std::span(sequence), Random(9, 9, 9));
  return sequence;
}

std::vector<Numbers> divided(const Batches& batches) {
  std::vector<Numbers> found;
  std::uint64_t begin = 0;
  for (const std::uint64_t end : batches.ends) {
    CHECK(end > begin && end <= batches.samples.size());
    found.emplace_back(batches.samples.begin() + static_cast<std::ptrdiff_t>(begin),
                       batches.samples.begin() + static_cast<std::ptrdiff_t>(end));
    begin = end;
  }
  CHECK_EQ(begin, batches.samples.size());
  return found;
}

std::uint64_t cost_of(const Numbers& batch, const Numbers& lengths, bool padded) {
  std::uint64_t sum = 0;
  std::uint64_t longest = 0;
  for (const std::uint64_t sample : batch) {
    sum += lengths[sample];
    longest = std::max(longest, lengths[sample]);
  }
  return padded ? longest * batch.size() : sum;
}

// A step ends with its dearest batch.
struct Time {
  double taken = 0;  // by all ranks
  // of it: for the dearest batch. Balance is waited / taken, 0 where all cost the same
  double waited = 0;
};

Time time_of(const std::vector<Numbers>& batches, const Numbers& lengths, std::size_t ranks,
             bool padded) {
  Time time;
  for (std::size_t step = 0; step + ranks <= batches.size(); step += ranks) {
    std::uint64_t dearest = 0;
    std::uint64_t sum = 0;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const std::uint64_t cost = cost_of(batches[step + rank], lengths, padded);
      dearest = std::max(dearest, cost);
      sum += cost;
    }
    time.taken += static_cast<double>(dearest * ranks);
    time.waited += static_cast<double>(dearest * ranks - sum);
  }
  return time;
}

void judge(const Batching& batching, const Numbers& lengths, const Numbers& sequence) {
  const auto batches = divided(batches_of(batching, lengths, sequence));
  CHECK_EQ(batches.size() % batching.ranks, 0UL);
  std::map<std::uint64_t, std::uint64_t> seen;
  for (const auto& batch : batches) {
    CHECK(batch.size() <= batching.max_samples);
    CHECK(cost_of(batch, lengths, batching.padded) <= batching.max_tokens);
    for (const std::uint64_t sample : batch) ++seen[sample];
  }
  std::uint64_t twice = 0;
  for (const auto& [sample, times] : seen) twice += times - 1;
  const std::uint64_t wanting =
      sequence.size() - std::min<std::uint64_t>(seen.size(), sequence.size());
  CHECK(batching.drop_last ? twice == 0 && wanting < batching.ranks
                           : wanting == 0 && twice < batching.ranks);
  for (const std::uint64_t sample : sequence) CHECK(batching.drop_last || seen.contains(sample));
}

}  // namespace

CASE(batches_hold_every_sample_once_within_their_budget) {
  const Numbers lengths = lengths_like_texts(700, 97);
  for (const std::size_t count : {0UL, 1UL, 2UL, 5UL, 64UL, 333UL, 700UL})
    for (const std::uint32_t ranks : {1U, 2U, 3U, 8U, 64U})
      for (const std::uint64_t budget : {97UL, 100UL, 260UL, 5000UL})
        for (const std::uint64_t most : {std::uint64_t{1}, std::uint64_t{7}, UINT64_MAX})
          for (const std::uint64_t pool : {1UL, 50UL, 10'000UL})
            for (const bool padded : {false, true})
              for (const bool drop : {false, true})
                judge({.seed = 1,
                       .epoch = 2,
                       .max_tokens = budget,
                       .max_samples = most,
                       .pool = pool,
                       .ranks = ranks,
                       .padded = padded,
                       .shuffle = true,
                       .drop_last = drop},
                      lengths, sequence_of(count));
}

CASE(batches_of_a_step_cost_the_same_where_random_ones_do_not) {
  const Numbers lengths = lengths_like_texts(60'000, 2048);
  const Numbers sequence = sequence_of(lengths.size());
  for (const std::uint32_t ranks : {2U, 8U, 32U}) {
    for (const bool padded : {false, true}) {
      const Batching batching{.seed = 1,
                              .max_tokens = 16'384,
                              .max_samples = UINT64_MAX,
                              .pool = 64UL * ranks * 32,
                              .ranks = ranks,
                              .padded = padded,
                              .shuffle = true};
      const auto batches = divided(batches_of(batching, lengths, sequence));
      // Beside it: as many samples in each batch as ours have on average, drawn at random.
      const std::size_t size = lengths.size() / batches.size();
      std::vector<Numbers> random;
      for (std::size_t begin = 0; begin + size <= sequence.size(); begin += size)
        random.emplace_back(sequence.begin() + static_cast<std::ptrdiff_t>(begin),
                            sequence.begin() + static_cast<std::ptrdiff_t>(begin + size));
      const Time ours = time_of(batches, lengths, ranks, padded);
      const Time theirs = time_of(random, lengths, ranks, padded);
      std::cout << ranks << " ranks, " << (padded ? "padded" : "packed") << ": waits "
                << ours.waited / ours.taken << ", at random " << theirs.waited / theirs.taken
                << "; time " << ours.taken / theirs.taken << " of it, " << batches.size()
                << " batches\n";
      CHECK(ours.waited < 0.02 * ours.taken);
      CHECK(theirs.waited > 0.04 * theirs.taken);
      CHECK(ours.taken < (padded ? 0.5 : 0.95) * theirs.taken);
      // And the budget is used: no more batches than tokens need, and a tenth.
      const double tokens = std::accumulate(lengths.begin(), lengths.end(), 0.0);
      CHECK(static_cast<double>(batches.size()) < tokens / 16'384 * 1.1 + ranks);
    }
  }
}

CASE(batches_are_those_of_every_release) {
  const Numbers lengths = {5, 1, 4, 4, 2, 9, 3, 3, 8, 1, 1, 6};
  const auto text = [&](std::uint64_t epoch, bool padded, bool shuffle) {
    const Batching batching{.seed = 4,
                            .epoch = epoch,
                            .max_tokens = 10,
                            .max_samples = 5,
                            .pool = 12,
                            .ranks = 2,
                            .padded = padded,
                            .shuffle = shuffle};
    Numbers sequence(12);
    std::iota(sequence.begin(), sequence.end(), std::uint64_t{0});
    std::string found;
    for (const auto& batch : divided(batches_of(batching, lengths, sequence))) {
      for (const std::uint64_t sample : batch) found += static_cast<char>('a' + sample);
      found += ' ';
    }
    return found;
  };
  CHECK(text(0, true, true) == "c dg bjk he f i l a ");
  CHECK(text(1, true, true) == "c dg i f a l he bjk ");
  CHECK(text(0, false, true) == "f i ac l dg hebjk ");
  CHECK(text(0, true, false) == "f i a l c dg he bjk ");
}

CASE(batches_of_what_is_none_are_refused) {
  paceline_batching batching{.size = sizeof batching,
                             .flags = PACELINE_BATCHES_PADDED,
                             .seed = 0,
                             .epoch = 0,
                             .max_tokens = 10,
                             .max_samples = 4,
                             .pool = 100,
                             .ranks = 2,
                             .reserved = 0};
  Numbers lengths = {3, 10, 4};
  Numbers sequence = {2, 0, 1};
  Numbers samples(5);
  Numbers ends(5);
  std::uint64_t count = 0;
  const auto plan = [&] {
    return paceline_batches_plan(&batching, lengths.data(), 3, sequence.data(), 3, samples.data(),
                                 ends.data(), &count);
  };
  CHECK_EQ(plan(), PACELINE_OK);
  CHECK_EQ(count, 2UL);
  for (const std::uint64_t bad : {std::uint64_t{0}, std::uint64_t{11}, UINT64_MAX}) {
    lengths[1] = bad;
    CHECK_EQ(plan(), PACELINE_EINVAL);
  }
  lengths[1] = 10;
  sequence[0] = 3;
  CHECK_EQ(plan(), PACELINE_EINVAL);
  sequence[0] = 2;
  const auto with = [&](auto member, auto value) {
    const auto before = batching;
    batching.*member = value;
    CHECK_EQ(plan(), PACELINE_EINVAL);
    batching = before;
  };
  with(&paceline_batching::size, 1U);
  with(&paceline_batching::flags, 8U);
  with(&paceline_batching::ranks, 0U);
  with(&paceline_batching::pool, std::uint64_t{0});
  with(&paceline_batching::max_samples, std::uint64_t{0});
  with(&paceline_batching::max_tokens, std::uint64_t{1} << 32);
  paceline_order order{.size = sizeof order,
                       .flags = 0,
                       .seed = 0,
                       .epoch = 0,
                       .rank = 1,
                       .ranks = 2,
                       .window = 1,
                       .reserved = 0};
  const Numbers counts = {2, 0, 3};
  CHECK_EQ(paceline_batches_sequence(counts.data(), 3, &order, samples.data()), PACELINE_OK);
  CHECK((samples == Numbers{0, 1, 2, 3, 4}));
  order.window = 0;
  CHECK_EQ(paceline_batches_sequence(counts.data(), 3, &order, samples.data()), PACELINE_EINVAL);
  order.window = 1;
  CHECK_EQ(paceline_batches_sequence(counts.data(), 3, &order, nullptr), PACELINE_EINVAL);
  CHECK_EQ(paceline_batches_sequence(nullptr, 0, &order, nullptr), PACELINE_OK);
}
