/* SPDX-License-Identifier: Apache-2.0 */
/* How a test plays CUPTI (fake_cupti.cpp). All times are CLOCK_MONOTONIC. Thread-safe. */
#pragma once

#include <cstdint>

extern "C" {

struct FakeCuptiState {
  int subscribers; /* now */
  int enabled;     /* kinds that are enabled now */
  int serializing; /* KERNEL was enabled */
  int finalized;   /* cuptiFinalize was called */
  int enables;     /* calls of cuptiActivityEnable */
  int lent;        /* buffers that CUPTI holds */
  int latency;     /* latency timestamps are on */
};

enum FakeCuptiWork { kFakeKernel = 10, kFakeMemcpy = 1, kFakeMemset = 2, kFakeGraph = 51 };

struct FakeCuptiRecord {
  int work;
  const char* name;    /* of a kernel */
  std::uint64_t start; /* 0: CUPTI has no times */
  std::uint64_t end;
  std::uint64_t queued; /* 0: not known */
  std::uint64_t bytes;
  int copy_kind; /* 1: host to device */
  std::uint32_t device;
  std::uint32_t stream;
};

/* Does what the device would: the record counts if its kind is enabled since before its start. */
void fake_cupti_play(const FakeCuptiRecord* record);
/* CUPTI's clock: its value at CLOCK_MONOTONIC 0, and its rate. */
void fake_cupti_clock(std::uint64_t offset, double rate);
/* Records say that their work was so much earlier than it was. */
void fake_cupti_misdate(std::uint64_t nanoseconds);
/* The clock stands still from now on. */
void fake_cupti_stop_clock();
/* Another profiler subscribes (1) or unsubscribes (0). */
void fake_cupti_take(int taken);
/* All calls of cuptiSubscribe and cuptiActivityEnable return this status; 0: they work. */
void fake_cupti_refuse(int status);
/* Buffers come back only at the n-th flush after the last record; -1: only if it is forced. */
void fake_cupti_late(int flushes);
/* The next delivery says that so many records were dropped. */
void fake_cupti_drop(int records);
void fake_cupti_state(FakeCuptiState* state);
}
