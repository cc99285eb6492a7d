/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The C ABI of the accelerated runtime (libpaceline.so). A training process, or a language layer
 * inside it, calls these functions to report where its time goes. The PyTorch layer (accel/python)
 * calls them for programs that do not know Paceline. A program of any other framework can call just
 * paceline_step().
 *
 * Ownership: the library owns the ring and one publishing thread; callers own nothing. One ring per
 * process. Threads: any thread may call every function. Only marks of the training thread count.
 * Marks of other threads (a prefetching thread, a loader inside a thread pool) would overlap with
 * them and are ignored.
 *
 * Blocking: no mark blocks, allocates or makes a system call (but see paceline_device_stream). The
 * publishing thread hands over the ring, reads /proc and writes the ring. Failure: 0 or a negative
 * PACELINE_E*. Callers may ignore all of them; training is never disturbed. Until paceline_open()
 * succeeds, every mark returns PACELINE_ECLOSED at once.
 *
 * fork(): if the parent had opened the ring, the child drops it (its mapping is MADV_DONTFORK) and
 * every call in the child returns PACELINE_EFORKED. Otherwise the child starts afresh.
 */
#ifndef PACELINE_PACELINE_H_
#define PACELINE_PACELINE_H_

#include <stdint.h>

#include "step_record.h"

#if defined(__GNUC__)
#define PACELINE_EXPORT __attribute__((visibility("default")))
#else
#define PACELINE_EXPORT
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define PACELINE_API_VERSION 1

enum paceline_error {
  PACELINE_OK = 0,
  PACELINE_ECLOSED = -1,   /* not open */
  PACELINE_EFORKED = -2,   /* a forked child of a process with a ring */
  PACELINE_EINVAL = -3,    /* an argument is out of range */
  PACELINE_ESYSTEM = -4,   /* the system refused the ring, see paceline_system_error() */
  PACELINE_EDISABLED = -5, /* PACELINE_DISABLE=1 */
  PACELINE_EORDER = -6,    /* a leave without its enter, or nested too deeply */
  PACELINE_ETHREAD = -7,   /* not the training thread: the mark is not counted */
  PACELINE_EDEVICE = -8,   /* the accelerator's driver is missing, or refused the call */
  PACELINE_EPARTIAL = -9   /* the driver refused after a part was done */
};

/* What the caller knows about itself. `size` is sizeof(struct paceline_options). Strings are
 * copied. */
struct paceline_options {
  uint32_t size;
  uint32_t framework_id; /* enum paceline_framework */
  uint32_t device_kind;  /* enum paceline_device_kind */
  uint32_t host_phases;  /* bit p: this caller marks phase p, so its 0 means zero, not absent */
  const char* framework_version; /* may be null */
  const char* pci_address;       /* may be null */
  uint64_t capabilities;         /* PACELINE_CAPABILITY_* */
  uint32_t mark_cost_ns;         /* cost of one mark on the caller's side, for overhead_ns */
  uint32_t reserved;             /* 0 */
};

/* Returns the PACELINE_API_VERSION of the library. */
PACELINE_EXPORT int paceline_api_version(void);
PACELINE_EXPORT const char* paceline_version(void);

/*
 * Opens the ring. Call it at the first training mark and not earlier, so that helper processes
 * leave no rings. A second call does nothing and returns 0. The identity is read from the
 * environment: RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, GROUP_RANK, PACELINE_NODE_RANK and
 * PACELINE_ATTEMPT. The socket is PACELINE_TELEMETRY_SOCKET; if it is not set, the ring is not
 * offered. `options` may be null.
 */
PACELINE_EXPORT int paceline_open(const struct paceline_options* options);
/* Publishes the time after the last step as a final record, waits for the publishing thread, and
 * drops the ring. */
PACELINE_EXPORT int paceline_close(void);
/* Returns the memfd of the ring for a caller that hands it over itself. The library owns it.
 * Negative if there is no ring. */
PACELINE_EXPORT int paceline_ring_fd(void);
PACELINE_EXPORT int paceline_system_error(void);

/*
 * Reports a step boundary. `user_step` is the program's own number, -1 if it has none. If optimizer
 * marks were seen, they are the boundaries, and this call only reports the number of the current
 * step.
 */
PACELINE_EXPORT int paceline_step(int64_t user_step);

/*
 * Time between enter and leave counts as `phase`, without nested phases. PACELINE_PHASE_DATA_WAIT,
 * _BACKWARD and _OPTIMIZER are the marks below, with loader 0 and optimizer 0. Leaving a phase also
 * leaves all phases that were entered inside it.
 */
PACELINE_EXPORT int paceline_phase_enter(uint32_t phase);
PACELINE_EXPORT int paceline_phase_leave(uint32_t phase);

/*
 * A loader is asked for a batch (enter), and has answered (leave). `loader` is the number of the
 * loader, from 0. `gradients` is 0 if gradients are off, which means evaluation. `samples` counts
 * those of the batch: PACELINE_SAMPLES_UNKNOWN if the number is not known, and PACELINE_NO_BATCH if
 * the loader is exhausted or failed.
 */
#define PACELINE_SAMPLES_UNKNOWN (-1)
#define PACELINE_NO_BATCH (-2)
PACELINE_EXPORT int paceline_loader_enter(uint64_t loader, int32_t gradients);
PACELINE_EXPORT int paceline_loader_leave(uint64_t loader, int64_t samples);

PACELINE_EXPORT int paceline_backward_enter(void);
/* Any thread may report that the last gradient is accumulated. Until backward is left, time
 * counts as comm_exposed. */
PACELINE_EXPORT int paceline_gradients_done(void);
PACELINE_EXPORT int paceline_backward_leave(void);

/* `optimizer` is the index of the optimizer in the order of first use. Leaving the last
 * optimizer of an iteration ends the step. */
PACELINE_EXPORT int paceline_optimizer_enter(uint32_t optimizer);
PACELINE_EXPORT int paceline_optimizer_leave(uint32_t optimizer);

enum paceline_counter {
  PACELINE_COUNTER_SAMPLES = 0, /* replaces the count of the loaders from the first call on */
  PACELINE_COUNTER_TOKENS = 1,
  PACELINE_COUNTER_H2D_BYTES = 2,
  PACELINE_COUNTER_SCALER_SKIPS =
      3, /* inside an optimizer's mark: a gradient scaler skipped this optimizer */
  PACELINE_COUNTER_BATCH_TOKENS =
      4 /* tokens of a loader's batch; PACELINE_COUNTER_TOKENS replaces it from its first call on */
};
/* Adds to a counter of the current step. */
PACELINE_EXPORT int paceline_count(uint32_t counter, uint64_t amount);

/*
 * Measures what the marks take on a CUDA device, too: an event is recorded at each boundary of
 * phases, and the times follow the step as an amendment. Call it when the program itself has
 * started CUDA, on the thread that trains. Returns PACELINE_EORDER if that thread has no context of
 * CUDA yet, and PACELINE_EDEVICE with a reason in `why` (at most `size` bytes with the NUL) if the
 * driver is missing or refuses. `stream_cost_ns` is the cost of paceline_device_stream on the
 * caller's side, for overhead_ns.
 */
PACELINE_EXPORT int paceline_device_start(char* why, uint32_t size, uint32_t stream_cost_ns);
/* The CUDA stream that this thread computes on, before a mark of this thread and for that mark
 * alone. Without it the mark has no event. The mark may then wait for room in the queue of the
 * device, as any launch may. */
PACELINE_EXPORT int paceline_device_stream(uint64_t stream);

/* Takes marks (1, the default) or ignores them (0), to measure within one run what tracing
 * costs. */
PACELINE_EXPORT int paceline_set_tracing(int32_t on);

#ifdef __cplusplus
}
#endif
#endif /* PACELINE_PACELINE_H_ */
