/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads tar shards in webdataset's convention: an index of every sample, its bytes, and the order
 * in which each rank sees the samples. It handles bytes and knows no framework;
 * accel/python/paceline/loader is the layer for PyTorch.
 *
 * Ownership: open creates the object and close destroys it. Texts that it returns live as long as
 * the object. Processes and threads: an open object does not change. Any thread of any forked
 * process may call, several at once. The threads that open starts end before it returns.
 *
 * Failure: PACELINE_OK or a negative PACELINE_E* (paceline.h). If a function has the argument
 * `why`, it receives the shard and the reason, cut to why_size bytes with the final zero.
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
/* Returns a digest of the keys, extensions and sizes in order. Paths do not count. */
PACELINE_EXPORT uint64_t paceline_shards_identity(const struct paceline_shards* shards);

/* Returns the key of a sample and the number of its members. */
PACELINE_EXPORT int paceline_shards_sample(const struct paceline_shards* shards, uint64_t sample,
                                           const char** key, uint32_t* members);
PACELINE_EXPORT int paceline_shards_member(const struct paceline_shards* shards, uint64_t sample,
                                           uint32_t member, const char** extension, uint64_t* size);
/* Reads all bytes of a member. `size` must be the one that paceline_shards_member returned. */
PACELINE_EXPORT int paceline_shards_read(const struct paceline_shards* shards, uint64_t sample,
                                         uint32_t member, void* buffer, uint64_t size, char* why,
                                         uint64_t why_size);

#define PACELINE_ORDER_SHUFFLE 1u
#define PACELINE_ORDER_DROP_LAST \
  2u /* leaves out the uneven end of the sequence; else its first samples come again */

struct paceline_order {
  uint32_t size;  /* sizeof(struct paceline_order) */
  uint32_t flags; /* PACELINE_ORDER_* */
  uint64_t seed;
  uint64_t epoch;
  uint32_t rank;
  uint32_t ranks;
  uint32_t window; /* number of shards that are shuffled together */
  uint32_t reserved;
};

/* Returns the number of samples of a rank in the epoch. */
PACELINE_EXPORT int paceline_shards_length(const struct paceline_shards* shards,
                                           const struct paceline_order* order, uint64_t* length);
/* Fills `samples` with `count` samples from the rank's place `first` on. All places must be
 * within the rank's length. */
PACELINE_EXPORT int paceline_shards_order(const struct paceline_shards* shards,
                                          const struct paceline_order* order, uint64_t first,
                                          uint64_t count, uint64_t* samples);

#ifdef __cplusplus
}
#endif
#endif /* PACELINE_SHARDS_H_ */
