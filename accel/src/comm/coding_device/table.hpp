// SPDX-License-Identifier: Apache-2.0
// What the host and the kernels of coding.cu share. Compiled by C++ compilers, nvcc and NVRTC
// alike, so it includes nothing of the standard library; plain data, laid out the same by all of
// them. The memory is the caller's.
#pragma once

#include "../coding_formulas.hpp"

namespace paceline::comm::coding_device {

using Int64 = long long;

inline constexpr int kWarp = 32;
inline constexpr int kWarps = 8;  // of a block
inline constexpr int kThreads = kWarp * kWarps;
// A warp has one piece of an array: of int8 what shares a scale.
inline constexpr int kPieceValues = kInt8Block;
static_assert(kSignLanes == kWarp && kSignGroup * kWarps == kSignBlock,
              "a lane of a sum is a lane of a warp, and a group's is a warp's");

// The parameter of all kernels. Arrays lie one after another, and so do their codes; `tiles` blocks
// have the pieces of one array.
struct Launch {
  const float* values;  // to be encoded
  float* rest;
  unsigned char* codes;
  float* decoded;
  Int64 count;        // values of an array
  Int64 array_bytes;  // of its code
  Bits32 tiles;       // of an array
  Bits32 sources;     // decoding: codes that are added up for each array
  Bits32 brain;       // 16 bits: bf16, else fp16
  Bits32 onto;        // decoding: what is there already is added first
};

}  // namespace paceline::comm::coding_device
