// SPDX-License-Identifier: Apache-2.0
// A PCI function's configuration space: the device's own bytes, with two lists of offsets in them.
#include "agent/probe/pci/pci_config.hpp"

#include "tests/fuzz/fuzz.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace paceline;
  const auto bytes = fuzz::text(data, size);
  const auto config = agent::parse_pci_config(bytes);
  fuzz::require(config.bytes <= size && config.bytes <= 4096, "no more is shown than there is");
  fuzz::require(config.bytes >= 64 || config == agent::PciConfig{},
                "without a header nothing is known");
  fuzz::require(config.bytes > 256 || !(config.acs || config.ats),
                "extended capabilities lie in the extended space");
  if (config.pcie) {
    const auto is_size = [](int value) {
      return value >= 128 && value <= 4096 && (value & (value - 1)) == 0;
    };
    fuzz::require(is_size(config.pcie->max_payload) && is_size(config.pcie->max_read_request),
                  "sizes are real ones");
  }
  fuzz::require(agent::parse_pci_config(bytes) == config, "the same bytes say the same");
  return 0;
}
