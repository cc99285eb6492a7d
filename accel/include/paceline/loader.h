/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loader's shared memory in libpaceline.so: slabs that worker processes fill with batches, and
 * two streams of messages for each worker, one in each direction. It handles bytes and knows no
 * framework; accel/python/paceline/loader is the layer for PyTorch.
 *
 * One process, the maker, creates the memory. Workers that it forks find it at the same address;
 * any other worker gets its file, and attaches it at an address of its own. Slabs are slots of a
 * sparse, anonymous memory file. Pages that are never written cost nothing. The file does not lie
 * in /dev/shm, of which containers have only 64 MB.
 *
 * Ownership: the maker owns the memory, and destroys it when no batch lies in it any more. A forked
 * child inherits the mapping; destroying it in a child unmaps it in the child only. So does
 * destroying it in a process that has attached it.
 *
 * Processes and threads: one thread of a worker's process calls the worker's functions. One thread
 * of the maker at a time calls collect, and any of its threads calls tell. Any thread of any
 * process may release a slot.
 *
 * Blocking: only hear, answer and collect wait, on a futex and at most for the given time. An
 * arriving signal ends a wait, so that its handlers may run. tell never waits: later calls send
 * what does not fit.
 *
 * Death: if a worker is killed at any instruction, the other streams stay whole, and its own ends
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
#define PACELINE_LOADER_INTERRUPTED 2 /* a signal arrived */
#define PACELINE_LOADER_MAX_WORKERS 1024u
#define PACELINE_LOADER_MAX_SLOTS 64u

struct paceline_loader;

/* Makes `slots` slots for each worker. Each takes `slot_bytes` (rounded up to pages) of address
 * space. */
PACELINE_EXPORT int paceline_loader_create(uint32_t workers, uint32_t slots, uint64_t slot_bytes,
                                           struct paceline_loader** loader);
/* As paceline_loader_create. `file` becomes the descriptor of the memory's file, closed on exec.
 * The caller closes it once every worker has got it; the memory does not need it. */
PACELINE_EXPORT int paceline_loader_create_with_file(uint32_t workers, uint32_t slots,
                                                     uint64_t slot_bytes, int32_t* file,
                                                     struct paceline_loader** loader);
/* Worker: maps the memory of that file, of which the maker's numbers are given. The descriptor
 * stays the caller's. Returns PACELINE_EINVAL if the file is not of that size. */
PACELINE_EXPORT int paceline_loader_attach(int32_t file, uint32_t workers, uint32_t slots,
                                           uint64_t slot_bytes, struct paceline_loader** loader);
PACELINE_EXPORT void paceline_loader_destroy(struct paceline_loader* loader);

/* Returns the address of a slot, or null if the number is out of range. */
PACELINE_EXPORT void* paceline_loader_slot(const struct paceline_loader* loader, uint32_t worker,
                                           uint32_t slot);

/* Returns a word of the shared memory for the caller's own use, 0 at first. */
PACELINE_EXPORT uint32_t* paceline_loader_word(const struct paceline_loader* loader);

/* Worker: takes its lowest free slot whose bit in `avoid` is not set. Returns the number of the
 * slot, or PACELINE_LOADER_MAX_SLOTS if there is none. */
PACELINE_EXPORT uint32_t paceline_loader_claim(struct paceline_loader* loader, uint32_t worker,
                                               uint64_t avoid);
PACELINE_EXPORT int paceline_loader_release(struct paceline_loader* loader, uint32_t worker,
                                            uint32_t slot);

/* Maker: sends a message to a worker. */
PACELINE_EXPORT int paceline_loader_tell(struct paceline_loader* loader, uint32_t worker,
                                         const void* data, uint64_t size);
/* Worker: gets the next message, which is valid until the next call. */
PACELINE_EXPORT int paceline_loader_hear(struct paceline_loader* loader, uint32_t worker,
                                         int32_t timeout_ms, const void** data, uint64_t* size);

/*
 * Worker: sends a message to the maker. `sent` counts the bytes already sent, 0 at first. If the
 * time is over or a signal arrives, call again with the same arguments and the value left in
 * `sent`.
 */
PACELINE_EXPORT int paceline_loader_answer(struct paceline_loader* loader, uint32_t worker,
                                           const void* data, uint64_t size, int32_t timeout_ms,
                                           uint64_t* sent);
/* Maker: gets the next message of any worker, in turn. It is valid until the next call. */
PACELINE_EXPORT int paceline_loader_collect(struct paceline_loader* loader, int32_t timeout_ms,
                                            uint32_t* worker, const void** data, uint64_t* size);

/* Returns a 64-bit digest of the bytes. Equal bytes give equal values within one version of the
 * library. */
PACELINE_EXPORT uint64_t paceline_loader_digest(const void* data, uint64_t size, uint64_t seed);

#ifdef __cplusplus
}
#endif
#endif /* PACELINE_LOADER_H_ */
