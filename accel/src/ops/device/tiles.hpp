// SPDX-License-Identifier: Apache-2.0
// What attention.cu computes with: the numbers of a head in shared memory, scores in registers, and
// their products. For nvcc and NVRTC.
#pragma once

#include "warp.hpp"

namespace paceline::ops::device {
namespace {

constexpr int kTiles = kMostTokens / 8;   // of a row of scores
constexpr int kSteps = kMostTokens / 16;  // of a sum over tokens
constexpr int kDepths = kHeadDim / 16;    // of a sum over the numbers of a head
constexpr int kParts = kHeadDim / 8;      // of a row of a head
constexpr int kPitch = kHeadDim + 8;      // so that a warp's threads read from different banks
constexpr int kSquarePitch = kMostTokens + 8;

// The numbers of a head, a row for each token. Rows behind the last token are 0.
struct alignas(16) Panel {
  Bits16 value[kMostTokens * kPitch];
};

// One number for each pair of tokens: those of the keys are rows.
struct alignas(16) Square {
  Bits16 value[kMostTokens * kSquarePitch];
};

// A warp's 16 rows of scores: multiply() says which of them a thread holds.
struct Scores {
  float value[kTiles][4];
};

// What a thread holds of them. `row` and the eighth row after it; `column` and the next one of each
// tile.
struct Place {
  int row, column;
};

PACELINE_INLINE Place place_of_thread() {
  const int thread = static_cast<int>(threadIdx.x);
  return {thread / 32 * 16 + thread % 32 / 4, thread % 4 * 2};
}

// Calls visit(tile, number, query, key) for each score of this thread.
template <typename Visit>
PACELINE_INLINE void each_score(const Visit& visit) {
  const Place place = place_of_thread();
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      visit(tile, i, place.row + i / 2 * 8, tile * 8 + place.column + i % 2);
}

// -- loads and stores

struct Piece {
  uint4 part[kMostTokens * kParts / kAttentionThreads];
};

PACELINE_INLINE Piece read(const Bits16* head, Int64 token_stride, int tokens) {
  Piece piece;
#pragma unroll
  for (int i = 0; i < kMostTokens * kParts / kAttentionThreads; ++i) {
    const int at = static_cast<int>(threadIdx.x) + i * kAttentionThreads;
    const int token = at / kParts;
    piece.part[i] = uint4{0, 0, 0, 0};
    if (token < tokens)
      piece.part[i] =
          *reinterpret_cast<const uint4*>(head + token * token_stride + at % kParts * 8);
  }
  return piece;
}

PACELINE_INLINE void put(Panel& panel, const Piece& piece) {
#pragma unroll
  for (int i = 0; i < kMostTokens * kParts / kAttentionThreads; ++i) {
    const int at = static_cast<int>(threadIdx.x) + i * kAttentionThreads;
    *reinterpret_cast<uint4*>(panel.value + at / kParts * kPitch + at % kParts * 8) = piece.part[i];
  }
}

PACELINE_INLINE Bits32 word(const Bits16* row, int column) {
  return *reinterpret_cast<const Bits32*>(row + column);
}

// The left factor of multiply(): this warp's rows, and the columns from `column` on.
template <int kRowPitch>
PACELINE_INLINE void load_rows(Bits32 (&a)[4], const Bits16* matrix, int column) {
  const Place place = place_of_thread();
  const Bits16* const row = matrix + place.row * kRowPitch + column + place.column;
  a[0] = word(row, 0);
  a[1] = word(row + 8 * kRowPitch, 0);
  a[2] = word(row, 8);
  a[3] = word(row + 8 * kRowPitch, 8);
}

// Writes this warp's rows of a head, times a factor for each of a thread's two rows.
template <Bits32 kType>
PACELINE_INLINE void write(Bits16* head, Int64 token_stride, int tokens,
                           const float (&rows)[kParts][4], float first, float second) {
  const Place place = place_of_thread();
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int token = place.row + half * 8;
    const float factor = half == 0 ? first : second;
    if (token >= tokens) continue;
#pragma unroll
    for (int part = 0; part < kParts; ++part)
      *reinterpret_cast<Bits32*>(head + token * token_stride + part * 8 + place.column) =
          pack<kType>(rows[part][half * 2] * factor, rows[part][half * 2 + 1] * factor);
  }
}

// -- products

// Of this warp's rows of `left` and all rows of `right`.
template <Bits32 kType>
PACELINE_INLINE void products(Scores& scores, const Panel& left, const Panel& right) {
  Bits32 a[kDepths][4];
#pragma unroll
  for (int step = 0; step < kDepths; ++step) load_rows<kPitch>(a[step], left.value, step * 16);
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int i = 0; i < 4; ++i) scores.value[tile][i] = 0;
    const Bits16* const row = right.value + (tile * 8 + lane / 4) * kPitch + lane % 4 * 2;
#pragma unroll
    for (int step = 0; step < kDepths; ++step)
      multiply<kType>(scores.value[tile], a[step], word(row, step * 16), word(row, step * 16 + 8));
  }
}

// rows += a panel, of which step `step` of the sum over tokens: `a` has this warp's rows, and the
// step's 16 tokens.
template <Bits32 kType>
PACELINE_INLINE void add_product(float (&rows)[kParts][4], const Bits32 (&a)[4], const Panel& panel,
                                 int step) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const Bits16* const row = panel.value + (step * 16 + lane % 16) * kPitch + lane / 16 * 8;
#pragma unroll
  for (int part = 0; part < kParts; part += 2) {
    Bits32 tile[4];
    load_transposed(tile, row + part * 8);
    multiply<kType>(rows[part], a, tile[0], tile[1]);
    multiply<kType>(rows[part + 1], a, tile[2], tile[3]);
  }
}

// The scores of 16 keys as the left factor of multiply().
template <Bits32 kType>
PACELINE_INLINE void pack_rows(Bits32 (&a)[4], const Scores& scores, int step) {
  const float(&low)[4] = scores.value[2 * step];
  const float(&high)[4] = scores.value[2 * step + 1];
  a[0] = pack<kType>(low[0], low[1]);
  a[1] = pack<kType>(low[2], low[3]);
  a[2] = pack<kType>(high[0], high[1]);
  a[3] = pack<kType>(high[2], high[3]);
}

}  // namespace
}  // namespace paceline::ops::device
