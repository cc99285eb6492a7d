// SPDX-License-Identifier: Apache-2.0
// Replaces what identifies a machine by names that say nothing, the same name for the same thing
// within one recording. One thread.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace paceline::agent {

class Scrubber {
 public:
  /// Keeps the kind (empty, link-local, IPv4-mapped, other), which the checks need.
  std::string gid(const std::string& value);
  /// "5a3c…/32766": another UUID, the same clique.
  std::string domain(const std::string& key);
  /// A network device that is named after its hardware address (enx0c42a1…) gets another name.
  void note_netdev(const std::string& name);
  /// Every noted name in a path or text replaced.
  std::string names(std::string text) const;

 private:
  std::map<std::string, std::string> gids_;
  std::map<std::string, std::string> uuids_;
  std::vector<std::pair<std::string, std::string>> names_;
};

/// The lines of /proc/cpuinfo that tell the model, of the first CPU, and of its flags the one that
/// says "virtual".
std::string scrub_cpuinfo(std::string_view text);
/// The words of the kernel's command line that concern PCI, IOMMU and huge pages.
std::string scrub_cmdline(std::string_view text);
/// The lines of /proc/modules about RDMA and accelerators, without addresses.
std::string scrub_modules(std::string_view text);
/// The lines of /proc/devices about accelerators and RDMA.
std::string scrub_devices(std::string_view text);

}  // namespace paceline::agent
