// SPDX-License-Identifier: Apache-2.0
// One attempt of paceline-probe to register memory with a NIC, or a step towards it. Plain values.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "common/base/clock.hpp"

namespace paceline::agent {

enum class Step {
  kDevices,       // list the RDMA devices
  kOpen,          // open a NIC
  kHostMemory,    // register host memory with it
  kPort,          // read the MTUs of one of its ports
  kDmaBufDriver,  // ask whether its driver supports dma-buf
  kGpus,          // find the GPUs
  kGpuMemory,     // allocate memory of a GPU
  kDmaBuf,        // register it with a NIC as dma-buf
  kPeerMemory,    // register it with a NIC by its pointer, which needs a peer memory module
  kLinkLoad,      // copy to a GPU for a moment and read its PCIe link, which an idle GPU lowers
  // export memory of a GPU to its NVLink domain and import it again, as NCCL does before it uses
  // one
  kFabricMemory,
};

/// A refusal of these steps is information and no failure by itself.
constexpr bool only_tells(Step step) {
  return step == Step::kDmaBufDriver || step == Step::kPort || step == Step::kFabricMemory;
}

enum class Outcome { kDone, kRefused, kHung, kNotTried };

struct Attempt {
  Step step = Step::kDevices;
  std::string nic;  // "mlx5_0"; empty if the step concerns no NIC
  std::string gpu;  // "0000:1b:00.0"; empty if the step concerns no GPU
  Outcome outcome = Outcome::kNotTried;
  int error = 0;         // errno of a refusal; 0 if it has none
  std::string why;       // empty when done
  std::string saw = {};  // of kLinkLoad: "32.0 GT/s PCIe x16"; of kPort: "port 1 MTU 1024 of 4096"
  /// The time of an attempt from an earlier report, for a GPU that is busy now.
  std::optional<WallTime> taken = {};
  bool operator==(const Attempt&) const = default;
};

std::string_view to_string(Step step);
std::string_view to_string(Outcome outcome);
std::optional<Step> step_of(std::string_view text);
std::optional<Outcome> outcome_of(std::string_view text);

/// "registering memory of 0000:1b:00.0 with mlx5_0 as dma-buf".
std::string describe(const Attempt& attempt);

}  // namespace paceline::agent
