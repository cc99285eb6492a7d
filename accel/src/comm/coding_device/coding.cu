// SPDX-License-Identifier: Apache-2.0
// The codes of coding.hpp whose blocks know nothing of each other (16 bits, int8, 1-bit) on a GPU:
// device code alone, for nvcc and NVRTC, launched through the driver's API (device_coding.cpp).
// Encoding reads value and rest once and writes code and rest once; decoding reads codes and writes
// the sum. Every value goes through coding_formulas.hpp: the bytes and rests are those of encode()
// and decode() on processors.
//
// A warp has a piece of its own, lane l its values l, l + 32, …: 32 of them lie beside each other
// at each load. Nothing passes between warps, and no block waits.
#include "table.hpp"

namespace paceline::comm::coding_device {
namespace {

using optim::as_bits;
using optim::as_float;
using optim::Bits16;

constexpr unsigned kAll = 0xffffffffU;  // lanes of a warp

PACELINE_INLINE int lane() { return static_cast<int>(threadIdx.x) % kWarp; }

// What this thread's warp has of an array.
struct Piece {
  Bits32 array;
  Int64 number;  // in its array
  Int64 begin;   // in its array
  int count;     // 0 beyond the array's end; all lanes go on all the same
};

template <int kValues>
PACELINE_INLINE Piece piece_of(const Launch& launch) {
  Piece piece = {};
  piece.array = blockIdx.x / launch.tiles;
  const Bits32 tile = blockIdx.x - piece.array * launch.tiles;
  piece.number = static_cast<Int64>(tile) * kWarps + threadIdx.x / kWarp;
  piece.begin = piece.number * kValues;
  const Int64 left = launch.count - piece.begin;
  piece.count = left <= 0 ? 0 : left < kValues ? static_cast<int>(left) : kValues;
  return piece;
}

// A lane's values of a piece, of those that are there.
template <int kValues>
struct Lane {
  static constexpr int kEach = kValues / kWarp;
  float value[kEach];
};

// All loads before the first use: as many bytes under way as there can be. What is not there is 0.
template <int kValues>
PACELINE_INLINE Lane<kValues> wanted_of(const Launch& launch, const Piece& piece) {
  const Int64 at = piece.array * launch.count + piece.begin;
  const float* values = launch.values + at;
  const float* rest = launch.rest + at;
  Lane<kValues> wanted = {};
  Lane<kValues> late = {};
#pragma unroll
  for (int k = 0; k < Lane<kValues>::kEach; ++k) {
    const int i = k * kWarp + lane();
    wanted.value[k] = i < piece.count ? values[i] : 0.0F;
    late.value[k] = i < piece.count ? rest[i] : 0.0F;
  }
#pragma unroll
  for (int k = 0; k < Lane<kValues>::kEach; ++k) wanted.value[k] += late.value[k];
  return wanted;
}

// Scales lie at any byte.
PACELINE_INLINE void store_scale(unsigned char* code, float scale) {
  if (lane() < kScaleBytes)
    code[lane()] = static_cast<unsigned char>(as_bits(scale) >> (8 * lane()));
}
PACELINE_INLINE float load_scale(const unsigned char* code) {
  Bits32 bits = 0;
#pragma unroll
  for (int i = 0; i < kScaleBytes; ++i) bits |= static_cast<Bits32>(code[i]) << (8 * i);
  return as_float(bits);
}

PACELINE_INLINE float widened(Bits16 half, bool brain) {
  return brain ? optim::bf16_to_float(half) : optim::half_to_float(half);
}

// -- codes, as they are read
// ------------------------------------------------------------

// Of one source: where this piece's code begins, and its values by their place.
struct Halves {
  static constexpr int kValues = kPieceValues;
  static constexpr bool kFromZero = false;
  const Bits16* code;
  bool brain;

  PACELINE_INLINE Halves(const Launch& launch, const unsigned char* codes, const Piece& piece)
      : code(reinterpret_cast<const Bits16*>(codes) + piece.begin), brain(launch.brain != 0) {}
  PACELINE_INLINE float at(int i) const { return widened(code[i], brain); }
};

struct Int8 {
  static constexpr int kValues = kInt8Block;
  static constexpr bool kFromZero = false;
  const unsigned char* code;
  float scale;

  PACELINE_INLINE Int8(const Launch&, const unsigned char* codes, const Piece& piece)
      : code(codes + piece.number * (kScaleBytes + kInt8Block)),
        scale(piece.count > 0 ? load_scale(code) : 0.0F) {}
  PACELINE_INLINE float at(int i) const {
    return int8_value(static_cast<signed char>(code[kScaleBytes + i]), scale);
  }
};

struct Signs {
  static constexpr int kValues = kPieceValues;
  static constexpr bool kFromZero = true;  // a sum of signs begins with 0, which may be all of it
  const unsigned char* signs;
  float scale;

  PACELINE_INLINE Signs(const Launch&, const unsigned char* codes, const Piece& piece) {
    const unsigned char* block = codes + piece.begin / kSignBlock * (kScaleBytes + kSignBlock / 8);
    signs = block + kScaleBytes + piece.begin % kSignBlock / 8;
    scale = piece.count > 0 ? load_scale(block) : 0.0F;
  }
  PACELINE_INLINE float at(int i) const {
    return sign_value((signs[i / 8] >> (i % 8) & 1) != 0, scale);
  }
};

template <typename Code>
PACELINE_INLINE void decode(const Launch& launch) {
  const Piece piece = piece_of<Code::kValues>(launch);
  float* decoded = launch.decoded + piece.array * launch.count + piece.begin;
  const unsigned char* codes = launch.codes + piece.array * launch.sources * launch.array_bytes;
  const bool onto = launch.onto != 0;
  Lane<Code::kValues> sums = {};
  if (onto) {
#pragma unroll
    for (int k = 0; k < Lane<Code::kValues>::kEach; ++k) {
      const int i = k * kWarp + lane();
      sums.value[k] = i < piece.count ? decoded[i] : 0.0F;
    }
  }
  for (Bits32 source = 0; source < launch.sources; ++source) {
    const Code code(launch, codes + source * launch.array_bytes, piece);
    const bool adds = Code::kFromZero || onto || source > 0;
#pragma unroll
    for (int k = 0; k < Lane<Code::kValues>::kEach; ++k) {
      const int i = k * kWarp + lane();
      const float value = i < piece.count ? code.at(i) : 0.0F;
      sums.value[k] = adds ? sums.value[k] + value : value;
    }
  }
#pragma unroll
  for (int k = 0; k < Lane<Code::kValues>::kEach; ++k) {
    const int i = k * kWarp + lane();
    if (i < piece.count) decoded[i] = sums.value[k];
  }
}

}  // namespace

// -- kernels
// ------------------------------------------------------------

extern "C" __global__ void __launch_bounds__(kThreads)
    paceline_coding_encode_halves(const __grid_constant__ Launch launch) {
  const Piece piece = piece_of<kPieceValues>(launch);
  const Lane<kPieceValues> wanted = wanted_of<kPieceValues>(launch, piece);
  const bool brain = launch.brain != 0;
  const float most = brain ? kMostBf16 : kMostF16;
  auto* code =
      reinterpret_cast<Bits16*>(launch.codes + piece.array * launch.array_bytes) + piece.begin;
  float* rest = launch.rest + piece.array * launch.count + piece.begin;
#pragma unroll
  for (int k = 0; k < Lane<kPieceValues>::kEach; ++k) {
    const int i = k * kWarp + lane();
    if (i >= piece.count) continue;
    const float cut = cut_to(most, wanted.value[k]);
    const Bits16 half = brain ? optim::float_to_bf16(cut) : optim::float_to_half(cut);
    code[i] = half;
    rest[i] = left_of(wanted.value[k], widened(half, brain));
  }
}

extern "C" __global__ void __launch_bounds__(kThreads)
    paceline_coding_encode_int8(const __grid_constant__ Launch launch) {
  const Piece piece = piece_of<kInt8Block>(launch);
  const Lane<kInt8Block> wanted = wanted_of<kInt8Block>(launch, piece);
  Bits32 most = 0;
#pragma unroll
  for (int k = 0; k < Lane<kInt8Block>::kEach; ++k) {
    const Bits32 size = size_bits(wanted.value[k]);
    most = size > most ? size : most;
  }
  const Int8Scale by = int8_scale(__reduce_max_sync(kAll, most));
  unsigned char* code =
      launch.codes + piece.array * launch.array_bytes + piece.number * (kScaleBytes + kInt8Block);
  float* rest = launch.rest + piece.array * launch.count + piece.begin;
  if (piece.count > 0) store_scale(code, by.scale);
#pragma unroll
  for (int k = 0; k < Lane<kInt8Block>::kEach; ++k) {
    const int i = k * kWarp + lane();
    if (i >= piece.count) continue;
    const int coded = int8_of(wanted.value[k], by);
    code[kScaleBytes + i] = static_cast<unsigned char>(coded);
    rest[i] = int8_left(wanted.value[k], coded, by);
  }
}

// A block of threads has a block of values: its warps' sums are added up in order.
extern "C" __global__ void __launch_bounds__(kThreads)
    paceline_coding_encode_signs(const __grid_constant__ Launch launch) {
  __shared__ double sums[kWarps];
  const Piece piece = piece_of<kSignGroup>(launch);
  const Lane<kSignGroup> wanted = wanted_of<kSignGroup>(launch, piece);
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  double own = 0;
#pragma unroll
  for (int k = 0; k < Lane<kSignGroup>::kEach; ++k)
    own += static_cast<double>(as_float(size_bits(wanted.value[k])));
#pragma unroll
  for (int half = kWarp / 2; half > 0; half /= 2) own += __shfl_xor_sync(kAll, own, half);
  if (lane() == 0) sums[warp] = own;
  __syncthreads();
  double sum = 0;
#pragma unroll
  for (int i = 0; i < kWarps; ++i) sum += sums[i];
  const Int64 number = piece.number / kWarps;
  const Int64 left = launch.count - number * kSignBlock;
  const float scale = sign_scale(sum, left < kSignBlock ? static_cast<int>(left) : kSignBlock);
  unsigned char* code =
      launch.codes + piece.array * launch.array_bytes + number * (kScaleBytes + kSignBlock / 8);
  if (warp == 0) store_scale(code, scale);
  float* rest = launch.rest + piece.array * launch.count + piece.begin;
  // The signs of the 32 values of step k are lane k's to write.
  Bits32 signs = 0;
#pragma unroll
  for (int k = 0; k < Lane<kSignGroup>::kEach; ++k) {
    const int i = k * kWarp + lane();
    const Bits32 word = __ballot_sync(kAll, i < piece.count && is_negative(wanted.value[k]));
    signs = lane() == k ? word : signs;
    if (i < piece.count) rest[i] = sign_left(wanted.value[k], scale);
  }
  code += kScaleBytes + warp * (kSignGroup / 8);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int byte = lane() * 4 + i;
    if (byte * 8 < piece.count) code[byte] = static_cast<unsigned char>(signs >> (8 * i));
  }
}

extern "C" __global__ void __launch_bounds__(kThreads)
    paceline_coding_decode_halves(const __grid_constant__ Launch launch) {
  decode<Halves>(launch);
}

extern "C" __global__ void __launch_bounds__(kThreads)
    paceline_coding_decode_int8(const __grid_constant__ Launch launch) {
  decode<Int8>(launch);
}

extern "C" __global__ void __launch_bounds__(kThreads)
    paceline_coding_decode_signs(const __grid_constant__ Launch launch) {
  decode<Signs>(launch);
}

}  // namespace paceline::comm::coding_device
