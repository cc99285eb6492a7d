/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fused optimizers of optim.h on NVIDIA GPUs of compute capability 8, 9 and 10. The formulas
 * and their order are the same, so the bits are, too; only the payload of a NaN may differ. The
 * driver is found at run time, and nothing of CUDA is linked.
 *
 * A table of the tensors stays in the memory of the device from step to step. The caller owns it,
 * like all device memory. The framework allocates it and copies the image of
 * paceline_optim_device_table() into it. A step then takes one launch for each 400 tensors and each
 * 8 groups. With a norm it takes two, and LAMB and LARS take one more. The addresses of gradients
 * change, so they are parameters of the launch.
 *
 * Ownership: the caller owns everything except the module that paceline_optim_device_open() loads
 * once for the process. Threads: any thread. The stream must order the calls with one table, as it
 * orders the table's contents. Streams: everything is launched on the caller's stream. Nothing
 * waits, nothing is copied and the default stream is not used.
 *
 * Graphs: a step may be captured. A replay reads lr, grad_scale and found_inf from the memory of
 * the device; everything else is as it was captured. Failure: 0 or a negative PACELINE_E*.
 * PACELINE_EINVAL: nothing was launched. PACELINE_EDEVICE: the driver refused a launch, and no
 * tensor is updated. PACELINE_EPARTIAL: the driver refused a later launch, and earlier ones have
 * updated tensors.
 */
#ifndef PACELINE_OPTIM_DEVICE_H_
#define PACELINE_OPTIM_DEVICE_H_

#include "optim.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Finds the driver and the module of the device in `folder` (such as optim-cuda12-sm_90.cubin).
 * Returns 0, or PACELINE_EDEVICE with the reason in `why`, which may be null. The result for each
 * device is cached.
 */
PACELINE_EXPORT int paceline_optim_device_open(int32_t device, const char* folder, char* why,
                                               uint64_t why_bytes);

/*
 * Compares step counts that a framework keeps in the host's memory with copies of them. steps[i]
 * points to a count, and counts[i] is its last known value. counts_are returns 1 if all are
 * unchanged, else 0. count adds 1 to both for each tensor whose grads[i] is not null.
 */
PACELINE_EXPORT int paceline_optim_counts_are(const float* const* steps, const float* counts,
                                              uint64_t tensor_count);
PACELINE_EXPORT int paceline_optim_count(float* const* steps, float* counts,
                                         const void* const* grads, uint64_t tensor_count);

/*
 * Makes the table of these tensors, whose arrays are on the device: param, state1-3, master and
 * step. Gradients are not read. PACELINE_OPTIM_FIRST marks an empty momentum buffer; the table
 * records when it is filled. *image_bytes and *table_bytes are always set; `image` may be null. The
 * table must be aligned to 256 bytes, and begin with the image.
 */
PACELINE_EXPORT int paceline_optim_device_table(const struct paceline_optim_group* groups,
                                                uint32_t group_count,
                                                const struct paceline_optim_tensor* tensors,
                                                uint64_t tensor_count, void* image,
                                                uint64_t* image_bytes, uint64_t* table_bytes);

#define PACELINE_OPTIM_SKIP_NOT_FINITE \
  1u /* a step with a gradient that is not finite changes nothing */

struct paceline_optim_device_call {
  uint32_t size;  /* sizeof(struct paceline_optim_device_call) */
  uint32_t flags; /* PACELINE_OPTIM_SKIP_NOT_FINITE */
  int32_t device;
  uint32_t group_count;
  const struct paceline_optim_group*
      groups; /* lr and all other settings may change from step to step, kind may not */
  const struct paceline_optim_tensor* tensors; /* the tensors of the table */
  uint64_t tensor_count;
  const void* const*
      grads; /* on the device; null: the tensor stays as it is and its step is not counted */
  const float* const* group_lr; /* null, or for each group null or a scalar on the device */
  void* table;
  uint64_t table_bytes;
  void* stream;            /* CUstream */
  const float* grad_scale; /* this and the following are scalars on the device, or null; gradients
                              are divided by this one */
  const float* found_inf;  /* if it is not 0, nothing changes */
  float* found_inf_out;    /* with a norm: 1 if it is not finite, else 0 */
  double* norm_out;     /* norm of all gradients together, divided by grad_scale, before clipping */
  double max_grad_norm; /* if above 0, gradients are clipped to this norm */
};

PACELINE_EXPORT int paceline_optim_device_step(const struct paceline_optim_device_call* call);

PACELINE_STATIC_ASSERT(sizeof(struct paceline_optim_device_call) == 120, "a call is 15 words");
PACELINE_AT(paceline_optim_device_call, groups, 16);
PACELINE_AT(paceline_optim_device_call, table, 56);
PACELINE_AT(paceline_optim_device_call, max_grad_norm, 112);

#ifdef __cplusplus
}
#endif
#endif /* PACELINE_OPTIM_DEVICE_H_ */
