// SPDX-License-Identifier: Apache-2.0
// What the host and the kernels of optim.cu share: the table that stays in the device's memory from
// step to step, and the parameters of a launch. Compiled by C++ compilers, nvcc and NVRTC alike, so
// it includes nothing of the standard library; plain data, laid out the same by all of them. The
// memory is the caller's.
#pragma once

#include "../formulas.hpp"

namespace paceline::optim::device {

using Int64 = long long;

inline constexpr int kThreads = kColumns;  // of a block
inline constexpr int kGroupsPerLaunch = 8;
inline constexpr int kTensorsPerLaunch =
    400;  // as many gradients' addresses as a kernel's 4096 bytes of parameters hold

// A tensor of the table. Its gradient is told at each launch.
struct DeviceTensor {
  void* param;
  float* state1;
  float* state2;
  float* state3;
  float* master;
  float* step;
  Int64 count;
  Int64 first_chunk;
  Bits32 group;
  unsigned char param_dtype;
  unsigned char grad_dtype;
  unsigned char aligned;  // all of its arrays, so that four elements are read at once
  unsigned char reserved;
};

// Of a tensor, and written by the kernels.
struct DeviceState {
  float factor;    // LAMB: the layer's rate; LARS: the layer's trust
  Bits32 arrived;  // blocks that have written their sums; 0 between launches
  Bits32 started;  // the momentum buffer holds something
  Bits32 reserved;
};

struct DeviceChunk {
  Int64 begin;
  Bits32 tensor;
  Bits32 count;
};

struct DeviceControl {
  double multiplier;  // of gradients, clipping included
  Bits32 skip;        // a gradient was not finite
  // blocks of this step's norm that have written their sums; 0 between steps
  Bits32 norm_arrived;
  Bits32 update_arrived;  // blocks of this launch that have read their step; 0 between launches
  Bits32 reserved[11];    // so that what follows is aligned for any access
};

struct DeviceGroup {
  Bits32 kind;
  Bits32 flags;
  double lr;
  double beta1;
  double beta2;
  double eps;
  double weight_decay;
  double momentum;
  double dampening;
  double trust_coefficient;
  double grad_multiplier;
  const float* device_lr;  // read instead of lr where it is not null
};

// with a norm: a step whose norm is not finite changes nothing
inline constexpr Bits32 kSkipNotFinite = 1;

// The parameter of all kernels: a stretch of the table's tensors and their chunks, one block for
// each chunk.
struct Launch {
  DeviceControl* control;
  DeviceState* states;
  const DeviceTensor* tensors;
  const DeviceChunk* chunks;
  double* sums;  // two for each chunk
  const float* grad_scale;
  const float* found_inf;
  float* found_inf_out;
  double* norm_out;
  double max_norm;  // 0: no clipping
  Int64 first_chunk;
  Int64 all_chunks;    // of the table: the norm is over all of it
  Bits32 chunk_count;  // of this launch; may be 0, and then one block is launched all the same
  Bits32 first_tensor;
  Bits32 tensor_count;
  Bits32 first_group;
  Bits32 flags;
  Bits32 has_norm;  // the control holds a multiplier
  DeviceGroup groups[kGroupsPerLaunch];
  const void* grads[kTensorsPerLaunch];  // null: no gradient, and nothing happens to the tensor
};

static_assert(sizeof(DeviceTensor) == 72 && sizeof(DeviceState) == 16 && sizeof(DeviceChunk) == 16);
static_assert(sizeof(DeviceControl) == 64 && sizeof(DeviceGroup) == 88);
static_assert(sizeof(Launch) <= 4096, "what every driver takes");

}  // namespace paceline::optim::device
