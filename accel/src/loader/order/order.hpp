// SPDX-License-Identifier: Apache-2.0
// The room order decides which samples each rank reads, and when. `paceline.loader.ShardSampler`
// and the shards' classes use order.hpp; `paceline.loader.TokenBatches` uses batches.hpp.
//
// An order is the sequence in which one rank sees the samples of an epoch. It is a pure function of
// the shards' sizes and the settings below. It is the same on every machine, so a rank can resume
// at any place.
//
// With shuffle, the shards are permuted first. Then the samples within each window of neighbouring
// shards are permuted, so a rank reads few shards at a time. The ranks divide the sequence into
// blocks of equal length. If the numbers are uneven, the sequence begins again to fill the last
// block. With drop_last the uneven end is left out.
//
// Ownership: none. Threads: pure. Failure: bad_alloc only.
#pragma once

#include <cstdint>
#include <span>

namespace paceline::loader {

struct Order {
  std::uint64_t seed = 0;
  std::uint64_t epoch = 0;
  std::uint32_t rank = 0;
  std::uint32_t ranks = 1;
  std::uint32_t window = 1;  // shards that are shuffled together
  bool shuffle = false;
  bool drop_last = false;
};

// Returns the length of every rank's part. `counts` holds the number of samples of each shard, and
// `total` their sum.
std::uint64_t length_of(const Order& order, std::uint64_t total);

// Fills `samples` with the samples at the places from `first` on. Samples are numbered shard by
// shard. first + samples.size() is at most the length.
void samples_at(const Order& order, std::span<const std::uint64_t> counts, std::uint64_t first,
                std::span<std::uint64_t> samples);

}  // namespace paceline::loader
