// SPDX-License-Identifier: Apache-2.0
// In a file of its own: the checks use it in builds without a JSON library.
#include "agent/registration/registrations.hpp"

namespace paceline::agent {

std::string describe(const Attempt& attempt) {
  switch (attempt.step) {
    case Step::kDevices: return "listing the RDMA devices";
    case Step::kOpen: return "opening " + attempt.nic;
    case Step::kHostMemory: return "registering host memory with " + attempt.nic;
    case Step::kPort: return "asking " + attempt.nic + " for its ports";
    case Step::kDmaBufDriver: return "asking the driver of " + attempt.nic + " for dma-buf";
    case Step::kGpus: return "finding the GPUs";
    case Step::kGpuMemory: return "allocating memory of " + attempt.gpu;
    case Step::kDmaBuf:
      return "registering memory of " + attempt.gpu + " with " + attempt.nic + " as dma-buf";
    case Step::kFabricMemory: return "exporting memory of " + attempt.gpu + " to its NVLink domain";
    case Step::kLinkLoad: return "copying to " + attempt.gpu + " to read its link";
    case Step::kPeerMemory:
      return "registering memory of " + attempt.gpu + " with " + attempt.nic + " by its pointer";
  }
  return {};
}

}  // namespace paceline::agent
