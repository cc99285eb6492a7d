// SPDX-License-Identifier: Apache-2.0
// The loops over the formulas of formulas.hpp. One source for each instruction set includes this
// file. Each is compiled with its own flags and defines PACELINE_KERNELS as the name of its table.
// Everything is in an unnamed namespace and uses nothing of the standard library. So the linker
// never uses a copy compiled for AVX-512 on other processors.
#include "base/loops.hpp"
#include "kernels.hpp"

namespace paceline::optim {
namespace {

using base::each, base::fetch, base::i64, base::kAhead;

// Written with vectors, because memory access limits this pass. In a plain loop over lanes,
// compilers keep the sums in memory.
#if defined(__AVX512F__)
constexpr int kWidth = 8;
#elif defined(__AVX2__)
constexpr int kWidth = 4;
#else
constexpr int kWidth = 2;
#endif
using Doubles [[gnu::vector_size(kWidth * sizeof(double))]] = double;
using Floats [[gnu::vector_size(kWidth * sizeof(float))]] = float;

void squares(const float* __restrict in, float factor, i64 count, double* __restrict sums) {
  constexpr int kVectors = kLanes / kWidth;
  for (i64 begin = 0; begin < count; begin += kSpan) {
    const i64 end = begin + kSpan < count ? begin + kSpan : count;
    Doubles lane[kVectors] = {};
    i64 i = begin;
    for (; i + kLanes <= end; i += kLanes) {
      __builtin_prefetch(in + i + kAhead);
      for (int j = 0; j < kVectors; ++j) {
        Floats values;
        __builtin_memcpy(&values, in + i + j * kWidth, sizeof values);
        const Doubles wide = __builtin_convertvector(values * factor, Doubles);
        lane[j] += wide * wide;
      }
    }
    double span[kLanes];
    __builtin_memcpy(&span, lane, sizeof span);
    for (int j = 0; i < end; ++i, ++j) span[j] += squared(in[i], factor);
    for (int j = 0; j < kLanes; ++j) sums[j] += span[j];
  }
}

template <bool kWithMaximum, bool kDecayInGradient>
void adam_loop(float* __restrict p, const float* __restrict g, float* __restrict m,
               float* __restrict v, float* __restrict maximum, i64 count, const AdamConstants c) {
  const auto ahead = [=](i64 i) {
    fetch(p + i, g + i, m + i, v + i);
    if constexpr (kWithMaximum) fetch(maximum + i);
  };
  each(count, ahead, [=](i64 i) {
    // Local variables, because a reference into an array loses what __restrict promises.
    float param = p[i], moment = m[i], variance = v[i], most = 0;
    if constexpr (kWithMaximum) most = maximum[i];
    adam_element<kWithMaximum, kDecayInGradient>(param, g[i], moment, variance, most, c);
    p[i] = param;
    m[i] = moment;
    v[i] = variance;
    if constexpr (kWithMaximum) maximum[i] = most;
  });
}

void adam(float* p, const float* g, float* m, float* v, float* maximum, i64 count,
          const AdamConstants& c) {
  const bool in_gradient = c.decay != 0.0F;
  if (maximum != nullptr) {
    in_gradient ? adam_loop<true, true>(p, g, m, v, maximum, count, c)
                : adam_loop<true, false>(p, g, m, v, maximum, count, c);
  } else {
    in_gradient ? adam_loop<false, true>(p, g, m, v, maximum, count, c)
                : adam_loop<false, false>(p, g, m, v, maximum, count, c);
  }
}

void lamb_moments(const float* __restrict p, const float* __restrict g, float* __restrict m,
                  float* __restrict v, i64 count, const AdamConstants& constants,
                  double* __restrict param_sums, double* __restrict update_sums) {
  const AdamConstants c = constants;
  float update[kTile];
  each(
      count, [=](i64 i) { fetch(p + i, g + i, m + i, v + i); },
      [=, &update](i64 i) {
        float moment = m[i], variance = v[i];
        update[i] = lamb_moments_element(p[i], g[i], moment, variance, c);
        m[i] = moment;
        v[i] = variance;
      });
  squares(p, 1.0F, count, param_sums);
  squares(update, 1.0F, count, update_sums);
}

void lamb_apply(float* __restrict p, const float* __restrict m, const float* __restrict v,
                i64 count, const AdamConstants& constants) {
  const AdamConstants c = constants;
  each(
      count, [=](i64 i) { fetch(p + i, m + i, v + i); },
      [=](i64 i) { p[i] -= c.rate * lamb_update(p[i], m[i], v[i], c); });
}

template <Momentum kMomentum, bool kWithNesterov>
void sgd_loop(float* __restrict p, const float* __restrict g, float* __restrict buffer, i64 count,
              const SgdConstants c) {
  const auto ahead = [=](i64 i) {
    fetch(p + i, g + i);
    if constexpr (kMomentum != Momentum::kNone) fetch(buffer + i);
  };
  each(count, ahead, [=](i64 i) {
    float param = p[i], held = 0;
    if constexpr (kMomentum == Momentum::kRunning) held = buffer[i];
    sgd_element<kMomentum, kWithNesterov>(param, g[i], held, c);
    p[i] = param;
    if constexpr (kMomentum != Momentum::kNone) buffer[i] = held;
  });
}

void sgd(float* p, const float* g, float* buffer, i64 count, const SgdConstants& c) {
  if (buffer == nullptr) {
    sgd_loop<Momentum::kNone, false>(p, g, buffer, count, c);
  } else if (c.first) {
    c.nesterov ? sgd_loop<Momentum::kFirst, true>(p, g, buffer, count, c)
               : sgd_loop<Momentum::kFirst, false>(p, g, buffer, count, c);
  } else {
    c.nesterov ? sgd_loop<Momentum::kRunning, true>(p, g, buffer, count, c)
               : sgd_loop<Momentum::kRunning, false>(p, g, buffer, count, c);
  }
}

}  // namespace

#define PACELINE_STRING_OF(name) #name
#define PACELINE_STRING(name) PACELINE_STRING_OF(name)
const Kernels PACELINE_KERNELS{
    PACELINE_STRING(PACELINE_LEVEL), PACELINE_HALVES, squares, adam, lamb_moments, lamb_apply, sgd};

}  // namespace paceline::optim
