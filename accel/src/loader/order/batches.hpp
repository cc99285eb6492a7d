// SPDX-License-Identifier: Apache-2.0
// Makes batches of samples of different lengths, so that all ranks have about equal work in each
// step. The result is a pure function of the lengths, the sequence of samples and the settings
// below. It is the same on every machine.
//
// The sequence is divided into pools of equal size. Each pool is sorted by length and cut into
// batches of about the same cost. Their number is the smallest multiple of the number of ranks that
// `max_tokens` allows. Neighbouring batches, whose samples have similar lengths, form one step.
// They exchange samples if that makes their costs more equal. The steps within a pool and the ranks
// within a step are permuted.
//
// Every rank has the same number of batches, and none is empty. The last step may have fewer
// samples than ranks. Then the first samples of the sequence are used again, or with drop_last the
// remaining samples are left out.
//
// Ownership: none. Threads: pure. Failure: bad_alloc only. Lengths must be at least 1 and at most
// max_tokens.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace paceline::loader {

struct Batching {
  std::uint64_t seed = 0;
  std::uint64_t epoch = 0;
  std::uint64_t max_tokens = 1;   // most of one batch
  std::uint64_t max_samples = 1;  // most of one batch
  std::uint64_t pool = 1;         // samples that are sorted together
  std::uint32_t ranks = 1;
  bool padded = true;  // cost of a batch: its longest sample times its samples if true, else the
                       // sum of its lengths
  bool shuffle = false;
  bool drop_last = false;
};

// The samples of all batches, and the end of each batch among them. Batch `step * ranks + rank`
// belongs to that rank.
struct Batches {
  std::vector<std::uint64_t> samples;
  std::vector<std::uint64_t> ends;
};

// `lengths` holds the length of every sample, `sequence` the samples to use, in order.
Batches batches_of(const Batching& batching, std::span<const std::uint64_t> lengths,
                   std::span<const std::uint64_t> sequence);

}  // namespace paceline::loader
