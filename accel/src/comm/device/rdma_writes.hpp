// SPDX-License-Identifier: Apache-2.0
// What an RDMA device writes into a GPU's memory, and when it is there: a completion that the host
// sees does not say that a kernel launched next sees what came. Some GPUs order such writes by
// themselves, others when they are asked to (cuFlushGPUDirectRDMAWrites).
//
// Ownership: none. Threads: any, with the GPU's context current. Failure: why it cannot be, or the
// driver's status.
#pragma once

#include <cstddef>
#include <expected>
#include <string>

#include "../../cuda/driver.hpp"
#include "../fd.hpp"
#include "../messages.hpp"

namespace paceline::comm::device {

class RdmaWrites {
 public:
  // Refused where the writes could not be made visible to `scope` (cuda::kToOwner,
  // cuda::kToAllDevices).
  static std::expected<RdmaWrites, std::string> of(const cuda::Driver& driver, int device,
                                                   int scope);

  // Until what has come is visible to `scope`. The driver's status.
  [[nodiscard]] int flush(int scope) const;

  // Memory of the GPU as RDMA devices take it, with its dma-buf in `file`, which may be closed when
  // it is registered.
  [[nodiscard]] DeviceRange range_of(cuda::Address address, std::size_t bytes, Fd& file) const;

 private:
  RdmaWrites(const cuda::Driver& driver, int device, int ordered)
      : driver_(&driver), device_(device), ordered_(ordered) {}

  const cuda::Driver* driver_;
  int device_;
  int ordered_;  // whom they are visible to in order
};

}  // namespace paceline::comm::device
