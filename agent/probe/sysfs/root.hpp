// SPDX-License-Identifier: Apache-2.0
// The kernel's files of the node, below prefixes: /sys, /proc and /dev of a container, of the node
// mounted elsewhere, or of a recorded machine.
//
// Small value, copied freely, thread-safe. Nothing throws: what cannot be read is absent, since
// sysfs answers "this device does not know" with an error (the speed of a link that is down), and a
// probe must report the rest of the machine all the same.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace paceline::agent {

class Root {
 public:
  /// Without `dev` the node's device files are not known: a container's own say nothing about the
  /// node.
  Root(std::filesystem::path sys, std::filesystem::path proc, std::filesystem::path dev = {})
      : sys_(std::move(sys)), proc_(std::move(proc)), dev_(std::move(dev)) {}

  /// `prefix`/sys, `prefix`/proc and `prefix`/dev.
  static Root at(const std::filesystem::path& prefix) {
    return {prefix / "sys", prefix / "proc", prefix / "dev"};
  }

  const std::filesystem::path& sys() const { return sys_; }
  const std::filesystem::path& proc() const { return proc_; }
  const std::filesystem::path& dev() const { return dev_; }

 private:
  std::filesystem::path sys_;
  std::filesystem::path proc_;
  std::filesystem::path dev_;
};

/// The first `most` bytes of a regular file; absent when it cannot be read or is anything else.
/// Never blocks.
std::optional<std::string> read_bytes(const std::filesystem::path& file, std::size_t most);

/// The file's text without blanks at the end, at most 1 MiB; absent when it cannot be read.
std::optional<std::string> read_text(const std::filesystem::path& file);

/// The file's text as a decimal number; absent when it is something else.
std::optional<std::int64_t> read_number(const std::filesystem::path& file);

/// Names in a folder, sorted as people count ("node2" before "node10"), at most 16384; empty when
/// it cannot be read.
std::vector<std::string> list_names(const std::filesystem::path& folder);

/// Where a link leads, with every link on the way resolved; absent when it leads nowhere.
std::optional<std::filesystem::path> resolve(const std::filesystem::path& link);

/// "0000:3b:00.0", possibly with a domain of more than four digits.
bool is_pci_address(std::string_view name);

/// The last PCI address ("0000:3b:00.0") in a device's real path; absent for a device that is not
/// on PCI.
std::optional<std::string> pci_address(const std::filesystem::path& device);

/// NUMA node that firmware gives a PCI function; absent when it says -1 or nothing.
std::optional<int> pci_numa_node(const Root& root, std::string_view address);

/// A kernel CPU list ("0-3,8") as numbers; absent on anything else. Refuses more than 65536 CPUs.
std::optional<std::vector<int>> parse_cpu_list(std::string_view text);

}  // namespace paceline::agent
