/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fused optimizers of optim.h on NVIDIA GPUs of compute capability 8, 9 and 10: the same
 * formulas in the same order, so the same bits (a NaN stays one, with whichever payload). The
 * driver is found at run time; nothing of CUDA is linked.
 *
 * A table of the tensors stays in the device's memory from step to step. It is the caller's, as all
 * device memory is: allocated by the framework, filled by a copy of the image that
 * paceline_optim_device_table() makes. A step is then one launch (two with a norm; LAMB and LARS
 * one more) for each 400 tensors, and each 8 groups. Gradients' addresses, which move, travel as
 * parameters of the launch.
 *
 * Ownership: the caller's, all of it, except the module that paceline_optim_device_open() loads,
 * once, for the process. Threads: any thread; calls with one table must be ordered by their stream,
 * as its contents are. Streams: everything is launched on the caller's stream. Nothing waits,
 * nothing is copied and the default stream is not used. Graphs: a step may be captured. lr,
 * grad_scale and found_inf are read from the device's memory then; everything else is as it was.
 * Failure: 0 or a negative PACELINE_E*. PACELINE_EINVAL: nothing was launched. PACELINE_EDEVICE:
 * the driver refused a launch, and no tensor is updated. PACELINE_EPARTIAL: it refused a later one,
 * and tensors of those before it are updated.
 */
#ifndef PACELINE_OPTIM_DEVICE_H_
#define PACELINE_OPTIM_DEVICE_H_

#include "optim.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Finds the driver and the device's module in `folder` (optim-cuda12-sm_90.cubin and its like). 0,
 * or PACELINE_EDEVICE with the reason in `why`, which may be null. Asked once for each device;
 * later calls repeat the answer.
 */
PACELINE_EXPORT int paceline_optim_device_open(int32_t device, const char* folder, char* why,
                                               uint64_t why_bytes);

/*
 * 0 where the driver is there and `folder` has a module for each of its devices; else
 * PACELINE_EDEVICE with the reason. Touches no device, so ranks may agree by it before each has
 * one.
 */
PACELINE_EXPORT int paceline_optim_device_everywhere(const char* folder, char* why,
                                                     uint64_t why_bytes);

/*
 * Step counts that a framework keeps in the host's memory, beside those on the device: steps[i]
 * points to one, counts[i] is what it was. counts_are: 1 if each still is, 0 if one was changed.
 * count: adds 1 to both where grads[i] is not null.
 */
PACELINE_EXPORT int paceline_optim_counts_are(const float* const* steps, const float* counts,
                                              uint64_t tensor_count);
PACELINE_EXPORT int paceline_optim_count(float* const* steps, float* counts,
                                         const void* const* grads, uint64_t tensor_count);

/*
 * The table of these tensors, whose arrays are on the device: param, state1-3, master and step.
 * Their gradients are not looked at. PACELINE_OPTIM_FIRST says that a momentum buffer holds
 * nothing; the table remembers when it does. *image_bytes and *table_bytes are always set; `image`
 * may be null. The table must be aligned to 256 bytes, and begin with the image.
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
      groups; /* lr and all else may change from step to step, kind may not */
  const struct paceline_optim_tensor* tensors; /* those of the table */
  uint64_t tensor_count;
  const void* const*
      grads; /* on the device; null: the tensor stays as it is, and its step is not counted */
  const float* const* group_lr; /* null, or for each group null or a scalar on the device */
  void* table;
  uint64_t table_bytes;
  void* stream;            /* CUstream */
  const float* grad_scale; /* the following are scalars on the device, or null. Gradients are
                              divided by this one */
  const float* found_inf;  /* not 0: nothing changes */
  float* found_inf_out;    /* with a norm: 1 if it is not finite, else 0 */
  double* norm_out;        /* of all gradients together, divided by grad_scale, before clipping */
  double max_grad_norm;    /* above 0: gradients are clipped to this norm */
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
