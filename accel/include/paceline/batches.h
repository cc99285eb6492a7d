/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes batches of samples of different lengths that cost about the same on every rank of a step.
 * The result is a pure function of the lengths and the settings below. It is the same on every
 * machine. accel/python/paceline/loader is the layer for PyTorch.
 *
 * Ownership: the caller owns everything. Threads: any. Failure: PACELINE_OK or a negative
 * PACELINE_E*; after a failure the results have no meaning.
 */
#ifndef PACELINE_BATCHES_H_
#define PACELINE_BATCHES_H_

#include "paceline.h"
#include "shards.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PACELINE_BATCHES_SHUFFLE 1u /* shuffles the order of steps, too */
#define PACELINE_BATCHES_DROP_LAST \
  2u /* leaves out samples that ranks cannot share evenly, else other samples come twice */
#define PACELINE_BATCHES_PADDED \
  4u /* cost of a batch: its longest sample times its samples, else the sum of its lengths */

struct paceline_batching {
  uint32_t size;  /* sizeof(struct paceline_batching) */
  uint32_t flags; /* PACELINE_BATCHES_* */
  uint64_t seed;
  uint64_t epoch;
  uint64_t max_tokens;  /* highest cost of a batch; below 2^32 */
  uint64_t max_samples; /* most samples of a batch */
  uint64_t pool;        /* how many samples are sorted together */
  uint32_t ranks;
  uint32_t reserved;
};

/* Fills `sequence` with the samples of an epoch for all ranks. `counts` holds the number of
 * samples of each shard; `sequence` has room for their sum. `order` is described in shards.h. */
PACELINE_EXPORT int paceline_batches_sequence(const uint64_t* counts, uint64_t shards,
                                              const struct paceline_order* order,
                                              uint64_t* sequence);

/*
 * Divides `sequence`, which holds `count` of `total` samples, into batches. `lengths` holds the
 * length of every sample, at least 1 and at most max_tokens. `samples` and `ends` have room for
 * count + ranks numbers. They receive the samples batch by batch, and the end of each of the
 * *batches. Batch step * ranks + rank belongs to that rank.
 */
PACELINE_EXPORT int paceline_batches_plan(const struct paceline_batching* batching,
                                          const uint64_t* lengths, uint64_t total,
                                          const uint64_t* sequence, uint64_t count,
                                          uint64_t* samples, uint64_t* ends, uint64_t* batches);

PACELINE_STATIC_ASSERT(sizeof(struct paceline_batching) == 56, "a batching is 7 words");

#ifdef __cplusplus
}
#endif
#endif /* PACELINE_BATCHES_H_ */
