/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operators of vision models on NVIDIA GPUs of compute capability 8, 9 and 10. The driver is found
 * at run time, and nothing of CUDA is linked.
 *
 * Arrays are on the device, and dense unless strides are given. What the words "on the host" stand
 * beside is on the host, and is read before the call returns.
 *
 * Ownership: the caller owns everything except the modules that paceline_ops_device_open() loads
 * once for the process. Threads: any. Streams: everything is launched on the caller's stream.
 * Nothing waits, nothing is copied, and the default stream is not used, so calls may be captured
 * into a graph. Failure: 0 or a negative PACELINE_E*. PACELINE_EINVAL: nothing was launched.
 * PACELINE_EDEVICE: the device was not opened, or the driver refused a launch, and the results have
 * no meaning.
 */
#ifndef PACELINE_OPS_DEVICE_H_
#define PACELINE_OPS_DEVICE_H_

#include "ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Finds the driver and the modules of the device in `folder` (such as fcos3d-cuda12-sm_90.cubin).
 * Returns 0, or PACELINE_EDEVICE with the reason in `why`, which may be null. The result for each
 * device is cached.
 */
PACELINE_EXPORT int paceline_ops_device_open(int32_t device, const char* folder, char* why,
                                             uint64_t why_bytes);

/* The targets of ops.h. On the host: the structures, and `offsets`. At most 8 levels. */
PACELINE_EXPORT int paceline_fcos3d_targets_device(const struct paceline_fcos3d* targets,
                                                   int32_t device, void* stream);

/*
 * The assignment of ops.h. On the host: the structure, and `offsets`. Scores are not checked, and
 * `bad_score` is not written. A ground truth whose label is no class takes no prior. `room` has 16
 * bytes for each prior of each image, and is aligned to 8.
 */
PACELINE_EXPORT int paceline_simota_assign_device(const struct paceline_simota* assignment,
                                                  void* room, int32_t device, void* stream);

enum {
  PACELINE_ATTENTION_MOST_TOKENS = 64, /* of a window */
  PACELINE_ATTENTION_HEAD_DIM = 32,
  PACELINE_ATTENTION_F16 = 0,
  PACELINE_ATTENTION_BF16 = 1
};

/*
 * Attention within windows: out = softmax(scale * q k^T + bias + mask) v for each head of each
 * window. The bias of a pair of tokens is the head's number of one entry of a table. Window w has
 * the mask w % masks.
 *
 * q, k, v and their gradients have the same strides: (windows, tokens, heads, 32), in which the
 * numbers of a head lie side by side, and the heads of a token. They may be views of one array.
 * Their addresses are multiples of 16 bytes, and strides multiples of 8 elements.
 */
struct paceline_attention {
  uint32_t size; /* sizeof(struct paceline_attention) */
  uint32_t type; /* of q, k, v, out and their gradients: PACELINE_ATTENTION_F16 or _BF16 */
  int64_t windows, masks, tokens, heads, entries; /* windows: a multiple of masks */
  int64_t window_stride, token_stride;            /* in elements */
  int64_t slots; /* blocks that share the windows of a head, 1 to windows: those of the device */
  const void* q;
  const void* k;
  const void* v;
  const float* table;   /* (entries, heads) */
  const int64_t* index; /* (tokens, tokens), each in [-entries, entries); others give NaN */
  const float* mask;    /* (masks, tokens, tokens), or null: masks is 1 then */
  void* out;            /* (windows, tokens, heads, 32) */
  /* For the backward. */
  const void* out_grad; /* as `out` */
  void* q_grad;
  void* k_grad;
  void* v_grad;
  float* table_grad; /* (entries, heads) */
  float* sums;       /* room for (slots, heads, tokens, tokens) */
  float scale;
  uint32_t reserved; /* 0 */
};

/* Reads what stands before `out`, and writes `out`. */
PACELINE_EXPORT int paceline_attention_forward(const struct paceline_attention* attention,
                                               int32_t device, void* stream);

/* Reads what stands before `out`, and `out_grad`. Writes the gradients, in an order of sums that
 * `slots` sets. */
PACELINE_EXPORT int paceline_attention_backward(const struct paceline_attention* attention,
                                                int32_t device, void* stream);

PACELINE_STATIC_ASSERT(sizeof(struct paceline_attention) == 184, "attention is 23 words");

#ifdef __cplusplus
}
#endif
#endif /* PACELINE_OPS_DEVICE_H_ */
