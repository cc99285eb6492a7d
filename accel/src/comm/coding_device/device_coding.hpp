// SPDX-License-Identifier: Apache-2.0
// The host's side of the codes on a GPU (coding_device.h): which kernel, and over how many blocks.
// Owns nothing but the devices' kernels, loaded once; any thread. Failure is a negative
// PACELINE_E*.
#pragma once

#include <string>

#include "paceline/coding_device.h"

namespace paceline::comm::coding_device {

enum class Direction { kEncode, kDecode };

// Empty, or why there is nothing for this device. Remembered.
std::string open(int device, const std::string& folder);

int launch(Direction direction, const paceline_coding_device_call& call);

}  // namespace paceline::comm::coding_device
