/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Batches of samples of different lengths, of about the same cost on every rank of a step: a pure
 * function of the lengths and of the numbers below, the same on every machine.
 * accel/python/paceline/loader is the layer for PyTorch.
 *
 * Ownership: the caller's, all of it. Threads: any. Failure: PACELINE_OK or a negative PACELINE_E*;
 * then the results say nothing.
 */
#ifndef PACELINE_BATCHES_H_
#define PACELINE_BATCHES_H_

#include "paceline.h"
#include "shards.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PACELINE_BATCHES_SHUFFLE 1u /* the order of steps too */
#define PACELINE_BATCHES_DROP_LAST \
  2u /* samples that ranks cannot share out are left out, else others come twice */
#define PACELINE_BATCHES_PADDED \
  4u /* a batch costs its longest sample times its samples, else the sum of them */

struct paceline_batching {
  uint32_t size;  /* sizeof(struct paceline_batching) */
  uint32_t flags; /* PACELINE_BATCHES_* */
  uint64_t seed;
  uint64_t epoch;
  uint64_t max_tokens;  /* what a batch may cost; below 2^32 */
  uint64_t max_samples; /* of a batch */
  uint64_t pool;        /* how many samples are sorted together */
  uint32_t ranks;
  uint32_t reserved;
};

/* All samples of an epoch, whichever rank's, where `counts` are those of the shards: sequence holds
 * their sum. `order` is that of shards.h. */
PACELINE_EXPORT int paceline_batches_sequence(const uint64_t* counts, uint64_t shards,
                                              const struct paceline_order* order,
                                              uint64_t* sequence);

/*
 * `sequence`: `count` of the `total` samples that `lengths` has, each of at least 1 and at most
 * max_tokens. `samples` and `ends` have room for count + ranks numbers: samples batch by batch, and
 * where each of the *batches ends. Batch step * ranks + rank is that rank's.
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
