/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The C ABI of libpaceline_cupti.so, which the CUDA driver loads (CUDA_INJECTION64_PATH). For a few
 * steps of every 500 it records what the device does, and adds the device's partition of these
 * steps to the ring of libpaceline.so.
 *
 * Ownership: the library owns one thread; callers own nothing. Threads: any thread may call every
 * function. Failure: 0 or a negative PACELINE_E*; training goes on. A forked child gets
 * PACELINE_EFORKED.
 */
#ifndef PACELINE_WINDOW_H_
#define PACELINE_WINDOW_H_

#include "paceline.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PACELINE_WINDOW_STEPS_MAX 64

/* Asks for a window of so many steps, from 1 to PACELINE_WINDOW_STEPS_MAX, as soon as possible.
 * Returns at once. PACELINE_EDISABLED if there are no windows in this process. */
PACELINE_EXPORT int paceline_window_request(uint32_t steps);

/* Another profiler is about to start in this process: ends an open window and keeps CUPTI free
 * until as many calls of paceline_window_resume() follow. Waits until CUPTI is free, at most 2 s.
 */
PACELINE_EXPORT int paceline_window_pause(void);
PACELINE_EXPORT int paceline_window_resume(void);

/* What the windows have done so far. `size` is filled by the caller: sizeof(struct
 * paceline_window_report). */
struct paceline_window_totals {
  uint32_t size;
  uint32_t windows;   /* complete ones */
  uint32_t steps;     /* whose device partition was added to the ring */
  uint32_t cancelled; /* windows that another profiler or the end of the training cut short */
  uint64_t lost;      /* records that CUPTI dropped, that did not fit, or that had no times */
  uint64_t cupti_ns;  /* CUPTI's own work in all windows, as CUPTI tells it */
  /* Medians of the wall time of steps, 0 if not known: before the first window, in windows, and
   * after the first window outside of windows. The last less the first is the residual cost. */
  uint64_t before_ns;
  uint64_t inside_ns;
  uint64_t after_ns;
  char off[256]; /* why there are no windows now; empty: nothing is known that prevents them */
};
PACELINE_EXPORT int paceline_window_report(struct paceline_window_totals* report);

#ifdef __cplusplus
}
#endif
#endif /* PACELINE_WINDOW_H_ */
