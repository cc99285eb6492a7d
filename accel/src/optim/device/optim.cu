// SPDX-License-Identifier: Apache-2.0
// Fused optimizers on a GPU. This file has device code only, for nvcc and NVRTC. device_step.cpp
// launches the kernels through the driver's API and decides their order. Each block takes one chunk
// of one tensor. Every element goes through formulas.hpp, and every sum follows its order. So the
// bits equal those of paceline_optim_step, for any number of multiprocessors and any order of
// blocks.
//
// No block waits for another. Some work needs the results of all blocks: the norm, the factor of a
// layer, and counting the step. The last block to arrive does it. So blocks need not run at the
// same time, and kernels of other libraries may run beside ours. All three kernels may be captured
// into a graph, because everything that changes between steps is read from the memory of the
// device.
#include "block.hpp"

namespace paceline::optim::device {

// Computes the norm over all gradients of the table, the factor that clips them, and whether the
// step is skipped.
extern "C" __global__ void __launch_bounds__(kThreads)
    paceline_optim_norm(const __grid_constant__ Launch launch) {
  __shared__ Block block;
  __shared__ Staged staged;
  __shared__ double space[kThreads];
  if (threadIdx.x == 0) find_chunk(launch, block);
  __syncthreads();
  const double total = lane_sum(squares_of_lane(block, staged), space);
  // The last block of each column of chunks adds the column up, and the last of those blocks all
  // columns: so the sums are shared by many blocks.
  const Int64 column = block.chunk % kColumns;
  const Int64 chunks = (launch.all_chunks - column + kColumns - 1) / kColumns;
  if (threadIdx.x == 0) {
    block.last = launch.all_chunks == 0;
    if (blockIdx.x < launch.chunk_count) {
      launch.sums[2 * block.chunk] = total;
      block.last = arrive(&launch.control->column_arrived[column], chunks);
    }
  }
  __syncthreads();
  if (!block.last) return;
  double squares = 0;
  if (launch.all_chunks > 0) {
    const Int64 columns = launch.all_chunks < kColumns ? launch.all_chunks : kColumns;
    const double of_column = sum_of_column(launch.sums, column, chunks, space);
    if (threadIdx.x == 0) {
      launch.sums[2 * column + 1] = of_column;
      block.last = arrive(&launch.control->norm_arrived, columns);
    }
    __syncthreads();
    if (!block.last) return;
    const bool mine = threadIdx.x < columns;
    squares = in_halves(mine ? fresh(launch.sums + 2 * threadIdx.x + 1) : 0, space);
  }
  if (threadIdx.x != 0) return;
  const double unscale =
      launch.grad_scale != nullptr ? 1 / static_cast<double>(*launch.grad_scale) : 1.0;
  const double norm = root(squares) * unscale;
  const bool finite = norm - norm == 0;
  const bool skips = (launch.flags & kSkipNotFinite) != 0 && !finite;
  launch.control->multiplier =
      unscale * (launch.max_norm > 0 ? clip_factor(norm, launch.max_norm) : 1.0);
  launch.control->skip = skips ? 1 : 0;
  if (launch.norm_out != nullptr) *launch.norm_out = norm;
  if (launch.found_inf_out != nullptr) *launch.found_inf_out = finite ? 0.0F : 1.0F;
}

// For LAMB: updates the moments and computes the rate of each layer. For LARS: computes the trust
// of each layer.
extern "C" __global__ void __launch_bounds__(kThreads)
    paceline_optim_layers(const __grid_constant__ Launch launch) {
  __shared__ Block block;
  __shared__ double space[kThreads];
  if (threadIdx.x == 0) {
    find_chunk(launch, block);
    block.idle = block.idle || !by_layer(block.group) || skipped(launch);
    if (!block.idle) set_constants(launch, block);
  }
  __syncthreads();
  if (block.idle) return;
  const DeviceTensor& tensor = block.tensor;
  const bool lamb = block.group.kind == kLamb;
  double own = 0;
  double other = 0;
  each_of_lane(block, [&](Int64 at) {
    const auto grads = load<1>(block.grad, tensor.grad_dtype, at);
    const auto params = load<1>(source_of(tensor), source_dtype(tensor), at);
    const float grad = element(grads, 0, tensor.grad_dtype);
    const float param = element(params, 0, source_dtype(tensor));
    own += squared(param, 1.0F);
    if (lamb) {
      float moment = tensor.state1[at];
      float variance = tensor.state2[at];
      other += squared(lamb_moments_element(param, grad, moment, variance, block.adam), 1.0F);
      tensor.state1[at] = moment;
      tensor.state2[at] = variance;
    } else {
      other += squared(grad, block.sgd.grad_multiplier);
    }
  });
  const double own_total = lane_sum(own, space);
  const double other_total = lane_sum(other, space);
  const Bits32 number = launch.chunks[block.chunk].tensor;
  const Int64 chunks = (tensor.count + kChunk - 1) / kChunk;
  if (threadIdx.x == 0) {
    launch.sums[2 * block.chunk] = own_total;
    launch.sums[2 * block.chunk + 1] = other_total;
    block.last = arrive(&launch.states[number].arrived, chunks);
  }
  __syncthreads();
  if (!block.last) return;
  const double* sums = launch.sums + 2 * tensor.first_chunk;
  const double own_squares = column_sum(sums, chunks, space);
  const double other_squares = column_sum(sums + 1, chunks, space);
  if (threadIdx.x != 0) return;
  launch.states[number].factor = lamb ? lamb_rate(block.group, block.lr, own_squares, other_squares)
                                      : lars_trust(block.group, own_squares, other_squares);
}

// Computes the new parameters. The last block that has read the step counts it.
extern "C" __global__ void __launch_bounds__(kThreads, 4)
    paceline_optim_update(const __grid_constant__ Launch launch) {
  __shared__ Block block;
  if (threadIdx.x == 0) {
    find_chunk(launch, block);
    block.skip = skipped(launch);
    block.last = false;
    if (!block.skip) {
      if (!block.idle) {
        set_constants(launch, block);
        if (by_layer(block.group)) {
          const float factor = launch.states[launch.chunks[block.chunk].tensor].factor;
          (block.group.kind == kLamb ? block.adam.rate : block.sgd.trust) = factor;
        }
      }
      block.last = arrive(&launch.control->update_arrived, gridDim.x);
    }
  }
  __syncthreads();
  if (block.skip) return;
  if (block.last) {
    for (Bits32 i = threadIdx.x; i < launch.tensor_count; i += kThreads) {
      if (launch.grads[i] == nullptr) continue;
      const DeviceTensor& tensor = launch.tensors[launch.first_tensor + i];
      if (has_moments(launch.groups[tensor.group - launch.first_group])) *tensor.step += 1;
      launch.states[launch.first_tensor + i].started = 1;
    }
  }
  if (!block.idle) update(block);
}

}  // namespace paceline::optim::device
