// SPDX-License-Identifier: Apache-2.0
// What the threads of a block do together in the kernels of optim.cu, for nvcc and NVRTC. They read
// and write elements four at a time, sum in a fixed order, and update elements by formulas.hpp.
// Only optim.cu includes this file; through it, so does the tests' fake driver.
#pragma once

#include "table.hpp"

namespace paceline::optim::device {
namespace {

// -- memory
// ------------------------------------------------------------

// `kWide` elements as they lie in memory. An fp32 element takes a word. 16-bit elements take halves
// of words; a single one takes the first half.
template <int kWide>
struct Raw {
  Bits32 word[kWide];
};

template <int kWide>
PACELINE_INLINE Raw<kWide> load(const void* data, Bits32 dtype, Int64 at) {
  Raw<kWide> raw = {};
  if constexpr (kWide == 4) {
    if (dtype == kF32) {
      const uint4 words = *reinterpret_cast<const uint4*>(static_cast<const float*>(data) + at);
      raw.word[0] = words.x;
      raw.word[1] = words.y;
      raw.word[2] = words.z;
      raw.word[3] = words.w;
    } else {
      const uint2 words = *reinterpret_cast<const uint2*>(static_cast<const Bits16*>(data) + at);
      raw.word[0] = words.x;
      raw.word[1] = words.y;
    }
  } else {
    raw.word[0] =
        dtype == kF32 ? static_cast<const Bits32*>(data)[at] : static_cast<const Bits16*>(data)[at];
  }
  return raw;
}

PACELINE_INLINE float widen(Bits16 bits, Bits32 dtype) {
  return dtype == kBf16 ? bf16_to_float(bits) : half_to_float(bits);
}

template <int kWide>
PACELINE_INLINE float element(const Raw<kWide>& raw, int i, Bits32 dtype) {
  if (dtype == kF32) return as_float(raw.word[i]);
  const Bits32 word = raw.word[i / 2];
  return widen(static_cast<Bits16>(i % 2 == 0 ? word : word >> 16), dtype);
}

template <int kWide>
struct Values {
  float value[kWide];
};

template <int kWide>
PACELINE_INLINE Values<kWide> load_floats(const float* data, Int64 at) {
  Values<kWide> values = {};
  const Raw<kWide> raw = load<kWide>(data, kF32, at);
#pragma unroll
  for (int i = 0; i < kWide; ++i) values.value[i] = as_float(raw.word[i]);
  return values;
}

template <int kWide>
PACELINE_INLINE void store_floats(float* data, Int64 at, const Values<kWide>& values) {
  if constexpr (kWide == 4) {
    *reinterpret_cast<uint4*>(data + at) =
        uint4{as_bits(values.value[0]), as_bits(values.value[1]), as_bits(values.value[2]),
              as_bits(values.value[3])};
  } else {
    data[at] = values.value[0];
  }
}

PACELINE_INLINE Bits32 narrow(float value, Bits32 dtype) {
  return dtype == kBf16 ? float_to_bf16(value) : float_to_half(value);
}

template <int kWide>
PACELINE_INLINE void store_halves(void* data, Bits32 dtype, Int64 at, const Values<kWide>& values) {
  auto* halves = static_cast<Bits16*>(data) + at;
  if constexpr (kWide == 4) {
    const Bits32 low = narrow(values.value[0], dtype) | narrow(values.value[1], dtype) << 16;
    const Bits32 high = narrow(values.value[2], dtype) | narrow(values.value[3], dtype) << 16;
    *reinterpret_cast<uint2*>(halves) = uint2{low, high};
  } else {
    *halves = static_cast<Bits16>(narrow(values.value[0], dtype));
  }
}

// Reads a value that other blocks of the same launch write. It bypasses the cache of this
// multiprocessor.
PACELINE_INLINE double fresh(const double* value) {
  return *const_cast<const volatile double*>(value);
}

// -- a block
// ------------------------------------------------------------

// The state that the threads of a block share. Thread 0 fills it in.
struct Block {
  DeviceTensor tensor;
  DeviceGroup group;
  const void* grad;
  Int64 chunk;  // number of the chunk in the table
  Int64 begin;
  int count;
  bool idle;  // the elements need no work
  bool skip;  // this step changes nothing
  bool last;  // this block arrived last
  double lr;
  AdamConstants adam;
  SgdConstants sgd;
};

PACELINE_INLINE bool by_layer(const DeviceGroup& group) {
  return group.kind == kLamb || group.kind == kLars;
}
PACELINE_INLINE bool has_moments(const DeviceGroup& group) {
  return group.kind == kAdam || group.kind == kLamb;
}

PACELINE_INLINE bool skipped(const Launch& launch) {
  return (launch.found_inf != nullptr && *launch.found_inf != 0) ||
         (launch.has_norm != 0 && launch.control->skip != 0);
}

PACELINE_INLINE void find_chunk(const Launch& launch, Block& block) {
  block.idle = blockIdx.x >= launch.chunk_count;
  if (block.idle) return;
  block.chunk = launch.first_chunk + blockIdx.x;
  const DeviceChunk chunk = launch.chunks[block.chunk];
  block.tensor = launch.tensors[chunk.tensor];
  block.group = launch.groups[block.tensor.group - launch.first_group];
  block.grad = launch.grads[chunk.tensor - launch.first_tensor];
  block.begin = chunk.begin;
  block.count = static_cast<int>(chunk.count);
  block.idle = block.grad == nullptr;
}

// Sets the constants of this step, which is not counted yet.
PACELINE_INLINE void set_constants(const Launch& launch, Block& block) {
  const DeviceGroup& group = block.group;
  block.lr = group.device_lr != nullptr ? static_cast<double>(*group.device_lr) : group.lr;
  const double unscale =
      launch.grad_scale != nullptr ? 1 / static_cast<double>(*launch.grad_scale) : 1.0;
  const double multiplier =
      group.grad_multiplier * (launch.has_norm != 0 ? launch.control->multiplier : unscale);
  if (has_moments(group)) {
    block.adam =
        adam_constants(group, block.lr, multiplier, static_cast<double>(*block.tensor.step) + 1);
  } else {
    const Bits32 tensor = launch.chunks[block.chunk].tensor;
    block.sgd = sgd_constants(group, block.lr, multiplier, launch.states[tensor].started == 0);
  }
}

// Returns whether four elements can be read at once from every array of the chunk.
PACELINE_INLINE bool aligned(const Block& block) {
  const auto grad = reinterpret_cast<unsigned long long>(block.grad);
  return block.tensor.aligned != 0 && grad % (block.tensor.grad_dtype == kF32 ? 16 : 8) == 0;
}

// Calls work<4>(at) for every four elements if the block is aligned, and work<1>(at) for each other
// one. `at` counts from the start of the tensor.
template <typename Work>
PACELINE_INLINE void each_element(const Block& block, const Work& work) {
  const int wide = aligned(block) ? block.count / 4 * 4 : 0;
  for (int i = static_cast<int>(threadIdx.x) * 4; i < wide; i += kThreads * 4)
    work.template run<4>(block.begin + i);
  for (int i = wide + static_cast<int>(threadIdx.x); i < block.count; i += kThreads)
    work.template run<1>(block.begin + i);
}

// Returns whether this block is the last of `all` to arrive. The last one resets the count to 0 for
// the next launch.
PACELINE_INLINE bool arrive(Bits32* count, Int64 all) {
  __threadfence();
  const bool last = atomicAdd(count, 1U) + 1 == all;
  if (last) *count = 0;
  __threadfence();
  return last;
}

// -- sums
// ------------------------------------------------------------

// Returns to thread 0 the sum over a chunk, made from each thread's lane of its span. All threads
// call it.
PACELINE_INLINE double lane_sum(double own, double* space) {
  const int thread = static_cast<int>(threadIdx.x);
  space[thread] = own;
  __syncthreads();
  double lane = 0;
  if (thread < kLanes)
    for (int span = 0; span < kThreads / kLanes; ++span) lane += space[span * kLanes + thread];
  __syncthreads();
  if (thread < kLanes) space[thread] = lane;
  __syncthreads();
  double total = 0;
  if (thread == 0)
    for (int i = 0; i < kLanes; ++i) total += space[i];
  __syncthreads();
  return total;
}

// Returns to all threads the sum of the sums of chunks: every second number from `sums` on. All
// threads call it.
PACELINE_INLINE double column_sum(const double* sums, Int64 count, double* space) {
  const int thread = static_cast<int>(threadIdx.x);
  double column = 0;
  for (Int64 i = thread; i < count; i += kColumns) column += fresh(sums + 2 * i);
  space[thread] = column;
  __syncthreads();
  for (int half = kColumns / 2; half > 0; half /= 2) {
    if (thread < half) space[thread] += space[thread + half];
    __syncthreads();
  }
  const double total = space[0];
  __syncthreads();
  return total;
}

// Calls value(at) in order for each element of this thread's lane of its span.
template <typename Value>
PACELINE_INLINE void each_of_lane(const Block& block, const Value& value) {
  const int thread = static_cast<int>(threadIdx.x);
  const int begin = thread / kLanes * kSpan;
  const int end = begin + kSpan < block.count ? begin + kSpan : block.count;
#pragma unroll 8
  for (int i = begin + thread % kLanes; i < end; i += kLanes) value(block.begin + i);
}

// -- updates
// ------------------------------------------------------------

// Where the parameter is read in fp32: its master, or its own value.
PACELINE_INLINE const void* source_of(const DeviceTensor& tensor) {
  return tensor.master != nullptr ? tensor.master : tensor.param;
}
PACELINE_INLINE Bits32 source_dtype(const DeviceTensor& tensor) {
  return tensor.master != nullptr ? kF32 : tensor.param_dtype;
}

template <int kWide>
PACELINE_INLINE void store_param(const DeviceTensor& tensor, Int64 at,
                                 const Values<kWide>& values) {
  if (tensor.master != nullptr) store_floats(tensor.master, at, values);
  if (tensor.param_dtype == kF32)
    store_floats(static_cast<float*>(tensor.param), at, values);
  else
    store_halves(tensor.param, tensor.param_dtype, at, values);
}

template <bool kWithMaximum, bool kDecayInGradient>
struct Adam {
  const Block& block;

  template <int kWide>
  PACELINE_INLINE void run(Int64 at) const {
    const DeviceTensor& tensor = block.tensor;
    // All loads come before the first use, so that as many bytes as possible are in flight.
    const Raw<kWide> grads = load<kWide>(block.grad, tensor.grad_dtype, at);
    const Raw<kWide> params = load<kWide>(source_of(tensor), source_dtype(tensor), at);
    Values<kWide> moments = load_floats<kWide>(tensor.state1, at);
    Values<kWide> variances = load_floats<kWide>(tensor.state2, at);
    Values<kWide> most = {};
    if constexpr (kWithMaximum) most = load_floats<kWide>(tensor.state3, at);
    Values<kWide> updated = {};
#pragma unroll
    for (int i = 0; i < kWide; ++i) {
      updated.value[i] = element(params, i, source_dtype(tensor));
      adam_element<kWithMaximum, kDecayInGradient>(
          updated.value[i], element(grads, i, tensor.grad_dtype), moments.value[i],
          variances.value[i], most.value[i], block.adam);
    }
    store_floats(tensor.state1, at, moments);
    store_floats(tensor.state2, at, variances);
    if constexpr (kWithMaximum) store_floats(tensor.state3, at, most);
    store_param(tensor, at, updated);
  }
};

template <Momentum kMomentum, bool kWithNesterov>
struct Sgd {
  const Block& block;

  template <int kWide>
  PACELINE_INLINE void run(Int64 at) const {
    const DeviceTensor& tensor = block.tensor;
    const Raw<kWide> grads = load<kWide>(block.grad, tensor.grad_dtype, at);
    const Raw<kWide> params = load<kWide>(source_of(tensor), source_dtype(tensor), at);
    Values<kWide> held = {};
    if constexpr (kMomentum == Momentum::kRunning) held = load_floats<kWide>(tensor.state1, at);
    Values<kWide> updated = {};
#pragma unroll
    for (int i = 0; i < kWide; ++i) {
      updated.value[i] = element(params, i, source_dtype(tensor));
      sgd_element<kMomentum, kWithNesterov>(updated.value[i], element(grads, i, tensor.grad_dtype),
                                            held.value[i], block.sgd);
    }
    if constexpr (kMomentum != Momentum::kNone) store_floats(tensor.state1, at, held);
    store_param(tensor, at, updated);
  }
};

struct LambApply {
  const Block& block;

  template <int kWide>
  PACELINE_INLINE void run(Int64 at) const {
    const DeviceTensor& tensor = block.tensor;
    const Raw<kWide> params = load<kWide>(source_of(tensor), source_dtype(tensor), at);
    const Values<kWide> moments = load_floats<kWide>(tensor.state1, at);
    const Values<kWide> variances = load_floats<kWide>(tensor.state2, at);
    Values<kWide> updated = {};
#pragma unroll
    for (int i = 0; i < kWide; ++i) {
      const float param = element(params, i, source_dtype(tensor));
      updated.value[i] = param - block.adam.rate * lamb_update(param, moments.value[i],
                                                               variances.value[i], block.adam);
    }
    store_param(tensor, at, updated);
  }
};

PACELINE_INLINE void update(const Block& block) {
  const DeviceGroup& group = block.group;
  const bool in_gradient = group.kind == kAdam && block.adam.decay != 0;
  if (group.kind == kLamb) {
    each_element(block, LambApply{block});
  } else if (group.kind == kAdam && (group.flags & kAmsGrad) != 0) {
    if (in_gradient)
      each_element(block, Adam<true, true>{block});
    else
      each_element(block, Adam<true, false>{block});
  } else if (group.kind == kAdam) {
    if (in_gradient)
      each_element(block, Adam<false, true>{block});
    else
      each_element(block, Adam<false, false>{block});
  } else if (group.momentum == 0) {
    each_element(block, Sgd<Momentum::kNone, false>{block});
  } else if (block.sgd.first) {
    if (block.sgd.nesterov)
      each_element(block, Sgd<Momentum::kFirst, true>{block});
    else
      each_element(block, Sgd<Momentum::kFirst, false>{block});
  } else {
    if (block.sgd.nesterov)
      each_element(block, Sgd<Momentum::kRunning, true>{block});
    else
      each_element(block, Sgd<Momentum::kRunning, false>{block});
  }
}

}  // namespace

}  // namespace paceline::optim::device
