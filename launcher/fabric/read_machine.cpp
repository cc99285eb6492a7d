// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <string_view>
#include <system_error>

#include "launcher/fabric/machine.hpp"

namespace paceline::fabric {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostDevices = 128;
constexpr int kMostPorts = 8;
constexpr int kMostGids = 256;
constexpr std::size_t kMostProductData = 1024;
constexpr std::string_view kMappedIpv4 = "0000:0000:0000:0000:0000:ffff:";
constexpr std::string_view kLinkLocal = "fe80:0000:0000:0000:";

/// Empty if the file cannot be read. The kernel answers with an error where a device lacks a value.
std::string first_line(const fs::path& file) {
  std::ifstream stream(file);
  std::string line;
  std::getline(stream, line);
  return line;
}

std::int64_t number_in(std::string_view text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && number > 0 ? number : 0;
}

/// In natural order: mlx5_2 is before mlx5_10.
std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (names.size() == kMostDevices) break;
    names.push_back(entry.path().filename().string());
  }
  std::ranges::sort(names, [](const std::string& a, const std::string& b) {
    return a.size() != b.size() ? a.size() < b.size() : a < b;
  });
  return names;
}

/// "0000:3b:00.0", the last part of the path that a link leads to; empty for a device not on PCI.
std::string pci_address(const fs::path& device) {
  std::error_code error;
  const fs::path real = fs::canonical(device, error);
  if (error) return "";
  const std::string name = real.filename().string();
  const bool pci =
      name.size() >= 12 && name[name.size() - 2] == '.' && std::ranges::count(name, ':') == 2;
  return pci ? name : "";
}

/// RDMA in user space goes through /dev/infiniband/uverbsN. A pod sees every device of its node in
/// /sys, but has only the files of those that it was given.
bool may_be_opened(const fs::path& root, const fs::path& device) {
  for (const std::string& name : names_in(device / "infiniband_verbs")) {
    if (::access((root / "dev/infiniband" / name).c_str(), R_OK | W_OK) == 0) return true;
  }
  return false;
}

/// The vital product data of a ConnectX-7 that manages NVSwitches holds this word. Apart from it
/// the device looks like any NIC. Only root can read it.
bool manages_switches(const fs::path& device) {
  if (first_line(device / "vendor") != "0x15b3" ||
      !first_line(device / "class").starts_with("0x0207"))
    return false;
  std::ifstream stream(device / "vpd", std::ios::binary);
  std::string data(kMostProductData, '\0');
  stream.read(data.data(), static_cast<std::streamsize>(data.size()));
  data.resize(static_cast<std::size_t>(std::max<std::streamsize>(0, stream.gcount())));
  return data.contains("SW_MNG");
}

void read_gids(const fs::path& folder, RdmaPort& port) {
  for (int index = 0; index < kMostGids; ++index) {
    const std::string name = std::to_string(index);
    const std::string gid = first_line(folder / "gids" / name);
    if (gid.empty()) break;
    if (gid.find_first_not_of("0:") == std::string::npos) continue;  // an entry without an address
    // The type cannot be read if the network device of this GID is not in this container.
    if (first_line(folder / "gid_attrs/types" / name) != "RoCE v2") continue;
    if (gid.starts_with(kMappedIpv4)) {
      if (!port.ipv4_gid) port.ipv4_gid = index;
    } else if (!gid.starts_with(kLinkLocal)) {
      port.ipv6_gid = true;
    }
  }
}

RdmaPort read_device(const std::string& name, const fs::path& device) {
  RdmaPort read;
  read.device = name;
  read.address = pci_address(device);
  read.physical = pci_address(device / "physfn");
  std::error_code error;
  read.efa = fs::read_symlink(device / "driver", error).filename() == "efa";
  read.manages_switches = manages_switches(device);
  return read;
}

std::string kind_of(const fs::path& folder, const fs::path& device, const std::string& address) {
  std::string board = first_line(folder / "board_id");
  if (board.empty()) board = first_line(device / "vendor") + first_line(device / "device");
  const std::size_t dot = address.rfind('.');
  return board + (dot == std::string::npos ? "" : address.substr(dot));
}

void read_ports(const fs::path& root, const std::string& name, std::vector<RdmaPort>& ports) {
  const fs::path folder = root / "sys/class/infiniband" / name;
  const fs::path device = folder / "device";
  if (!may_be_opened(root, device)) return;
  const RdmaPort common = read_device(name, device);
  const std::string kind = kind_of(folder, device, common.address);
  for (int number = 1; number <= kMostPorts; ++number) {
    const fs::path files = folder / "ports" / std::to_string(number);
    const std::string state = first_line(files / "state");
    if (state.empty()) break;
    RdmaPort port = common;
    port.number = number;
    port.active = state.starts_with("4:");  // "4: ACTIVE"
    port.layer = first_line(files / "link_layer");
    port.gbps = number_in(first_line(files / "rate"));  // "400 Gb/sec (4X NDR)"
    port.kind = kind + ":" + std::to_string(number);
    if (port.layer == "Ethernet") read_gids(files, port);
    ports.push_back(std::move(port));
  }
}

/// GPUs have the files nvidia0, nvidia1, …; nvidiactl and others are none.
int count_gpus(const fs::path& folder) {
  constexpr std::string_view kPrefix = "nvidia";
  int count = 0;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(kPrefix) && name.size() > kPrefix.size() &&
        name.find_first_not_of("0123456789", kPrefix.size()) == std::string::npos)
      ++count;
  }
  return count;
}

}  // namespace

Machine read_machine(const fs::path& root, const std::string& interface) {
  Machine machine;
  for (const std::string& name : names_in(root / "sys/class/infiniband"))
    read_ports(root, name, machine.ports);
  if (!interface.empty()) {
    const fs::path folder = root / "sys/class/net" / interface;
    machine.interface = {interface, first_line(folder / "device/vendor"),
                         number_in(first_line(folder / "speed"))};
  }
  machine.gpus = count_gpus(root / "dev");
  return machine;
}

}  // namespace paceline::fabric
