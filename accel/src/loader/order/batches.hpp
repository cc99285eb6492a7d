// SPDX-License-Identifier: Apache-2.0
// Batches of samples of different lengths, so that the ranks of each step have as much to do: a
// pure function of the lengths, the sequence of samples and the numbers below, the same on every
// machine.
//
// The sequence is divided into pools of equal size. Each pool is sorted by length and cut into
// batches of as many ranks' times steps as `max_tokens` allows at least, all of about the same cost
// (the smallest budget that they fit in). Neighbours, which are of like length, are the batches of
// one step; they exchange samples where that makes them more alike. Steps within a pool, and ranks
// within a step, are permuted.
//
// Every rank has the same number of batches, and none is empty. The samples that a last step cannot
// share out (fewer than ranks) are joined by the sequence's first ones once more, or left out with
// drop_last.
//
// Ownership: none. Threads: pure. Failure: bad_alloc only; lengths must be at least 1 and at most
// max_tokens.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace paceline::loader {

struct Batching {
  std::uint64_t seed = 0;
  std::uint64_t epoch = 0;
  std::uint64_t max_tokens = 1;   // of a batch
  std::uint64_t max_samples = 1;  // of a batch
  std::uint64_t pool = 1;         // samples
  std::uint32_t ranks = 1;
  bool padded = true;  // a batch costs its longest sample times its samples, else the sum of them
  bool shuffle = false;
  bool drop_last = false;
};

// Samples batch by batch, and where each batch ends. Batch `step * ranks + rank` is that rank's.
struct Batches {
  std::vector<std::uint64_t> samples;
  std::vector<std::uint64_t> ends;
};

// `lengths` are those of all samples, `sequence` which of them there are, in order.
Batches batches_of(const Batching& batching, std::span<const std::uint64_t> lengths,
                   std::span<const std::uint64_t> sequence);

}  // namespace paceline::loader
