// SPDX-License-Identifier: Apache-2.0
#include "launcher/process/cgroup.hpp"

#include <algorithm>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace paceline::process {
namespace {

std::optional<std::uint64_t> counter(const std::filesystem::path& file, std::string_view name) {
  std::ifstream in(file);
  std::string key;
  std::uint64_t value = 0;
  while (in >> key >> value) {
    if (key == name) return value;
  }
  return std::nullopt;
}

struct CgroupFile {
  std::filesystem::path path;
  bool v2 = false;
};

/// Where the controller's file of this cgroup may be, the likeliest first.
std::vector<CgroupFile> files_of(const std::filesystem::path& root, std::string_view controller,
                                 std::string_view v2, std::string_view v1) {
  const std::filesystem::path mount = root / "sys/fs/cgroup";
  const std::filesystem::path v1_mount = mount / controller;
  const std::string listed = "," + std::string(controller) + ",";
  std::vector<CgroupFile> files;
  std::ifstream membership(root / "proc/self/cgroup");
  for (std::string line; std::getline(membership, line);) {
    // "0::/path" (v2), "5:memory:/path" or "5:cpu,memory:/path" (v1)
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string path =
        line.substr(line.find_first_not_of('/', second + 1) == std::string::npos
                        ? line.size()
                        : line.find_first_not_of('/', second + 1));
    if (controllers == ",,") files.push_back({mount / path / v2, true});
    if (controllers.find(listed) != std::string::npos)
      files.push_back({v1_mount / path / v1, false});
  }
  // In a container without a cgroup namespace, the path is the host's, but the mount has this
  // container's cgroup at its root.
  files.push_back({mount / v2, true});
  files.push_back({v1_mount / v1, false});
  return files;
}

std::optional<std::uint64_t> number_in(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::uint64_t value = 0;
  if (!(in >> value)) return std::nullopt;  // "max" too: no limit
  return value;
}

std::optional<Memory> memory_of_cgroup(const std::filesystem::path& root) {
  const std::vector<CgroupFile> limits =
      files_of(root, "memory", "memory.max", "memory.limit_in_bytes");
  for (const CgroupFile& file : limits) {
    const auto limit = number_in(file.path);
    const std::filesystem::path folder = file.path.parent_path();
    const auto used = number_in(folder / (file.v2 ? "memory.current" : "memory.usage_in_bytes"));
    if (!limit || !used) continue;
    const auto idle =
        counter(folder / "memory.stat", file.v2 ? "inactive_file" : "total_inactive_file");
    const std::uint64_t held = *used - std::min(*used, idle.value_or(0));
    return Memory{*limit, *limit - std::min(*limit, held)};
  }
  return std::nullopt;
}

std::optional<Memory> memory_of_machine(const std::filesystem::path& root) {
  constexpr std::uint64_t kUnit = 1024;
  std::ifstream in(root / "proc/meminfo");
  Memory memory;
  std::string name;
  for (std::uint64_t value = 0; in >> name >> value; in.ignore(kUnit, '\n')) {
    if (name == "MemTotal:") memory.total = value * kUnit;
    if (name == "MemAvailable:") memory.left = value * kUnit;
  }
  return memory.total == 0 ? std::nullopt : std::optional(memory);
}

}  // namespace

std::optional<Memory> memory(const std::filesystem::path& root) {
  const auto machine = memory_of_machine(root);
  const auto own = memory_of_cgroup(root);
  if (!own || (machine && machine->left < own->left)) return machine;
  return own;
}

std::optional<std::uint64_t> oom_kills(const std::filesystem::path& root) {
  for (const CgroupFile& file : files_of(root, "memory", "memory.events", "memory.oom_control")) {
    if (const auto value = counter(file.path, "oom_kill")) return value;
  }
  return std::nullopt;
}

std::optional<double> throttled_seconds(const std::filesystem::path& root) {
  for (const CgroupFile& file : files_of(root, "cpu", "cpu.stat", "cpu.stat")) {
    const auto value = counter(file.path, file.v2 ? "throttled_usec" : "throttled_time");
    if (value) return static_cast<double>(*value) / (file.v2 ? 1e6 : 1e9);
  }
  return std::nullopt;
}

}  // namespace paceline::process
