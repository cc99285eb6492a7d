/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies of memory in the background, in libpaceline.so: one thread makes them in the order in
 * which they were begun, and nobody has to hold an interpreter's lock for it.
 * accel/python/paceline/loader copies batches into page-locked memory with it.
 *
 * Ownership: a copier is its maker's. Both memories of a copy are the caller's, and stay until the
 * copy has been waited for or the copier has been destroyed. Threads: any may call. Forks: a child
 * has none of the thread: its calls are refused, and destroying does nothing. Blocking: wait alone,
 * at most as long as told; destroying finishes what was begun. Failure: PACELINE_OK,
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

/* `copy` is its number, 1 for the first. */
PACELINE_EXPORT int paceline_copier_begin(struct paceline_copier* copier, void* target,
                                          const void* source, uint64_t size, uint64_t* copy);
/* This copy and all that were begun before it. 0 is none. */
PACELINE_EXPORT int paceline_copier_wait(struct paceline_copier* copier, uint64_t copy,
                                         int32_t timeout_ms);

#ifdef __cplusplus
}
#endif
#endif /* PACELINE_COPIER_H_ */
