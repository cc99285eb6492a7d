/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tar shards in webdataset's convention, read natively: an index of every sample, its bytes, and
 * the order in which each rank sees them. It knows bytes, not frameworks;
 * accel/python/paceline/loader is the layer for PyTorch.
 *
 * Ownership: open makes it, close ends it. Text that is handed out lives as long.
 * Processes and threads: once open it does not change; any thread of any forked process may call,
 * several at once. The threads of open end with it. Failure: PACELINE_OK or a negative PACELINE_E*
 * (paceline.h); `why`, where it is an argument, then names the shard and the reason, cut to
 * why_size bytes with their zero.
 */
#ifndef PACELINE_SHARDS_H_
#define PACELINE_SHARDS_H_

#include "paceline.h"

#ifdef __cplusplus
extern "C" {
#endif

struct paceline_shards;

/* Reads the headers of all shards, `threads` at a time. */
PACELINE_EXPORT int paceline_shards_open(const char* const* paths, uint32_t count, uint32_t threads,
                                         struct paceline_shards** shards, char* why,
                                         uint64_t why_size);
PACELINE_EXPORT void paceline_shards_close(struct paceline_shards* shards);

PACELINE_EXPORT uint64_t paceline_shards_samples(const struct paceline_shards* shards);
/* Of keys, extensions and sizes in order, not of the paths. */
PACELINE_EXPORT uint64_t paceline_shards_identity(const struct paceline_shards* shards);

/* How many members a sample has, and its key. */
PACELINE_EXPORT int paceline_shards_sample(const struct paceline_shards* shards, uint64_t sample,
                                           const char** key, uint32_t* members);
PACELINE_EXPORT int paceline_shards_member(const struct paceline_shards* shards, uint64_t sample,
                                           uint32_t member, const char** extension, uint64_t* size);
/* All bytes of a member: `size` is what paceline_shards_member told. */
PACELINE_EXPORT int paceline_shards_read(const struct paceline_shards* shards, uint64_t sample,
                                         uint32_t member, void* buffer, uint64_t size, char* why,
                                         uint64_t why_size);

#define PACELINE_ORDER_SHUFFLE 1u
#define PACELINE_ORDER_DROP_LAST \
  2u /* else the sequence begins again where ranks cannot divide it */

struct paceline_order {
  uint32_t size;  /* sizeof(struct paceline_order) */
  uint32_t flags; /* PACELINE_ORDER_* */
  uint64_t seed;
  uint64_t epoch;
  uint32_t rank;
  uint32_t ranks;
  uint32_t window; /* how many shards are shuffled into each other */
  uint32_t reserved;
};

/* Samples of a rank in the epoch. */
PACELINE_EXPORT int paceline_shards_length(const struct paceline_shards* shards,
                                           const struct paceline_order* order, uint64_t* length);
/* The `count` samples from the rank's place `first` on; all of them must be within its length. */
PACELINE_EXPORT int paceline_shards_order(const struct paceline_shards* shards,
                                          const struct paceline_order* order, uint64_t first,
                                          uint64_t count, uint64_t* samples);

#ifdef __cplusplus
}
#endif
#endif /* PACELINE_SHARDS_H_ */
