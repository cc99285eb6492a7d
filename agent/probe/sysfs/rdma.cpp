// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <charconv>
#include <cmath>

#include "agent/probe/sysfs/devices.hpp"

namespace paceline::agent {
namespace {

constexpr std::size_t kMaxRdmaDevices = 128;
constexpr std::size_t kMaxPorts = 8;
constexpr std::size_t kMaxGids = 64;
constexpr std::size_t kMaxPortWord = 64;

std::string word(const std::filesystem::path& file) {
  std::string text = read_text(file).value_or("");
  if (text.size() > kMaxPortWord) text.clear();
  return text;
}

/// The kernel writes "4: ACTIVE" and "5: LinkUp".
std::string state_name(const std::filesystem::path& file) {
  std::string text = word(file);
  const auto colon = text.find(": ");
  return colon == std::string::npos ? text : text.substr(colon + 2);
}

/// "400 Gb/sec (4X NDR)", "2.5 Gb/sec (1X SDR)".
std::optional<std::int64_t> rate_mbps(const std::filesystem::path& file) {
  const std::string text = word(file);
  double gbps = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), gbps);
  if (error != std::errc{} || !std::string_view(end).starts_with(" Gb/sec") ||
      !(gbps > 0 && gbps < 1e6))
    return std::nullopt;
  return std::llround(gbps * 1000);
}

std::optional<int> small_number(std::string_view name) {
  int value = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), value);
  if (error != std::errc{} || end != name.data() + name.size() || value < 0) return std::nullopt;
  return value;
}

std::vector<Gid> read_gids(const std::filesystem::path& port) {
  std::vector<Gid> gids;
  for (const auto& name : list_names(port / "gids")) {
    if (gids.size() == kMaxGids) break;
    const auto index = small_number(name);
    std::string value = word(port / "gids" / name);
    if (!index || value.find_first_not_of("0:") == std::string::npos) continue;
    gids.push_back({*index, std::move(value), word(port / "gid_attrs/types" / name),
                    word(port / "gid_attrs/ndevs" / name)});
  }
  return gids;
}

RdmaPort read_port(const std::filesystem::path& folder, int number) {
  return {number,
          state_name(folder / "state"),
          state_name(folder / "phys_state"),
          word(folder / "link_layer"),
          rate_mbps(folder / "rate"),
          read_gids(folder)};
}

/// EFA's driver names the memory that it registers in `p2p`; older ones write 1 into `gdr`.
std::string efa_peer_memory(const std::filesystem::path& device) {
  std::string provider = word(device / "p2p");
  if (!provider.empty() && provider != "none") return provider;
  return word(device / "gdr") == "1" ? "NVIDIA" : "";
}

std::vector<std::string> netdevs_of_gids(const RdmaDevice& device) {
  std::vector<std::string> names;
  for (const auto& port : device.ports) {
    for (const auto& gid : port.gids) {
      const bool plain = !gid.netdev.empty() && gid.netdev.find('/') == std::string::npos &&
                         gid.netdev.front() != '.';
      if (plain && std::find(names.begin(), names.end(), gid.netdev) == names.end())
        names.push_back(gid.netdev);
    }
  }
  return names;
}

}  // namespace

bool manages_switches(const std::filesystem::path& device) {
  constexpr std::size_t kMaxProductData = 1024;
  if (word(device / "vendor") != "0x15b3" || !word(device / "class").starts_with("0x0207"))
    return false;
  const auto data = read_bytes(device / "vpd", kMaxProductData);
  return data && data->find(kManagesSwitches) != std::string::npos;
}

std::vector<RdmaDevice> probe_rdma(const Root& root) {
  std::vector<RdmaDevice> devices;
  const auto folder = root.sys() / "class/infiniband";
  for (const auto& name : list_names(folder)) {
    if (devices.size() == kMaxRdmaDevices) break;
    const auto device = folder / name;
    std::error_code error;
    if (!std::filesystem::is_directory(device / "ports", error)) continue;
    // A virtual function is used by another guest or container, as with network devices.
    if (std::filesystem::exists(device / "device/physfn", error)) continue;
    RdmaDevice found;
    found.name = name;
    found.firmware = word(device / "fw_ver");
    found.board_id = word(device / "board_id");
    found.pci_address = pci_address(device / "device").value_or("");
    if (!found.pci_address.empty()) found.numa_node = pci_numa_node(root, found.pci_address);
    found.netdevs = list_names(device / "device/net");
    std::erase_if(found.netdevs, [&](const std::string& netdev) {
      return is_representor(device / "device/net" / netdev);
    });
    if (const auto driver = resolve(device / "device/driver"))
      found.driver = driver->filename().string();
    found.own_peer_memory = efa_peer_memory(device / "device");
    found.manages_switches = manages_switches(device / "device");
    for (const auto& port : list_names(device / "ports")) {
      const auto number = small_number(port);
      if (number && found.ports.size() < kMaxPorts)
        found.ports.push_back(read_port(device / "ports" / port, *number));
    }
    // Soft RoCE has no hardware of its own: its GIDs name the network device that it uses.
    if (found.netdevs.empty()) found.netdevs = netdevs_of_gids(found);
    devices.push_back(std::move(found));
  }
  return devices;
}

}  // namespace paceline::agent
