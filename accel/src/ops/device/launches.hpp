// SPDX-License-Identifier: Apache-2.0
// What the kernels of this folder are launched with: structures that travel as the parameter of a
// launch, and numbers that both sides use. C++ compilers, nvcc and NVRTC read it, so it includes
// nothing of theirs. All pointers are addresses on the device.
#pragma once

#include "../../base/float16.hpp"

namespace paceline::ops::device {

using base::Bits16;
using base::Bits32;
using Int64 = long long;

enum : Bits32 { kF16 = 0, kBf16 = 1 };

// -- window attention

inline constexpr int kAttentionThreads = 128;
inline constexpr int kMostTokens = 64;  // of a window
inline constexpr int kHeadDim = 32;

// Arrays of heads have the elements of a head side by side, and the heads of a token.
struct Attention {
  const Bits16* q;  // (windows, tokens, heads, kHeadDim), with the strides below
  const Bits16* k;
  const Bits16* v;
  const float* table;      // (entries, heads)
  const Int64* index;      // (tokens, tokens), each in [-entries, entries)
  const float* mask;       // (masks, tokens, tokens), or null
  Bits16* out;             // (windows, tokens, heads, kHeadDim), dense
  const Bits16* out_grad;  // the same
  Bits16* q_grad;          // with the strides of q
  Bits16* k_grad;
  Bits16* v_grad;
  float* table_grad;  // (entries, heads)
  float* sums;        // (slots, heads, tokens, tokens): room for gradients of the bias
  Int64 windows;      // a multiple of `masks`
  Int64 window_stride, token_stride;  // of q, k and v, in elements
  Int64 masks;                        // 1 without a mask
  Bits32 tokens, heads, entries;
  Bits32 slots;  // blocks of each head, which share its windows
  Bits32 type;
  float scale;
};

// -- targets of FCOS3D

inline constexpr int kTargetThreads = 256;
inline constexpr int kLevelsPerLaunch = 8;
inline constexpr int kImagesPerLaunch = 256;

struct TargetLevel {
  const float* points;  // (count, 2)
  Int64 count;
  Int64* labels;      // (images, count)
  float* targets;     // (images, count, columns)
  float* centerness;  // (images, count)
  Int64* attributes;  // (images, count)
  float radius, divisor, low, high;
  Bits32 first_block;  // of this level in the grid
};

struct Targets {
  const float* centers;     // (G, 2)
  const float* boxes;       // (G, 4)
  const float* rest;        // (G, columns - 2)
  const Int64* labels;      // (G)
  const Int64* attributes;  // (G)
  Int64 background, no_attribute;
  Bits32 levels, columns;
  Bits32 first_image, images;  // of this launch
  float alpha;
  TargetLevel level[kLevelsPerLaunch];
  int offsets[kImagesPerLaunch + 1];  // of the images of this launch
};

// -- SimOTA

struct Assignment {
  const float* boxes;   // (images, priors, 4), and so on: of the images of this launch
  const float* scores;  // (images, priors, classes)
  const float* places;  // (priors, 4): x, y, stride of x, stride of y
  const float* truths;  // (G, 4)
  const Int64* labels;  // (G)
  Int64* winners;       // (images, priors)
  Int64* winner_labels;
  float* overlaps;
  double* misses;  // (images, priors): cost if no class were right
  int* matches;    // (images, priors): how many ground truths took it; -1: it is not valid
  int* winner;     // (images, priors): the first of them
  Int64 priors, classes;
  double radius, iou_weight, cls_weight, least_overlap;
  Bits32 topk, images;
  int offsets[kImagesPerLaunch + 1];  // of these images
};

static_assert(sizeof(Targets) <= 4096 && sizeof(Assignment) <= 4096, "the parameters of a launch");

}  // namespace paceline::ops::device
