// SPDX-License-Identifier: Apache-2.0
// A recording of PCI configuration space by a privileged process, for readers without the
// privilege: the agent and `paceline doctor --pci-config`. The kernel shows 64 bytes to a process
// without CAP_SYS_ADMIN, and the checks need bytes after those. `paceline-probe --pci-config`
// writes it: a folder with one file for each function, and the time in `taken`.
//
// Plain values; thread-safe for different folders. An incomplete folder counts as empty. A recorded
// function counts only while the same device is at its address. Serial numbers are not recorded.
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

/// Records these functions into `folder` and removes what was recorded there before. An Error names
/// the file.
Status write_pci_snapshot(const Root& root, const std::filesystem::path& folder, WallTime now);

class PciSnapshot {
 public:
  /// An empty snapshot.
  PciSnapshot() = default;
  /// A folder that does not exist or is incomplete gives an empty snapshot.
  explicit PciSnapshot(std::filesystem::path folder);

  /// When it was taken; nullopt for an empty snapshot.
  const std::optional<WallTime>& taken() const { return taken_; }

  /// The recorded bytes of the function that now shows the bytes `shown`; empty if another device
  /// was recorded.
  std::string config_of(std::string_view address, std::string_view shown) const;

 private:
  std::filesystem::path folder_;
  std::optional<WallTime> taken_;
};

}  // namespace paceline::agent
