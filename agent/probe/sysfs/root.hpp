// SPDX-License-Identifier: Apache-2.0
// The kernel's files of a node, below prefixes: /sys, /proc and /dev of this container, of the node
// mounted elsewhere, or of a recorded machine. Every probe takes a Root.
//
// Small value, copied freely, thread-safe. Nothing throws: what cannot be read is absent. The
// kernel returns an error for a value that a device does not have (the speed of a link that is
// down), and the rest of the machine must be reported all the same.
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
  /// Without `dev` the node's device files are unknown: a container's own are not the node's.
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

/// The first `most` bytes of a regular file; nullopt if it cannot be read or is no regular file.
/// Never blocks.
std::optional<std::string> read_bytes(const std::filesystem::path& file, std::size_t most);

/// The kernel's messages since boot that are still in its ring, from /dev/kmsg or from a recorded
/// file, at most 8 MiB; nullopt without the right to read them. Never blocks.
std::optional<std::string> read_kernel_log(const std::filesystem::path& file);

/// The file's text without trailing blanks, at most 1 MiB; nullopt if it cannot be read.
std::optional<std::string> read_text(const std::filesystem::path& file);

/// The file's text as a decimal number; nullopt for anything else.
std::optional<std::int64_t> read_number(const std::filesystem::path& file);

/// Names in a folder, at most 16384, in natural order ("node2" before "node10"); empty if it cannot
/// be read.
std::vector<std::string> list_names(const std::filesystem::path& folder);

/// The target of a link with all links resolved; nullopt if it does not exist.
std::optional<std::filesystem::path> resolve(const std::filesystem::path& link);

/// True for "0000:3b:00.0", also with a domain of more than four digits.
bool is_pci_address(std::string_view name);

/// The order of the bus: addresses are hexadecimal, and a domain may have more than four digits.
bool pci_address_before(std::string_view a, std::string_view b);

/// The last PCI address ("0000:3b:00.0") in a device's real path; nullopt for a device that is not
/// on PCI.
std::optional<std::string> pci_address(const std::filesystem::path& device);

/// The NUMA node that firmware gives a PCI function; nullopt if it is -1 or absent.
std::optional<int> pci_numa_node(const Root& root, std::string_view address);

/// A kernel CPU list ("0-3,8") as numbers; nullopt for anything else and for more than 65536 CPUs.
std::optional<std::vector<int>> parse_cpu_list(std::string_view text);

}  // namespace paceline::agent
