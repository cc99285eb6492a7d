// SPDX-License-Identifier: Apache-2.0
// What the codes of coding.hpp do with one value and with one block of values. Compiled without
// contraction, so that all processors make the same bytes and the same residuals (a NaN stays a NaN
// with any payload). paceline/comm/_codes.py writes and reads the same format by PyTorch's
// operators. Pure functions on values, in an unnamed namespace for the reason that
// base/float16.hpp gives. Nothing fails.
#pragma once

#include "base/float16.hpp"

namespace paceline::comm {

using base::Bits32;

inline constexpr int kInt8Block = 256;   // values that share one scale
inline constexpr int kSignBlock = 1024;  // values that share one mean
inline constexpr int kScaleBytes = 4;    // size of the scale or mean at the start of a block
inline constexpr float kMostF16 = 65504.0F;
inline constexpr float kMostBf16 = 3.38953139e38F;
// Below this value a scale would lose bits itself, so the whole block stays in the residual.
inline constexpr float kLeastScaled = 1e-30F;
inline constexpr float kRounder =
    12582912.0F;  // 1.5 * 2^23: adding and subtracting it rounds to nearest, ties to even
inline constexpr Bits32 kNotSign = 0x7fffffffU;
inline constexpr Bits32 kInfinite = 0x7f800000U;
inline constexpr Bits32 kNan = 0x7fc00000U;

// The order of the sum behind a block's mean, all in fp64. Value i of a group belongs to lane i %
// kSignLanes. Each lane is summed in order. Then the lanes of a group are summed in halves: 16 onto
// the first 16, 8 onto the first 8, and so on. Last the groups are summed one after the other.
inline constexpr int kSignLanes = 32;
inline constexpr int kSignGroup = 128;

namespace {

PACELINE_INLINE Bits32 size_bits(float value) { return base::as_bits(value) & kNotSign; }
PACELINE_INLINE bool not_finite(float value) { return size_bits(value) >= kInfinite; }

// -- 16 bits
// ------------------------------------------------------------

// Clamps a value that is out of range; NaN and infinity stay.
PACELINE_INLINE float cut_to(float most, float wanted) {
  const float above = -most < wanted ? wanted : -most;
  const float near = above < most ? above : most;
  return not_finite(wanted) ? wanted : near;
}

// The new residual.
PACELINE_INLINE float left_of(float wanted, float decoded) {
  return not_finite(wanted) ? 0.0F : wanted - decoded;
}

// -- int8
// ------------------------------------------------------------

struct Int8Scale {
  float scale;   // as sent
  float factor;  // multiplies values before they are rounded
  bool finite;
};

// `most`: the bits, without the sign, of the block's largest value.
PACELINE_INLINE Int8Scale int8_scale(Bits32 most) {
  const float size = base::as_float(most);
  if (most >= kInfinite) return {base::as_float(kNan), 0.0F, false};
  if (size < kLeastScaled) return {0.0F, 0.0F, true};
  return {size / 127.0F, 127.0F / size, true};
}

// In a block that is not finite, every value is 1 and the scale is NaN.
PACELINE_INLINE int int8_of(float wanted, const Int8Scale& by) {
  const float rounded = (wanted * by.factor + kRounder) - kRounder;
  return by.finite ? static_cast<int>(rounded) : 1;
}

PACELINE_INLINE float int8_value(int coded, float scale) {
  return static_cast<float>(coded) * scale;
}

PACELINE_INLINE float int8_left(float wanted, int coded, const Int8Scale& by) {
  return by.finite ? wanted - int8_value(coded, by.scale) : 0.0F;
}

// -- 1-bit
// ------------------------------------------------------------

// The mean as sent: NaN if it is not finite.
PACELINE_INLINE float sign_scale(double sum, int count) {
  const auto scale = static_cast<float>(sum / static_cast<double>(count));
  return not_finite(scale) ? base::as_float(kNan) : scale;
}

PACELINE_INLINE bool is_negative(float value) { return (base::as_bits(value) & ~kNotSign) != 0; }
PACELINE_INLINE float sign_value(bool negative, float scale) { return negative ? -scale : scale; }

PACELINE_INLINE float sign_left(float wanted, float scale) {
  return not_finite(scale) ? 0.0F : wanted - sign_value(is_negative(wanted), scale);
}

}  // namespace
}  // namespace paceline::comm
