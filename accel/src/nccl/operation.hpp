// SPDX-License-Identifier: Apache-2.0
// One collective, send or receive of NCCL, as the plugin hands it from NCCL's threads to its own.
// A value.
#pragma once

#include <cstdint>

#include "paceline/sources.h"

namespace paceline::nccl {

struct Operation {
  paceline_position position{};  // the step that enqueued it; step 0 if no ring was open
  std::uint64_t serial = 0;      // of the process, from 1 in the order of enqueuing
  std::uint64_t group = 0;       // the communicator, unique within the process
  std::uint64_t sequence = 0;    // number of the collective on its communicator; 0: send or receive
  std::uint64_t bytes = 0;
  bool bytes_known = false;
  // On the device. start_ns and stop_ns are equal if its time is not known.
  std::uint64_t start_ns = 0;
  std::uint64_t stop_ns = 0;
  bool wait_known = false;
  std::uint64_t wait_ns = 0;  // for other ranks, within the time

  bool timed() const { return stop_ns > start_ns; }
  bool collective() const { return sequence != 0; }
};

}  // namespace paceline::nccl
