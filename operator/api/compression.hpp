// SPDX-License-Identifier: Apache-2.0
// How a job says that its gradients go in fewer bytes: the text of spec.acceleration.compression,
// of paceline.comm and of PACELINE_COMMUNICATION_COMPRESSION. Pure functions of text.
#pragma once

#include <string_view>

namespace paceline::api {

inline constexpr std::string_view kNoCompression = "Disabled";
inline constexpr std::string_view kCompressionRemedy =
    "write Disabled, FP16, BF16, Int8, TopK:ratio=0.01 or PowerSGD:rank=1,start=1000";

/// FP16, BF16, Int8, TopK or PowerSGD, with settings after a colon: `start` (2 or more) of all,
/// `ratio` (less than 1, in millionths) of TopK, `rank` of PowerSGD. The pattern in the CRDs says
/// the same.
bool is_compression(std::string_view text);

}  // namespace paceline::api
