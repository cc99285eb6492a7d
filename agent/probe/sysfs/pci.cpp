// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <charconv>

#include "agent/probe/hardware/accelerator.hpp"
#include "agent/probe/sysfs/devices.hpp"

namespace paceline::agent {
namespace {

constexpr std::uint32_t kNetwork = 0x02;  // base class
constexpr std::size_t kMaxDepth = 32;
constexpr std::size_t kMaxWord = 32;

/// "0x10de"; 0 for anything else.
std::uint32_t read_hex(const std::filesystem::path& file) {
  const std::string text = read_text(file).value_or("");
  if (!text.starts_with("0x")) return 0;
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data() + 2, text.data() + text.size(), value, 16);
  return error == std::errc{} && end == text.data() + text.size() ? value : 0;
}

std::string read_word(const std::filesystem::path& file) {
  std::string text = read_text(file).value_or("");
  return text.size() <= kMaxWord ? text : std::string{};
}

bool is_host_bridge(std::string_view name) { return name.starts_with("pci") && name.size() > 3; }

/// A device's real path from its host bridge on; empty if it is no PCI device.
std::vector<std::string> place_in_tree(const std::filesystem::path& real) {
  std::vector<std::string> path;
  for (const auto& part : real) {
    const std::string name = part.string();
    // Some host bridges (VMD) have another host bridge behind them. The innermost one is the root
    // that the devices share.
    if (is_host_bridge(name) && !is_pci_address(name)) path.clear();
    if (is_host_bridge(name) || (!path.empty() && is_pci_address(name))) path.push_back(name);
  }
  return path;
}

}  // namespace

bool pci_answers(const Root& root, std::string_view address) {
  const auto head = read_bytes(root.sys() / "bus/pci/devices" / address / "config", 4);
  // An unreadable file proves nothing; a device that is gone answers every read with ones.
  return !head || head->size() < 4 ||
         !std::all_of(
             head->begin(), head->end(), [](char byte) { return byte == static_cast<char>(0xff); });
}

std::vector<PciFunction> probe_pci(const Root& root) {
  std::vector<PciFunction> functions;
  const auto folder = root.sys() / "bus/pci/devices";
  auto names = list_names(folder);
  std::sort(names.begin(), names.end(), pci_address_before);
  for (const auto& name : names) {
    if (!is_pci_address(name)) continue;
    const auto real = resolve(folder / name);
    if (!real) continue;
    PciFunction function;
    function.address = name;
    function.path = place_in_tree(*real);
    if (function.path.size() < 2 || function.path.size() > kMaxDepth ||
        function.path.back() != name)
      continue;
    function.vendor = read_hex(*real / "vendor");
    function.device = read_hex(*real / "device");
    function.class_code = read_hex(*real / "class");
    function.numa_node = pci_numa_node(root, name);
    function.link_speed = read_word(*real / "current_link_speed");
    function.link_width = read_word(*real / "current_link_width");
    function.answers = pci_answers(root, name);
    if (function.class_code >> 16U == kNetwork || accelerator_kind(function) != nullptr) {
      std::error_code error;
      if (const auto driver = resolve(*real / "driver"))
        function.driver = driver->filename().string();
      function.virtual_function = std::filesystem::exists(*real / "physfn", error);
    }
    functions.push_back(std::move(function));
  }
  return functions;
}

}  // namespace paceline::agent
