// SPDX-License-Identifier: Apache-2.0
// The arithmetic of the optimizers: the update of one element, and the constants from the settings.
// It is written once. C++ compilers compile it for processors, and nvcc and NVRTC for GPUs, so it
// includes nothing but the conversions of 16-bit floats.
//
// Every compiler must divide and take square roots as IEEE says, and must not contract into fused
// multiply-adds. Then all of them compute the same bits. Only the payload of a NaN may differ. The
// functions are pure and nothing fails. They are in an unnamed namespace, so that the linker never
// uses a copy compiled for AVX-512 on other processors.
#pragma once

#include "../base/float16.hpp"

namespace paceline::optim {

using base::as_bits, base::as_float, base::Bits16, base::Bits32;
using base::bf16_to_float, base::float_to_bf16, base::float_to_half, base::half_to_float;

// The same numbers as in optim.h; step.cpp checks that.
inline constexpr Bits32 kAdam = 1, kSgd = 2, kLamb = 3, kLars = 4;
inline constexpr Bits32 kF32 = 1, kBf16 = 2, kF16 = 3;
inline constexpr Bits32 kDecoupled = 1, kAmsGrad = 2, kMaximize = 4, kNesterov = 8, kAdapt = 16;

inline constexpr int kTile = 2048;        // elements that a processor works on at a time
inline constexpr int kChunk = 4 * kTile;  // elements of one piece of work, and of one partial sum
// The order of a sum. Element i of a chunk belongs to lane i % kLanes of span i / kSpan. A lane is
// summed within its span, then over the spans of the chunk. Then the lanes are summed one after the
// other. Chunk number i belongs to column i % kColumns, and columns are added in halves. On a GPU
// each thread of a block sums one lane of one span, and one column. A processor keeps the lanes in
// registers.
inline constexpr int kLanes = 16;
inline constexpr int kSpan = 512;
inline constexpr int kColumns = 256;
static_assert(kTile % kSpan == 0 && kSpan % kLanes == 0 && kChunk / kSpan * kLanes == kColumns);

// Computes old + (value - old) * weight. If the weight is large, the base is `value`, so that both
// ends are exact.
struct Blend {
  float factor;
  bool from_old;
};

struct AdamConstants {
  float grad_multiplier;
  float keep;   // factor of the parameter: 1 - lr * decoupled decay
  float decay;  // factor of the parameter in the gradient (Adam) or in the update (LAMB)
  Blend first;
  float second_kept;  // factors of the second moment and of the squared gradient
  float second_entering;
  float first_correction;   // LAMB: 1 / (1 - beta1^t)
  float second_correction;  // 1 / sqrt(1 - beta2^t)
  float eps;
  float rate;  // step size, bias correction included
};

struct SgdConstants {
  float grad_multiplier;
  float decay;
  float trust;  // LARS: factor of the gradient and of the decay
  float momentum;
  float entering;  // 1 - dampening
  float rate;
  bool first;
  bool nesterov;
};

enum class Momentum { kNone, kFirst, kRunning };

namespace {

#if defined(__CUDACC__)
PACELINE_INLINE float root(float value) { return __fsqrt_rn(value); }
PACELINE_INLINE double root(double value) { return __dsqrt_rn(value); }
#else
PACELINE_INLINE float root(float value) { return __builtin_sqrtf(value); }
PACELINE_INLINE double root(double value) { return __builtin_sqrt(value); }
#endif

// -- one element
// ------------------------------------------------------------

PACELINE_INLINE double squared(float value, float factor) {
  const auto wide = static_cast<double>(value * factor);
  return wide * wide;
}

PACELINE_INLINE float blend(float old, float value, Blend by) {
  return (by.from_old ? old : value) + (value - old) * by.factor;
}

// As the framework writes it: an infinite variance stays infinite, where a blend would make it NaN.
PACELINE_INLINE float next_variance(float old, float gradient, const AdamConstants& c) {
  return old * c.second_kept + c.second_entering * gradient * gradient;
}

template <bool kWithMaximum, bool kDecayInGradient>
PACELINE_INLINE void adam_element(float& p, float g, float& m, float& v, float& maximum,
                                  const AdamConstants& c) {
  float gradient = g * c.grad_multiplier;
  const float kept = p * c.keep;
  if constexpr (kDecayInGradient) gradient += c.decay * p;
  const float moment = blend(m, gradient, c.first);
  const float variance = next_variance(v, gradient, c);
  m = moment;
  v = variance;
  float spread = variance;
  if constexpr (kWithMaximum) {
    // This order keeps a NaN, as the framework's maximum does.
    spread = maximum > variance ? maximum : variance;
    spread = maximum == maximum ? spread : maximum;
    maximum = spread;
  }
  p = kept - c.rate * (moment / (root(spread) * c.second_correction + c.eps));
}

// LAMB's update before the layer's factor. Computing it twice costs less than storing it.
PACELINE_INLINE float lamb_update(float p, float m, float v, const AdamConstants& c) {
  const float denominator = root(v) * c.second_correction + c.eps;
  return m * c.first_correction / denominator + c.decay * p;
}

// Returns the update.
PACELINE_INLINE float lamb_moments_element(float p, float g, float& m, float& v,
                                           const AdamConstants& c) {
  const float gradient = g * c.grad_multiplier;
  m = blend(m, gradient, c.first);
  v = next_variance(v, gradient, c);
  return lamb_update(p, m, v, c);
}

template <Momentum kMomentum, bool kWithNesterov>
PACELINE_INLINE void sgd_element(float& p, float g, float& buffer, const SgdConstants& c) {
  float update = g * c.grad_multiplier;
  update = (update + c.decay * p) * c.trust;
  if constexpr (kMomentum != Momentum::kNone) {
    float held = update;
    if constexpr (kMomentum == Momentum::kRunning) held = buffer * c.momentum + update * c.entering;
    buffer = held;
    update = kWithNesterov ? update + held * c.momentum : held;
  }
  p -= c.rate * update;
}

// -- constants
// ------------------------------------------------------------

// Raises `base` to a whole number by squaring. The bits are the same everywhere, which a library's
// pow does not promise.
PACELINE_INLINE double power(double base, double times) {
  // A value that is no number of steps becomes 1, because converting it would be undefined.
  unsigned long long left =
      times >= 1 ? static_cast<unsigned long long>(times < 1e15 ? times : 1e15) : 0;
  double result = 1;
  for (; left != 0; left >>= 1) {
    if ((left & 1) != 0) result *= base;
    base *= base;
  }
  return result;
}

PACELINE_INLINE Blend blend_by(double weight) {
  if (weight < 0.5) return {static_cast<float>(weight), true};
  return {static_cast<float>(weight - 1), false};
}

// The factor that torch.nn.utils.clip_grad_norm_ computes. A norm that is NaN stays NaN.
PACELINE_INLINE double clip_factor(double norm, double limit) {
  const double factor = limit / (norm + 1e-6);
  return factor > 1 ? 1 : factor;
}

// Group has the fields of paceline_optim_group that this function names.
template <typename Group>
PACELINE_INLINE float multiplier(const Group& group, double grad_multiplier) {
  return static_cast<float>((group.flags & kMaximize) != 0 ? -grad_multiplier : grad_multiplier);
}

// `step` includes this step. `lr` and `grad_multiplier` may differ from the group's. LAMB's rate
// lacks the layer's factor.
template <typename Group>
PACELINE_INLINE AdamConstants adam_constants(const Group& group, double lr, double grad_multiplier,
                                             double step) {
  const double first_left = 1 - power(group.beta1, step);
  const double second_left = 1 - power(group.beta2, step);
  const bool lamb = group.kind == kLamb;
  const bool decoupled = (group.flags & kDecoupled) != 0;
  AdamConstants c{};
  c.grad_multiplier = multiplier(group, grad_multiplier);
  c.keep = static_cast<float>(!lamb && decoupled ? 1 - lr * group.weight_decay : 1.0);
  c.decay = static_cast<float>(lamb || !decoupled ? group.weight_decay : 0.0);
  c.first = blend_by(1 - group.beta1);
  c.second_kept = static_cast<float>(group.beta2);
  c.second_entering = static_cast<float>(1 - group.beta2);
  c.first_correction = static_cast<float>(1 / first_left);
  c.second_correction = static_cast<float>(1 / root(second_left));
  c.eps = static_cast<float>(group.eps);
  c.rate = static_cast<float>(lamb ? lr : lr / first_left);
  return c;
}

template <typename Group>
PACELINE_INLINE SgdConstants sgd_constants(const Group& group, double lr, double grad_multiplier,
                                           bool first) {
  SgdConstants c{};
  c.grad_multiplier = multiplier(group, grad_multiplier);
  c.decay = static_cast<float>(group.weight_decay);
  c.trust = 1;
  c.momentum = static_cast<float>(group.momentum);
  c.entering = static_cast<float>(1 - group.dampening);
  c.rate = static_cast<float>(lr);
  c.first = first;
  c.nesterov = (group.flags & kNesterov) != 0;
  return c;
}

// The factors of a layer, from the squares of its parameter and of its update (LAMB) or gradient
// (LARS).
template <typename Group>
PACELINE_INLINE float lamb_rate(const Group& group, double lr, double param_squares,
                                double update_squares) {
  const double param = root(param_squares);
  const double update = root(update_squares);
  const bool adapts = (group.flags & kAdapt) != 0 && param > 0 && update > 0;
  return static_cast<float>(lr * (adapts ? param / update : 1.0));
}

template <typename Group>
PACELINE_INLINE float lars_trust(const Group& group, double param_squares, double grad_squares) {
  const double param = root(param_squares);
  const double grad = root(grad_squares);
  const bool adapts = (group.flags & kAdapt) != 0 && param > 0 && grad > 0;
  const double trust =
      group.trust_coefficient * param / (grad + group.weight_decay * param + group.eps);
  return static_cast<float>(adapts ? trust : 1.0);
}

}  // namespace
}  // namespace paceline::optim
