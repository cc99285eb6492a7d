/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies memory in the background. One thread makes the copies in the order in which they were
 * begun, without holding an interpreter's lock. accel/python/paceline/loader copies batches into
 * page-locked memory with it.
 *
 * Ownership: the maker owns a copier. The caller owns both memories of a copy. They must stay until
 * the copy has been waited for or the copier is destroyed. Threads: any thread may call. Forks: a
 * child has no copying thread. Its calls are refused, and destroying does nothing. Blocking: wait
 * blocks at most for the given time; destroying finishes all copies. Failure: PACELINE_OK,
 * PACELINE_COPIER_NOT_YET or a negative PACELINE_E* (paceline.h).
 */
#ifndef PACELINE_COPIER_H_
#define PACELINE_COPIER_H_

#include "paceline.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PACELINE_COPIER_NOT_YET 1 /* the time is over */

struct paceline_copier;

PACELINE_EXPORT int paceline_copier_create(struct paceline_copier** copier);
PACELINE_EXPORT void paceline_copier_destroy(struct paceline_copier* copier);

/* Begins a copy. `copy` receives its number, 1 for the first. */
PACELINE_EXPORT int paceline_copier_begin(struct paceline_copier* copier, void* target,
                                          const void* source, uint64_t size, uint64_t* copy);
/* Waits for this copy and for all that were begun before it. 0 stands for no copy. */
PACELINE_EXPORT int paceline_copier_wait(struct paceline_copier* copier, uint64_t copy,
                                         int32_t timeout_ms);

#ifdef __cplusplus
}
#endif
#endif /* PACELINE_COPIER_H_ */
