// SPDX-License-Identifier: Apache-2.0
// PCI configuration space as somebody with the privilege read it, for one who has it not: the
// kernel shows 64 bytes to a process without CAP_SYS_ADMIN, and what the checks ask lies behind. A
// folder with one file for each function, and the time in `taken`.
//
// Plain values; thread-safe for different folders. Nothing is served of a folder that was not
// written to its end, nor for a function that is not the one that was recorded: another device may
// stand there meanwhile. Serial numbers are not recorded.
#pragma once

#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "agent/probe/hardware/hardware.hpp"
#include "agent/probe/sysfs/root.hpp"
#include "common/base/clock.hpp"
#include "common/base/error.hpp"

namespace paceline::agent {

/// Addresses of the accelerators, the RDMA devices, and every bridge above them.
std::set<std::string> functions_on_gpu_nic_paths(const Hardware& hardware);

/// Records the functions that the checks look at below `folder`, instead of what was there. Failure
/// names the file.
Status write_pci_snapshot(const Root& root, const std::filesystem::path& folder, WallTime now);

class PciSnapshot {
 public:
  /// Of nothing.
  PciSnapshot() = default;
  /// A folder that is not there, or not whole, is of nothing too.
  explicit PciSnapshot(std::filesystem::path folder);

  /// When it was taken; absent where there is none.
  const std::optional<WallTime>& taken() const { return taken_; }

  /// The recorded bytes of the function that shows these now; empty where they are another's.
  std::string config_of(std::string_view address, std::string_view shown) const;

 private:
  std::filesystem::path folder_;
  std::optional<WallTime> taken_;
};

}  // namespace paceline::agent
