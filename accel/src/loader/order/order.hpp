// SPDX-License-Identifier: Apache-2.0
// The room order says which samples each rank reads, and when. `paceline.loader.ShardSampler` and
// the shards' classes use order.hpp; `paceline.loader.TokenBatches` uses batches.hpp.
//
// The order in which one rank sees the samples of an epoch: a pure function of the shards' sizes
// and of the numbers below, the same on every machine, so that any place in it can be gone on from.
//
// Shuffled, the shards are permuted, and then the samples within each window of shards that are
// neighbours now; so a rank reads few shards at a time. The ranks divide the sequence into blocks
// of equal length. Uneven numbers: the sequence begins again to fill the last block, or with
// drop_last its end is left out.
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
  std::uint32_t window = 1;  // shards
  bool shuffle = false;
  bool drop_last = false;
};

// `counts` are the samples of each shard, `total` their sum. The length of every rank's part.
std::uint64_t length_of(const Order& order, std::uint64_t total);

// Samples (numbered shard by shard) at the places from `first` on. first + samples.size() is at
// most the length.
void samples_at(const Order& order, std::span<const std::uint64_t> counts, std::uint64_t first,
                std::span<std::uint64_t> samples);

}  // namespace paceline::loader
