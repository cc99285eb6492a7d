/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The C ABI of the accelerated runtime (libpaceline.so): what a training process, or a language
 * layer inside it, calls to tell where its time goes. The PyTorch layer (accel/python) calls it for
 * programs that know nothing of it; a program of any other framework may call paceline_step()
 * alone.
 *
 * Ownership: the library owns the ring and one publishing thread; callers own nothing. One ring per
 * process. Threads: every function may be called from any thread. Marks of the thread that trains
 * are counted; marks of others (a prefetching thread, a loader inside a thread pool) would overlap
 * with it and are ignored. Blocking: no mark blocks, allocates or makes a system call. The
 * hand-over of the ring, reading /proc and writing the ring are done by the publishing thread.
 * Failure: 0 or a negative PACELINE_E*; a caller may ignore all of them, training is never
 * disturbed. Until paceline_open() has succeeded every mark returns PACELINE_ECLOSED at once.
 * fork(): the child drops the ring (its mapping is MADV_DONTFORK) and every call returns
 * PACELINE_EFORKED there, if the parent had opened it; otherwise the child starts afresh.
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
  PACELINE_ESYSTEM = -4,   /* the system refused the ring; paceline_system_error() has its errno */
  PACELINE_EDISABLED = -5, /* PACELINE_DISABLE=1 */
  PACELINE_EORDER = -6,    /* a leave without its enter, or nested too deeply */
  PACELINE_ETHREAD = -7,   /* not the training thread: not counted */
  PACELINE_EDEVICE = -8,   /* the accelerator's driver refused, or is not there */
  PACELINE_EPARTIAL = -9   /* it refused when a part was done */
};

/* What the caller knows of itself; `size` is sizeof(struct paceline_options). Strings are copied.
 */
struct paceline_options {
  uint32_t size;
  uint32_t framework_id; /* enum paceline_framework */
  uint32_t device_kind;  /* enum paceline_device_kind */
  uint32_t host_phases;  /* bit p: this caller tells phase p by marks, so that its 0 means zero, not
                            absent */
  const char* framework_version; /* may be null */
  const char* pci_address;       /* may be null */
  uint64_t capabilities;         /* PACELINE_CAPABILITY_* */
  uint32_t mark_cost_ns;         /* what one mark costs the caller's side, for overhead_ns */
  uint32_t reserved;             /* 0 */
};

/* PACELINE_API_VERSION of the library. */
PACELINE_EXPORT int paceline_api_version(void);
PACELINE_EXPORT const char* paceline_version(void);

/*
 * Opens the ring, at the first training mark and never earlier, so that helper processes leave
 * none. Again: 0, nothing done. Identity is read from the environment: RANK, LOCAL_RANK,
 * WORLD_SIZE, LOCAL_WORLD_SIZE, GROUP_RANK and PACELINE_NODE_RANK, PACELINE_ATTEMPT; the socket
 * from PACELINE_TELEMETRY_SOCKET (absent: the ring is kept unoffered). `options` may be null.
 */
PACELINE_EXPORT int paceline_open(const struct paceline_options* options);
/* Publishes what came after the last step as a final record, waits for the publishing thread, drops
 * the ring. */
PACELINE_EXPORT int paceline_close(void);
/* The ring's memfd, owned by the library, for a caller that hands it over itself; negative where
 * there is none. */
PACELINE_EXPORT int paceline_ring_fd(void);
PACELINE_EXPORT int paceline_system_error(void);

/*
 * Step boundary told by the program. `user_step` is its own number, -1 if it has none. Where
 * optimizer marks were seen they are the boundaries, and this call only tells the number of the
 * step under way.
 */
PACELINE_EXPORT int paceline_step(int64_t user_step);

/*
 * Time between enter and leave counts as `phase`, nested phases excluded. PACELINE_PHASE_DATA_WAIT,
 * _BACKWARD and _OPTIMIZER are the marks below, with loader 0 and optimizer 0. Leaving a phase also
 * leaves what was entered inside it.
 */
PACELINE_EXPORT int paceline_phase_enter(uint32_t phase);
PACELINE_EXPORT int paceline_phase_leave(uint32_t phase);

/*
 * A loader is asked for a batch, and has answered. `loader` tells loaders apart (0..); `gradients`
 * is 0 when gradients are off (then it is evaluation). `samples` of the batch, or
 * PACELINE_SAMPLES_UNKNOWN, or PACELINE_NO_BATCH when the loader is exhausted or failed.
 */
#define PACELINE_SAMPLES_UNKNOWN (-1)
#define PACELINE_NO_BATCH (-2)
PACELINE_EXPORT int paceline_loader_enter(uint64_t loader, int32_t gradients);
PACELINE_EXPORT int paceline_loader_leave(uint64_t loader, int64_t samples);

PACELINE_EXPORT int paceline_backward_enter(void);
/* From any thread: the last gradient is accumulated; until backward is left, time counts as
 * comm_exposed. */
PACELINE_EXPORT int paceline_gradients_done(void);
PACELINE_EXPORT int paceline_backward_leave(void);

/* `optimizer` is its index in the order of first use. Leaving the last optimizer of an iteration
 * ends the step. */
PACELINE_EXPORT int paceline_optimizer_enter(uint32_t optimizer);
PACELINE_EXPORT int paceline_optimizer_leave(uint32_t optimizer);

enum paceline_counter {
  PACELINE_COUNTER_SAMPLES = 0, /* instead of what the loaders delivered, from the first call on */
  PACELINE_COUNTER_TOKENS = 1,
  PACELINE_COUNTER_H2D_BYTES = 2,
  PACELINE_COUNTER_SCALER_SKIPS =
      3 /* inside an optimizer's mark: a gradient scaler left this optimizer out */
};
/* Adds to the step under way. */
PACELINE_EXPORT int paceline_count(uint32_t counter, uint64_t amount);

/* Whether marks are taken (1, the default) or ignored (0): for measuring what tracing costs within
 * one run. */
PACELINE_EXPORT int paceline_set_tracing(int32_t on);

#ifdef __cplusplus
}
#endif
#endif /* PACELINE_PACELINE_H_ */
