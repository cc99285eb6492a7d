/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loader's shared memory in libpaceline.so: slabs that worker processes fill with batches, and
 * two streams of messages per worker, one each way. It knows bytes, not frameworks;
 * accel/python/paceline/loader is the layer for PyTorch.
 *
 * One process makes it and forks its workers; they find it at the same address. Slabs are slots of
 * a sparse, anonymous memory file, not of /dev/shm: what is never written costs nothing, and the 64
 * MB that containers have there do not matter.
 *
 * Ownership: the maker's, who destroys it when no batch lies in it any more. A fork inherits the
 * mapping; destroying it in a child unmaps it there only. Processes and threads: worker functions
 * are called by one thread of that worker's process, collect by one thread of the maker at a time,
 * tell by any of its threads. A slot may be released by any thread of any process. Blocking: only
 * hear, answer and collect wait, at most as long as told, on a futex. An arriving signal ends a
 * wait, so that its handlers may run. tell never waits: what does not fit is kept and sent by later
 * calls. Death: a worker killed at any instruction leaves the other streams whole; its own ends
 * with whole messages. Failure: PACELINE_OK, PACELINE_LOADER_NOTHING, PACELINE_LOADER_INTERRUPTED
 * or a negative PACELINE_E* (paceline.h).
 */
#ifndef PACELINE_LOADER_H_
#define PACELINE_LOADER_H_

#include "paceline.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PACELINE_LOADER_NOTHING 1     /* the time is over */
#define PACELINE_LOADER_INTERRUPTED 2 /* a signal came */
#define PACELINE_LOADER_MAX_WORKERS 1024u
#define PACELINE_LOADER_MAX_SLOTS 64u

struct paceline_loader;

/* `slots` for each worker, each of `slot_bytes` (rounded up to pages) of address space. */
PACELINE_EXPORT int paceline_loader_create(uint32_t workers, uint32_t slots, uint64_t slot_bytes,
                                           struct paceline_loader** loader);
PACELINE_EXPORT void paceline_loader_destroy(struct paceline_loader* loader);

/* Where a slot lies; null where there is none of that number. */
PACELINE_EXPORT void* paceline_loader_slot(const struct paceline_loader* loader, uint32_t worker,
                                           uint32_t slot);

/* Worker: takes its lowest free slot whose bit in `avoid` is not set. Its number, or
 * PACELINE_LOADER_MAX_SLOTS: none. */
PACELINE_EXPORT uint32_t paceline_loader_claim(struct paceline_loader* loader, uint32_t worker,
                                               uint64_t avoid);
PACELINE_EXPORT int paceline_loader_release(struct paceline_loader* loader, uint32_t worker,
                                            uint32_t slot);

/* Maker to worker. */
PACELINE_EXPORT int paceline_loader_tell(struct paceline_loader* loader, uint32_t worker,
                                         const void* data, uint64_t size);
/* Worker: the next message, valid until the next call. */
PACELINE_EXPORT int paceline_loader_hear(struct paceline_loader* loader, uint32_t worker,
                                         int32_t timeout_ms, const void** data, uint64_t* size);

/*
 * Worker to maker. `sent` is how much of the message has gone, 0 at first: where the time is over
 * or a signal came, call again with the same arguments and the value it was left at.
 */
PACELINE_EXPORT int paceline_loader_answer(struct paceline_loader* loader, uint32_t worker,
                                           const void* data, uint64_t size, int32_t timeout_ms,
                                           uint64_t* sent);
/* Maker: the next message of any worker, in turn, valid until the next call. */
PACELINE_EXPORT int paceline_loader_collect(struct paceline_loader* loader, int32_t timeout_ms,
                                            uint32_t* worker, const void** data, uint64_t* size);

/* 64 bits of the bytes; equal bytes give equal values, within one version of the library. */
PACELINE_EXPORT uint64_t paceline_loader_digest(const void* data, uint64_t size, uint64_t seed);

#ifdef __cplusplus
}
#endif
#endif /* PACELINE_LOADER_H_ */
