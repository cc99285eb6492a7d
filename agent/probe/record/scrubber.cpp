// SPDX-License-Identifier: Apache-2.0
#include "agent/probe/record/scrubber.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <set>
#include <sstream>

namespace paceline::agent {
namespace {

std::string numbered(const char* pattern, unsigned long number) {
  std::array<char, 80> text{};
  std::snprintf(text.data(), text.size(), pattern, (number >> 16U) & 0xffffU, number & 0xffffU);
  return text.data();
}

}  // namespace

std::string Scrubber::gid(const std::string& value) {
  if (value.find_first_not_of("0:") == std::string::npos) return value;
  const auto [entry, first] = gids_.emplace(value, "");
  if (first) {
    const auto number = static_cast<unsigned long>(gids_.size());
    // Documentation prefixes: 192.0.2.0/24 and 2001:db8::/32.
    if (value.starts_with("0000:0000:0000:0000:0000:ffff:")) {
      entry->second =
          numbered("0000:0000:0000:0000:0000:ffff:c000:02%02lx", (number & 0xffU) << 16U);
    } else if (value.starts_with("fe80:")) {
      entry->second = numbered("fe80:0000:0000:0000:0000:0000:%04lx:%04lx", number);
    } else {
      entry->second = numbered("2001:0db8:0000:0000:0000:0000:%04lx:%04lx", number);
    }
  }
  return entry->second;
}

std::string Scrubber::domain(const std::string& key) {
  const auto slash = key.find('/');
  if (slash == std::string::npos) return key;
  const auto [entry, first] = uuids_.emplace(key.substr(0, slash), "");
  if (first) entry->second = numbered("00000000-0000-0000-0000-0000%04lx%04lx", uuids_.size());
  return entry->second + key.substr(slash);
}

void Scrubber::note_netdev(const std::string& name) {
  const bool address = name.size() == 15 && name.starts_with("enx") &&
                       name.find_first_not_of("0123456789abcdef", 3) == std::string::npos;
  if (address) names_.emplace_back(name, "enx" + std::to_string(names_.size()));
}

std::string Scrubber::names(std::string text) const {
  for (const auto& [name, other] : names_) {
    for (auto at = text.find(name); at != std::string::npos;
         at = text.find(name, at + other.size()))
      text.replace(at, name.size(), other);
  }
  return text;
}

std::string scrub_cpuinfo(std::string_view text) {
  const std::set<std::string_view> kept{"processor",  "vendor_id", "cpu family",      "model",
                                        "model name", "Model",     "CPU implementer", "CPU part"};
  std::string result;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line) && !line.empty();) {
    const std::string_view whole = line;
    const std::string_view key =
        whole.substr(0, whole.find_last_not_of(" \t", whole.find(':') - 1) + 1);
    if (whole.find(':') != std::string_view::npos && kept.contains(key)) result += line + "\n";
    if (key == "flags" && (line + " ").find(" hypervisor ") != std::string::npos)
      result += "flags\t\t: hypervisor\n";
  }
  return result;
}

std::string scrub_cmdline(std::string_view text) {
  std::string result;
  std::istringstream words{std::string(text)};
  for (std::string word; words >> word;) {
    const bool kept =
        std::ranges::any_of(std::array{"iommu", "intel_iommu=", "amd_iommu=", "arm-smmu",
                                       "pci=", "pcie_", "hugepages", "default_hugepagesz="},
                            [&](const char* start) { return word.starts_with(start); });
    if (kept) result += (result.empty() ? "" : " ") + word;
  }
  return result;
}

std::string scrub_modules(std::string_view text) {
  std::string result;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    const bool kept = std::ranges::any_of(
        std::array{"nvidia", "nv_", "gdrdrv", "ib_", "rdma", "mlx", "efa", "amdgpu", "irdma"},
        [&](const char* start) { return line.starts_with(start); });
    std::istringstream fields(line);
    std::string name;
    std::string size;
    std::string count;
    std::string users;
    if (kept && fields >> name >> size >> count >> users)
      result += name + " " + size + " " + count + " " + users + " Live 0x0\n";
  }
  return result;
}

std::string scrub_devices(std::string_view text) {
  std::string result;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    const bool kept =
        std::ranges::any_of(std::array{" nvidia", " gdrdrv", " infiniband"},
                            [&](const char* name) { return line.find(name) != std::string::npos; });
    if (kept) result += line + "\n";
  }
  return result;
}

}  // namespace paceline::agent
