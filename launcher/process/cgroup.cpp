// SPDX-License-Identifier: Apache-2.0
#include "launcher/process/cgroup.hpp"

#include <fstream>
#include <string>
#include <vector>

namespace paceline::process {
namespace {

std::optional<std::uint64_t> counter(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::string key;
  std::uint64_t value = 0;
  while (in >> key >> value) {
    if (key == "oom_kill") return value;
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::uint64_t> oom_kills(const std::filesystem::path& root) {
  const std::filesystem::path mount = root / "sys/fs/cgroup";
  std::vector<std::filesystem::path> files;
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
    if (controllers == ",,") files.push_back(mount / path / "memory.events");
    if (controllers.find(",memory,") != std::string::npos)
      files.push_back(mount / "memory" / path / "memory.oom_control");
  }
  // In a container without a cgroup namespace, the path is the host's, but the mount has this
  // container's cgroup at its root.
  files.push_back(mount / "memory.events");
  files.push_back(mount / "memory/memory.oom_control");
  for (const auto& file : files) {
    if (const auto value = counter(file)) return value;
  }
  return std::nullopt;
}

}  // namespace paceline::process
