// SPDX-License-Identifier: Apache-2.0
// The host's side of the optimizers on a GPU (optim_device.h): the image of the table, and the
// launches of a step. Owns only the kernels of the devices, which are loaded once. Any thread may
// call. Failure is a negative PACELINE_E*.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "../step.hpp"
#include "paceline/optim_device.h"
#include "table.hpp"

namespace paceline::optim::device {

// Where the parts of a table lie, in bytes from its start. The image holds all of it except the
// sums.
struct Layout {
  std::uint64_t states = 0;
  std::uint64_t tensors = 0;
  std::uint64_t chunks = 0;
  std::uint64_t sums = 0;
  std::uint64_t end = 0;
  Int64 chunk_count = 0;

  explicit Layout(std::span<const Tensor> tensors_of_table);
};

// Loads the kernels of a device. Returns an empty string, or why the device has none. The result is
// cached.
std::string open(int device, const std::string& folder);

// Writes layout.sums bytes to `image`, unless it is null.
int make_image(std::span<const Group> groups, std::span<const Tensor> tensors, const Layout& layout,
               void* image);

int step(const paceline_optim_device_call& call);

}  // namespace paceline::optim::device
