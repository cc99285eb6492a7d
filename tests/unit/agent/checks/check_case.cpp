// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/agent/checks/check_case.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <utility>

#include "agent/probe/formats/nvml_json.hpp"
#include "agent/probe/probe.hpp"

namespace paceline::agent {

Change short_config(const std::string& address) {
  return [=](const NodeTree& tree) {
    const auto config = read_bytes(tree.folder() / pci_file(address, "config"), 64);
    tree.write(pci_file(address, "config"), config.value_or(""));
  };
}

Change give_nic(bool ats) {
  return [=](const NodeTree& tree) {
    const std::string folder = "sys/devices/pci0000:00/0000:00:0c.0/";
    tree.write(folder + "infiniband/roce0/ports/1/state", "4: ACTIVE\n");
    tree.write(folder + "infiniband/roce0/ports/1/rate", "100 Gb/sec (4X EDR)\n");
    tree.write(folder + "infiniband/roce0/ports/1/link_layer", "Ethernet\n");
    std::filesystem::create_directories(tree.folder() / "sys/class/infiniband");
    std::filesystem::create_symlink("../../devices/pci0000:00/0000:00:0c.0/infiniband/roce0",
                                    tree.folder() / "sys/class/infiniband/roce0");
    std::filesystem::create_symlink("../../../0000:00:0c.0",
                                    tree.folder() / (folder + "infiniband/roce0/device"));
    std::string config(4096, '\0');
    config[0] = '\xe0';
    config[0x100] = 0x0f;
    config[0x102] = 1;
    config[0x107] = static_cast<char>(ats ? 0x80 : 0);
    tree.write(folder + "config", config);
  };
}

std::vector<Finding> findings_of(const NodeTree& tree, std::string_view fixture,
                                 const std::function<void(Hardware&)>& alter,
                                 std::optional<EarlierCounters> earlier,
                                 std::optional<Registrations> registrations) {
  const auto library = read_nvml_json(NodeTree::nvml_json(fixture), fixture);
  if (!library) {
    ADD_FAILURE() << library.error().message;
    return {};
  }
  Hardware hardware = probe_hardware(tree.root(), **library);
  if (alter) alter(hardware);
  const Settings settings = read_settings(tree.root(), hardware);
  return run_checks(Node(hardware, settings, std::move(earlier), std::move(registrations)));
}

}  // namespace paceline::agent
