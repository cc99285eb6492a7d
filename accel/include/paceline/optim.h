/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fused optimizers of libpaceline.so on the CPU: one pass over memory updates a whole list of
 * tensors. They know pointers, sizes and dtypes, but no framework; accel/python/paceline/optim is
 * the layer for PyTorch.
 *
 * Ownership: the caller owns everything; nothing is kept between calls. Threads: any thread may
 * call, several at once on disjoint tensors. A call uses at most the given number of threads, and
 * fewer if the work is small. It starts them and they end with it, so a fork is safe at any time.
 * If the system refuses a thread, fewer threads do the work.
 *
 * Results: class Reordered against any other implementation (sums and roundings in another order).
 * The bits do not depend on the number of threads or on the processor: scalar, AVX2 and AVX-512
 * code compute the same. Failure: 0 or a negative PACELINE_E* (paceline.h). Arguments are checked
 * before the first write, so either all tensors are updated or none.
 */
#ifndef PACELINE_OPTIM_H_
#define PACELINE_OPTIM_H_

#include "paceline.h"

#ifdef __cplusplus
extern "C" {
#endif

enum paceline_optim_kind {
  PACELINE_OPTIM_ADAM = 1, /* state1 exp_avg, state2 exp_avg_sq, state3 its maximum (AMSGrad) */
  PACELINE_OPTIM_SGD = 2,  /* state1 momentum buffer, if momentum is not 0 */
  PACELINE_OPTIM_LAMB = 3, /* state1 exp_avg, state2 exp_avg_sq; the layer is the tensor */
  PACELINE_OPTIM_LARS =
      4 /* state1 momentum buffer, if momentum is not 0; the layer is the tensor */
};

enum paceline_optim_dtype {
  PACELINE_OPTIM_F32 = 1,
  PACELINE_OPTIM_BF16 = 2,
  PACELINE_OPTIM_F16 = 3
};

#define PACELINE_OPTIM_DECOUPLED \
  1u /* Adam: weight decay shrinks the parameter instead of entering the gradient (AdamW) */
#define PACELINE_OPTIM_AMSGRAD 2u /* Adam */
#define PACELINE_OPTIM_MAXIMIZE 4u
#define PACELINE_OPTIM_NESTEROV 8u /* SGD, LARS */
#define PACELINE_OPTIM_ADAPT \
  16u /* LAMB, LARS: scales by the layer's norms; without it LAMB is AdamW and LARS is SGD */

struct paceline_optim_group {
  uint32_t size;  /* sizeof(struct paceline_optim_group) */
  uint32_t kind;  /* enum paceline_optim_kind */
  uint32_t flags; /* PACELINE_OPTIM_* */
  uint32_t reserved;
  double lr;
  double beta1;
  double beta2;
  double eps;
  double weight_decay;
  double momentum;
  double dampening;
  double trust_coefficient; /* LARS */
  double grad_multiplier;   /* of gradients: inverse loss scale times clip factor; else 1 */
};

#define PACELINE_OPTIM_FIRST                                           \
  1u /* the momentum buffer holds nothing yet: it becomes the gradient \
      */

#define PACELINE_OPTIM_STATE_AS_PARAM                                        \
  2u /* Adam, SGD: state1 to state3 hold values of param_dtype and not fp32; \
      * without a master */

/* Tensors are dense: `count` elements, with all arrays in one order. The arrays of a call do not
 * overlap. */
struct paceline_optim_tensor {
  void* param;
  const void* grad;
  float* state1; /* fp32, or as PACELINE_OPTIM_STATE_AS_PARAM says */
  float* state2;
  float* state3;
  float* master; /* fp32 copy of a 16-bit parameter, which is its rounding; or null */
  float* step;   /* Adam, LAMB: updates made so far; 1 is added */
  int64_t count;
  uint8_t param_dtype; /* enum paceline_optim_dtype */
  uint8_t grad_dtype;
  uint16_t flags; /* PACELINE_OPTIM_FIRST, PACELINE_OPTIM_STATE_AS_PARAM */
  uint32_t group; /* index into the groups */
};

PACELINE_EXPORT int paceline_optim_step(const struct paceline_optim_group* groups,
                                        uint32_t group_count,
                                        const struct paceline_optim_tensor* tensors,
                                        uint64_t tensor_count, int32_t threads);

/*
 * Computes the norm over all gradients together, in fp64 and in an order that depends on the sizes
 * only. The norm is not finite exactly if a gradient is not. Only grad, grad_dtype and count of a
 * tensor are read.
 */
PACELINE_EXPORT int paceline_optim_norm(const struct paceline_optim_tensor* tensors,
                                        uint64_t tensor_count, int32_t threads, double* norm);

/* Returns what the processor runs: "avx512", "avx2" or "scalar". The environment variable
 * PACELINE_SIMD may name a lesser one. */
PACELINE_EXPORT const char* paceline_optim_simd(void);

PACELINE_STATIC_ASSERT(sizeof(struct paceline_optim_group) == 88, "a group is 11 words");
PACELINE_STATIC_ASSERT(sizeof(struct paceline_optim_tensor) == 72, "a tensor is 9 words");
PACELINE_AT(paceline_optim_tensor, count, 56);
PACELINE_AT(paceline_optim_tensor, param_dtype, 64);
PACELINE_AT(paceline_optim_tensor, group, 68);

#ifdef __cplusplus
}
#endif
#endif /* PACELINE_OPTIM_H_ */
