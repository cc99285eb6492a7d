// SPDX-License-Identifier: Apache-2.0
// What was looked at with privilege before the agent started: PCI configuration space and the
// registrations that paceline-probe tried, as its one-shot container left them in files. Both are
// as old as that look, so their times go with them.
//
// Plain values; thread-safe. What is not there was not looked at; a report that is none is a
// problem that names the file and says what helps.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "agent/probe/pci/pci_snapshot.hpp"
#include "agent/registration/registrations.hpp"
#include "common/base/clock.hpp"

namespace paceline::agent {

/// Where the files are; an empty path: nobody looked.
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

/// "PCI configuration of 12s ago, registrations of 3h20m ago"; of what was asked for and is not
/// there it says so. Empty where nothing was.
std::string ages_text(const PrivilegedScanFiles& files, const PrivilegedScan& looked, WallTime now);

}  // namespace paceline::agent
