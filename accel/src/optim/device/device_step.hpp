// SPDX-License-Identifier: Apache-2.0
// The host's side of the optimizers on a GPU (optim_device.h): the table's image, and the launches
// of a step. Owns nothing but the devices' kernels, loaded once; any thread. Failure is a negative
// PACELINE_E*.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "../step.hpp"
#include "paceline/optim_device.h"
#include "table.hpp"

namespace paceline::optim::device {

// Where the parts of a table lie, in bytes from its beginning. All of it but the sums is in the
// image.
struct Layout {
  std::uint64_t states = 0;
  std::uint64_t tensors = 0;
  std::uint64_t chunks = 0;
  std::uint64_t sums = 0;
  std::uint64_t end = 0;
  Int64 chunk_count = 0;

  explicit Layout(std::span<const Tensor> tensors_of_table);
};

// Empty, or why there is nothing for this device. Remembered.
std::string open(int device, const std::string& folder);

// Empty, or why one of the driver's devices has no kernels.
std::string why_not_everywhere(const std::string& folder);

// `image` may be null, and has layout.sums bytes.
int make_image(std::span<const Group> groups, std::span<const Tensor> tensors, const Layout& layout,
               void* image);

int step(const paceline_optim_device_call& call);

}  // namespace paceline::optim::device
