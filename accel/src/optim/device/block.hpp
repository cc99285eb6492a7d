// SPDX-License-Identifier: Apache-2.0
// What the threads of a block do together in the kernels of optim.cu, for nvcc and NVRTC. They read
// and write elements four at a time (elements.hpp), sum in a fixed order, and update elements by
// formulas.hpp.
// Only optim.cu includes this file; through it, so does the tests' fake driver.
#pragma once

#include "elements.hpp"

namespace paceline::optim::device {
namespace {

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
  bool idle;          // the elements need no work
  bool grad_aligned;  // four elements of the gradient can be read at once
  bool skip;          // this step changes nothing
  bool last;          // this block arrived last
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

// Returns the number of elements before the first one from which four can be read at once.
PACELINE_INLINE int unaligned_head(const void* data, Bits32 dtype) {
  const auto address = reinterpret_cast<unsigned long long>(data);
  return static_cast<int>((dtype == kF32 ? -address / 4 : -address / 2) % 4);
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
  block.grad_aligned = unaligned_head(block.grad, block.tensor.grad_dtype) == 0;
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

// Reads elements of the gradient. It may lie anywhere, for example in a bucket of
// DistributedDataParallel, while all other arrays are aligned.
template <int kWide>
PACELINE_INLINE Raw<kWide> load_grads(const Block& block, Int64 at) {
  if (kWide == 1 || block.grad_aligned) return load<kWide>(block.grad, block.tensor.grad_dtype, at);
  return load_each<kWide>(block.grad, block.tensor.grad_dtype, at);
}

// Calls work<4>(at) for every four elements if the tensor is aligned, and work<1>(at) for each
// other one. `at` counts from the start of the tensor.
template <typename Work>
PACELINE_INLINE void each_element(const Block& block, const Work& work) {
  const int wide = block.tensor.aligned != 0 ? block.count / 4 * 4 : 0;
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

// Returns to all threads the sum of their columns. All threads call it.
PACELINE_INLINE double in_halves(double column, double* space) {
  const int thread = static_cast<int>(threadIdx.x);
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

// Returns to all threads the sum of the sums of chunks: every second number from `sums` on. All
// threads call it.
PACELINE_INLINE double column_sum(const double* sums, Int64 count, double* space) {
  const int thread = static_cast<int>(threadIdx.x);
  double column = 0;
  for (Int64 i = thread; i < count; i += kColumns) column += fresh(sums + 2 * i);
  return in_halves(column, space);
}

// The elements of a chunk as fp32. The spans lie apart, so that the threads of a warp, which sum
// lanes of two spans, read from different banks.
struct alignas(16) Staged {
  float value[kChunk + kChunk / kSpan * kLanes];
};

PACELINE_INLINE int staged_at(int i) { return i + i / kSpan * kLanes; }

// Reads the gradient of a block's chunk, four elements at once from the first aligned one on.
template <Bits32 kType>
PACELINE_INLINE void stage(const Block& block, Staged& staged) {
  const int thread = static_cast<int>(threadIdx.x);
  const int head = block.grad_aligned ? 0 : unaligned_head(block.grad, kType);
  const int begin = head < block.count ? head : block.count;
  const int end = begin + (block.count - begin) / 4 * 4;
  const auto one = [&](int i) {
    staged.value[staged_at(i)] = element(load<1>(block.grad, kType, block.begin + i), 0, kType);
  };
  for (int i = thread; i < begin; i += kThreads) one(i);
#pragma unroll 8
  for (int i = begin + thread * 4; i < end; i += kThreads * 4) {
    const Raw<4> raw = load<4>(block.grad, kType, block.begin + i);
    const Values<4> values = {{element(raw, 0, kType), element(raw, 1, kType),
                               element(raw, 2, kType), element(raw, 3, kType)}};
    if (head == 0) {
      store_floats(staged.value, staged_at(i), values);
    } else {
#pragma unroll
      for (int k = 0; k < 4; ++k) staged.value[staged_at(i + k)] = values.value[k];
    }
  }
  for (int i = end + thread; i < block.count; i += kThreads) one(i);
}

// Returns this thread's part of the squares of the gradient: one lane of one span. All threads call
// it.
PACELINE_INLINE double squares_of_lane(const Block& block, Staged& staged) {
  const int thread = static_cast<int>(threadIdx.x);
  if (!block.idle) {
    if (block.tensor.grad_dtype == kF32)
      stage<kF32>(block, staged);
    else if (block.tensor.grad_dtype == kBf16)
      stage<kBf16>(block, staged);
    else
      stage<kF16>(block, staged);
  }
  __syncthreads();
  if (block.idle) return 0;
  const int begin = thread / kLanes * kSpan;
  const int end = begin + kSpan < block.count ? begin + kSpan : block.count;
  double own = 0;
#pragma unroll 8
  for (int i = begin + thread % kLanes; i < end; i += kLanes)
    own += squared(staged.value[staged_at(i)], 1.0F);
  return own;
}

// Returns to thread 0 the sum of one column of the sums of chunks. All threads call it.
PACELINE_INLINE double sum_of_column(const double* sums, Int64 column, Int64 count, double* space) {
  const int thread = static_cast<int>(threadIdx.x);
  double total = 0;
  for (Int64 begin = 0; begin < count; begin += kThreads) {
    const int here = count - begin < kThreads ? static_cast<int>(count - begin) : kThreads;
    if (thread < here) space[thread] = fresh(sums + 2 * (column + (begin + thread) * kColumns));
    __syncthreads();
    if (thread == 0)
      for (int i = 0; i < here; ++i) total += space[i];
    __syncthreads();
  }
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

template <bool kWithMaximum, bool kDecayInGradient>
struct Adam {
  const Block& block;

  template <int kWide>
  PACELINE_INLINE void run(Int64 at) const {
    const DeviceTensor& tensor = block.tensor;
    // All loads come before the first use, so that as many bytes as possible are in flight.
    const Raw<kWide> grads = load_grads<kWide>(block, at);
    const Raw<kWide> params = load<kWide>(source_of(tensor), source_dtype(tensor), at);
    Values<kWide> moments = load_state<kWide>(tensor, tensor.state1, at);
    Values<kWide> variances = load_state<kWide>(tensor, tensor.state2, at);
    Values<kWide> most = {};
    if constexpr (kWithMaximum) most = load_state<kWide>(tensor, tensor.state3, at);
    Values<kWide> updated = {};
#pragma unroll
    for (int i = 0; i < kWide; ++i) {
      updated.value[i] = element(params, i, source_dtype(tensor));
      adam_element<kWithMaximum, kDecayInGradient>(
          updated.value[i], element(grads, i, tensor.grad_dtype), moments.value[i],
          variances.value[i], most.value[i], block.adam);
    }
    store_state(tensor, tensor.state1, at, moments);
    store_state(tensor, tensor.state2, at, variances);
    if constexpr (kWithMaximum) store_state(tensor, tensor.state3, at, most);
    store_param(tensor, at, updated);
  }
};

template <Momentum kMomentum, bool kWithNesterov>
struct Sgd {
  const Block& block;

  template <int kWide>
  PACELINE_INLINE void run(Int64 at) const {
    const DeviceTensor& tensor = block.tensor;
    const Raw<kWide> grads = load_grads<kWide>(block, at);
    const Raw<kWide> params = load<kWide>(source_of(tensor), source_dtype(tensor), at);
    Values<kWide> held = {};
    if constexpr (kMomentum == Momentum::kRunning)
      held = load_state<kWide>(tensor, tensor.state1, at);
    Values<kWide> updated = {};
#pragma unroll
    for (int i = 0; i < kWide; ++i) {
      updated.value[i] = element(params, i, source_dtype(tensor));
      sgd_element<kMomentum, kWithNesterov>(updated.value[i], element(grads, i, tensor.grad_dtype),
                                            held.value[i], block.sgd);
    }
    if constexpr (kMomentum != Momentum::kNone) store_state(tensor, tensor.state1, at, held);
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
