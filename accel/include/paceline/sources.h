/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What other libraries of the runtime need to add their measurements to the process's ring
 * (step_record.h): libpaceline_nccl.so is one. Any thread may call. No function waits for a system
 * call except while another thread is inside paceline_open() or paceline_close(). Each returns 0 or
 * a negative paceline_error.
 */
#ifndef PACELINE_SOURCES_H_
#define PACELINE_SOURCES_H_

#include "paceline.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A step of a ring. `step` is 0 before the first mark, and both are 0 if no ring is open. */
struct paceline_position {
  uint64_t step;
  uint32_t ring_epoch;
  uint32_t reserved; /* 0 */
};

/* How far a communicator of this rank is; paceline_live_state says what the numbers mean. */
struct paceline_collective {
  uint64_t group_id;
  uint64_t enqueued;
  uint64_t done;
  uint32_t group_size;
  uint32_t group_rank;
};

/* The step that the process's marks are in now. Lock-free. */
PACELINE_EXPORT struct paceline_position paceline_current_position(void);
/* Adds facts to the step facts->step of the ring facts->ring_epoch: those fields whose bit of
 * `valid` is set. They are published after the step. */
PACELINE_EXPORT int paceline_amend(const struct paceline_step_record* facts);
/* Adds capability bits to the header of the ring: a source has started. */
PACELINE_EXPORT int paceline_announce(uint64_t capabilities);
/* Replaces the state of the communicator that the header shows. */
PACELINE_EXPORT int paceline_set_collective(const struct paceline_collective* collective);

/* From `ns` (CLOCK_MONOTONIC) to the next mark the host was in `phase`, as far as it knew then. */
struct paceline_mark {
  uint64_t ns;
  uint32_t phase; /* enum paceline_phase */
  uint32_t reserved;
};
/* Copies at most `most` of the newest marks, the oldest first. Returns how many. */
PACELINE_EXPORT int paceline_recent_marks(struct paceline_mark* marks, uint32_t most);

#ifdef __cplusplus
}
#endif

#endif /* PACELINE_SOURCES_H_ */
