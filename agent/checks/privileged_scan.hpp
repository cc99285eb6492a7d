// SPDX-License-Identifier: Apache-2.0
// The results of the privileged scan: PCI configuration space and the attempts of paceline-probe. A
// one-shot container runs the scan and leaves the results in files before the agent starts; the
// agent and `paceline doctor` read them. The results are as old as the scan, so they carry its
// times.
//
// Plain values; thread-safe. A missing file means that there was no scan. A file that is no report
// is a problem, whose text names the file and says what helps.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "agent/probe/pci/pci_snapshot.hpp"
#include "agent/registration/registrations.hpp"
#include "common/base/clock.hpp"

namespace paceline::agent {

/// Where the files are; an empty path means no scan.
struct PrivilegedScanFiles {
  std::filesystem::path pci_config;
  std::filesystem::path registrations;
};

struct PrivilegedScan {
  PciSnapshot pci;
  std::optional<Registrations> registrations;
  std::string problem;

  std::optional<WallTime> registrations_taken() const {
    return registrations ? registrations->taken : std::nullopt;
  }
};

PrivilegedScan read_privileged_scan(const PrivilegedScanFiles& files);

/// "PCI configuration of 12s ago, registrations of 3h20m ago"; says so if a requested file is
/// missing. Empty if no file was requested.
std::string ages_text(const PrivilegedScanFiles& files, const PrivilegedScan& scan, WallTime now);

}  // namespace paceline::agent
