// SPDX-License-Identifier: Apache-2.0
#include "agent/checks/privileged_scan.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "agent/probe/sysfs/root.hpp"
#include "common/base/duration.hpp"

namespace paceline::agent {
namespace {

std::string age_text(const std::string& what, bool there, const std::optional<WallTime>& taken,
                     WallTime now) {
  if (!there) return "no " + what;
  if (!taken) return what + " of an unknown time";
  // After the clock was set back an age is at least 0. Whole seconds are enough for a reader.
  const auto age =
      std::max(std::chrono::floor<std::chrono::seconds>(now - *taken), std::chrono::seconds(0));
  return what + " of " + format_duration(age) + " ago";
}

/// For GPUs that were busy during that scan.
std::string recalled_text(const Registrations& registrations, WallTime now) {
  std::set<std::string> gpus;
  std::optional<WallTime> oldest;
  for (const auto& attempt : registrations.attempts) {
    if (!attempt.taken) continue;
    gpus.insert(attempt.gpu);
    oldest = std::min(oldest.value_or(*attempt.taken), *attempt.taken);
  }
  if (!oldest) return {};
  return " (" +
         age_text("those of " + std::to_string(gpus.size()) + " GPUs that had work then:", true,
                  oldest, now) +
         ")";
}

}  // namespace

PrivilegedScan read_privileged_scan(const PrivilegedScanFiles& files) {
  PrivilegedScan scan;
  scan.pci = PciSnapshot(files.pci_config);
  if (files.registrations.empty()) return scan;
  const auto text = read_text(files.registrations);
  if (!text) return scan;
  auto report = read_registrations(*text);
  if (report) {
    scan.registrations = std::move(*report);
  } else {
    scan.problem = "cannot use " + files.registrations.string() + ": " + report.error().message;
  }
  return scan;
}

std::string ages_text(const PrivilegedScanFiles& files, const PrivilegedScan& scan, WallTime now) {
  std::string text;
  if (!files.pci_config.empty())
    text = age_text("PCI configuration", scan.pci.taken().has_value(), scan.pci.taken(), now);
  if (!files.registrations.empty()) {
    text += (text.empty() ? "" : ", ");
    text +=
        age_text("registrations", scan.registrations.has_value(), scan.registrations_taken(), now);
    if (scan.registrations) text += recalled_text(*scan.registrations, now);
  }
  return text;
}

}  // namespace paceline::agent
