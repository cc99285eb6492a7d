// SPDX-License-Identifier: Apache-2.0
// Parses a PCI function's configuration space for what affects traffic between two devices: payload
// sizes, ordering, redirection. settings.hpp holds the result for the checks. The bytes come from
// the device, so every offset in them is checked.
//
// Pure; thread-safe. Nothing fails: what the bytes do not hold is absent. `bytes` tells whether
// that means "has none" or "was not shown": the kernel shows 64 bytes to a process without
// CAP_SYS_ADMIN, and 256 if the extended space cannot be read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace paceline::agent {

/// PCI Express capability (0x10): Device Control.
struct PcieControl {
  int max_payload = 0;       // bytes
  int max_read_request = 0;  // bytes
  bool relaxed_ordering = false;
  bool operator==(const PcieControl&) const = default;
};

/// Access Control Services, extended capability 0x000D: the control word.
struct AcsControl {
  std::uint16_t word = 0;
  bool request_redirect() const { return (word & 0x04U) != 0; }
  bool completion_redirect() const { return (word & 0x08U) != 0; }
  /// True if peer-to-peer traffic is sent to the root complex instead of straight through the
  /// switch. Upstream forwarding (0x10) alone redirects nothing: it concerns packets that would
  /// leave by the port they came in. The kernel leaves it on where pci=disable_acs_redir is set.
  bool detours() const { return request_redirect() || completion_redirect(); }
  bool operator==(const AcsControl&) const = default;
};

struct PciConfig {
  // how many bytes were shown; 0 for less than a header, and for a function that fell off the bus
  std::size_t bytes = 0;
  std::optional<PcieControl> pcie;
  std::optional<AcsControl> acs;
  std::optional<bool> ats;  // Address Translation Services, 0x000F: enabled

  bool shows_capabilities() const { return bytes >= 256; }
  bool shows_extended() const { return bytes >= 4096; }
  bool operator==(const PciConfig&) const = default;
};

PciConfig parse_pci_config(std::string_view bytes);

/// The bytes with zeros in place of the serial number (extended capability 0003) and of the last
/// word of vital product data.
std::string scrub_config(std::string config);

}  // namespace paceline::agent
