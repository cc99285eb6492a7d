// SPDX-License-Identifier: Apache-2.0
// Replaces what identifies a machine with neutral names, the same name for the same thing within
// one recording. record.cpp uses it. One thread.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace paceline::agent {

class Scrubber {
 public:
  /// Replaces a GID but keeps its kind (empty, link-local, IPv4-mapped, other), which the checks
  /// need.
  std::string gid(const std::string& value);
  /// Replaces the UUID in "5a3c…/32766" and keeps the clique.
  std::string domain(const std::string& key);
  /// Notes a network device for replacement if its name holds a hardware address (enx0c42a1…).
  void note_netdev(const std::string& name);
  /// The text with every noted name replaced.
  std::string names(std::string text) const;

 private:
  std::map<std::string, std::string> gids_;
  std::map<std::string, std::string> uuids_;
  std::vector<std::pair<std::string, std::string>> names_;
};

/// The first CPU's model lines of /proc/cpuinfo, and of its flags only "hypervisor".
std::string scrub_cpuinfo(std::string_view text);
/// The parameters of PCI, IOMMU and huge pages on the kernel's command line.
std::string scrub_cmdline(std::string_view text);
/// The lines of /proc/modules about RDMA and accelerators, without addresses.
std::string scrub_modules(std::string_view text);
/// The lines of /proc/devices about accelerators and RDMA.
std::string scrub_devices(std::string_view text);

}  // namespace paceline::agent
