// SPDX-License-Identifier: Apache-2.0
// What the host and the kernels of optim.cu share: the table, which stays in the memory of the
// device from step to step, and the parameters of a launch. C++ compilers, nvcc and NVRTC compile
// it, so it includes nothing of the standard library. It is plain data with the same layout for all
// of them. The memory is the caller's.
#pragma once

#include "../formulas.hpp"

namespace paceline::optim::device {

using Int64 = long long;

inline constexpr int kThreads = kColumns;  // threads of a block
inline constexpr int kGroupsPerLaunch = 8;
inline constexpr int kTensorsPerLaunch =
    400;  // as many addresses of gradients as the 4096 bytes of a kernel's parameters hold

// A tensor of the table. Each launch passes the address of its gradient.
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
  unsigned char aligned;  // all of its arrays are aligned, so that four elements are read at once
  unsigned char state_dtype;  // of state1 to state3
};

// The state of a tensor, which the kernels write.
struct DeviceState {
  float factor;    // LAMB: the layer's rate; LARS: the layer's trust
  Bits32 arrived;  // blocks that have written their sums; 0 between launches
  Bits32 started;  // the momentum buffer has been written
  Bits32 reserved;
};

struct DeviceChunk {
  Int64 begin;
  Bits32 tensor;
  Bits32 count;
};

struct DeviceControl {
  double multiplier;    // factor of gradients, clipping included
  Bits32 skip;          // a gradient was not finite
  Bits32 norm_arrived;  // columns of this step that have been summed for the norm; 0 between steps
  Bits32 update_arrived;  // blocks of this launch that have read their step; 0 between launches
  Bits32 reserved[11];    // padding, so that the next part is aligned for any access
  // For each column of chunks, the blocks of this step that have written their sums for the norm; 0
  // between steps.
  Bits32 column_arrived[kColumns];
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
  const float* device_lr;  // read instead of lr if not null
};

// If a norm is computed and is not finite, the step changes nothing.
inline constexpr Bits32 kSkipNotFinite = 1;

// The parameter of all kernels: a range of the table's tensors and their chunks. Each chunk gets
// one block.
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
  Int64 all_chunks;    // chunks of the table, which the norm covers
  Bits32 chunk_count;  // chunks of this launch; if 0, one block is launched all the same
  Bits32 first_tensor;
  Bits32 tensor_count;
  Bits32 first_group;
  Bits32 flags;
  Bits32 has_norm;  // the control block holds a multiplier
  DeviceGroup groups[kGroupsPerLaunch];
  const void* grads[kTensorsPerLaunch];  // null: no gradient, so the tensor stays as it is
};

static_assert(sizeof(DeviceTensor) == 72 && sizeof(DeviceState) == 16 && sizeof(DeviceChunk) == 16);
static_assert(sizeof(DeviceControl) == 64 + 4 * kColumns && sizeof(DeviceGroup) == 88);
static_assert(sizeof(Launch) <= 4096, "what every driver takes");

}  // namespace paceline::optim::device
