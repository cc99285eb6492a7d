// SPDX-License-Identifier: Apache-2.0
// Launches the kernels of this folder: ops_device.h says what they compute. Arguments are checked
// by the caller. Threads: any. Failure: text, or a negative PACELINE_E*.
#pragma once

#include <string>

#include "paceline/ops_device.h"

namespace paceline::ops::device {

// Opens the modules for a device. Returns an empty string, or why it has none.
std::string open(int device, const std::string& folder);

int fcos3d_targets(const paceline_fcos3d& all, int device, void* stream);
int simota_assign(const paceline_simota& all, void* room, int device, void* stream);
int attention_forward(const paceline_attention& attention, int device, void* stream);
int attention_backward(const paceline_attention& attention, int device, void* stream);

}  // namespace paceline::ops::device
