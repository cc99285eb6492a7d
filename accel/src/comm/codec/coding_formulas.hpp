// SPDX-License-Identifier: Apache-2.0
// What the codes of coding.hpp do with one value and with one block of values. Compiled without
// contraction, so that all processors make the same bytes and the same residuals (a NaN stays a NaN
// with any payload). paceline/comm/_codes.py writes and reads the same format by PyTorch's
// operators. Pure functions on values, in an unnamed namespace for the reason that
// optim/formulas.hpp gives. Nothing fails.
#pragma once

#include "optim/formulas.hpp"

namespace paceline::comm {

using optim::Bits32;

inline constexpr int kInt8Block = 256;   // values with one scale
inline constexpr int kSignBlock = 1024;  // values with one mean
inline constexpr int kScaleBytes = 4;    // what both begin with
inline constexpr float kMostF16 = 65504.0F;
inline constexpr float kMostBf16 = 3.38953139e38F;
// below, a scale would lose its own bits: it all stays in the rest
inline constexpr float kLeastScaled = 1e-30F;
inline constexpr float kRounder =
    12582912.0F;  // 1.5 * 2^23: adding and taking it off again rounds to nearest, ties to even
inline constexpr Bits32 kNotSign = 0x7fffffffU;
inline constexpr Bits32 kInfinite = 0x7f800000U;
inline constexpr Bits32 kNan = 0x7fc00000U;

// A block's mean is of a sum in this order, all in fp64: value i of a group belongs to channel i %
// kSignLanes; a channel is summed in order, then the channels of a group in halves (16 onto the
// first 16, 8 onto the first 8, …), then the groups one after the other.
inline constexpr int kSignLanes = 32;
inline constexpr int kSignGroup = 128;

namespace {

PACELINE_INLINE Bits32 size_bits(float value) { return optim::as_bits(value) & kNotSign; }
PACELINE_INLINE bool not_finite(float value) { return size_bits(value) >= kInfinite; }

// -- 16 bits
// ------------------------------------------------------------

// What is out of range is cut to it; what is not finite stays as it is.
PACELINE_INLINE float cut_to(float most, float wanted) {
  const float above = -most < wanted ? wanted : -most;
  const float near = above < most ? above : most;
  return not_finite(wanted) ? wanted : near;
}

// The new rest.
PACELINE_INLINE float left_of(float wanted, float decoded) {
  return not_finite(wanted) ? 0.0F : wanted - decoded;
}

// -- int8
// ------------------------------------------------------------

struct Int8Scale {
  float scale;   // as it is sent
  float factor;  // of values, before they are rounded
  bool finite;
};

// `most`: the largest of the block, by its bits without the sign.
PACELINE_INLINE Int8Scale int8_scale(Bits32 most) {
  const float size = optim::as_float(most);
  if (most >= kInfinite) return {optim::as_float(kNan), 0.0F, false};
  if (size < kLeastScaled) return {0.0F, 0.0F, true};
  return {size / 127.0F, 127.0F / size, true};
}

// A block that is not finite says 1 * NaN.
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

// The mean as it is sent: NaN where it is not finite.
PACELINE_INLINE float sign_scale(double sum, int count) {
  const auto scale = static_cast<float>(sum / static_cast<double>(count));
  return not_finite(scale) ? optim::as_float(kNan) : scale;
}

PACELINE_INLINE bool is_negative(float value) { return (optim::as_bits(value) & ~kNotSign) != 0; }
PACELINE_INLINE float sign_value(bool negative, float scale) { return negative ? -scale : scale; }

PACELINE_INLINE float sign_left(float wanted, float scale) {
  return not_finite(scale) ? 0.0F : wanted - sign_value(is_negative(wanted), scale);
}

}  // namespace
}  // namespace paceline::comm
