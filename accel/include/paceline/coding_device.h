/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The codes of comm.h that need no neighbours (PACELINE_COMM_CODEC_F16, BF16, INT8, ONE_BIT) on
 * NVIDIA GPUs of compute capability 8, 9 and 10: the bytes and the rests that
 * paceline_comm_allreduce_coded_start() makes on processors. For gradients on GPUs, whose bytes go
 * over the framework's own process groups.
 *
 * An array of n values becomes: 16 bits, 2n bytes; int8, for every 256 values a float32 scale and
 * their bytes; 1-bit, for every 1024 values a float32 mean and their signs, eight to a byte. Arrays
 * lie one after another, and so do their codes.
 *
 * Ownership: the caller's, all of it on the device, except the module that
 * paceline_coding_device_open() loads, once, for the process. Nothing overlaps. Threads: any.
 * Streams: one launch on the caller's stream; nothing waits, nothing is copied and the default
 * stream is not used. Graphs: may be captured. Failure: 0 or a negative PACELINE_E*.
 * PACELINE_EINVAL: nothing was launched. PACELINE_EDEVICE: no module was opened for the device, or
 * the driver refused.
 */
#ifndef PACELINE_CODING_DEVICE_H_
#define PACELINE_CODING_DEVICE_H_

#include "comm.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Finds the driver and the device's module in `folder` (coding-cuda12-sm_90.cubin and its like). 0,
 * or PACELINE_EDEVICE with the reason in `why`, which may be null. Asked once for each device;
 * later calls repeat the answer.
 */
PACELINE_EXPORT int paceline_coding_device_open(int32_t device, const char* folder, char* why,
                                                uint64_t why_bytes);

#define PACELINE_CODING_ONTO 1u /* decoding adds to what is there already */

struct paceline_coding_device_call {
  uint32_t size;  /* sizeof(struct paceline_coding_device_call) */
  uint32_t codec; /* PACELINE_COMM_CODEC_*, one of those above */
  int32_t device;
  uint32_t flags; /* decoding: PACELINE_CODING_ONTO */
  void* stream;   /* CUstream */
  float* values;  /* `arrays` of `count` values each: read by encoding, written by decoding */
  float* rest;    /* encoding: as many, what was lost so far, and then what is lost now */
  void* codes;    /* written by encoding, read by decoding; 16-bit ones aligned to 2 bytes */
  uint64_t count;
  uint64_t arrays;
  uint32_t sources; /* decoding: so many codes, one after another, are added up in their order for
                       each array */
  uint32_t reserved;
};

/* codes = values + rest; rest = what that has lost. */
PACELINE_EXPORT int paceline_coding_device_encode(const struct paceline_coding_device_call* call);
/* values = the sum of what the codes say, with what was there before it if asked. */
PACELINE_EXPORT int paceline_coding_device_decode(const struct paceline_coding_device_call* call);

#ifdef __cplusplus
}
static_assert(sizeof(struct paceline_coding_device_call) == 72, "laid out alike by every compiler");
#endif

#endif /* PACELINE_CODING_DEVICE_H_ */
