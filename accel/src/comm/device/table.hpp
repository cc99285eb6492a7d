// SPDX-License-Identifier: Apache-2.0
// What the host and the kernel of comm.cu share: the parameters of a launch. Compiled by C++
// compilers, nvcc and NVRTC alike, so it includes nothing of the standard library; plain data, laid
// out the same by all of them. The memory is the caller's.
#pragma once

#include "../../optim/formulas.hpp"

namespace paceline::comm::device {

using Bits16 = optim::Bits16;
using Bits32 = optim::Bits32;
using Int64 = long long;

inline constexpr int kThreads = 256;     // of a block
inline constexpr int kMostSources = 64;  // ranks of a host
inline constexpr int kVector = 16;       // bytes that a thread reads at once

// Of elements, as comm.h numbers them.
enum : Bits32 { kFloat32, kFloat64, kFloat16, kBfloat16, kInt32, kInt64 };

// target[i] = sources[0][i] + sources[1][i] + …; all of them as far from an address that kVector
// divides. None overlaps the target, but the first one may be the target.
struct SumLaunch {
  const void* sources[kMostSources];
  void* target;
  Int64 count;  // elements
  Bits32 source_count;
  Bits32 type;
};

}  // namespace paceline::comm::device
