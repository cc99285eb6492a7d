// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <charconv>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>

#include "agent/probe/sysfs/devices.hpp"

namespace paceline::agent {
namespace {

// Firmware reserves slightly different amounts at each boot. Values are rounded so that a reboot
// does not change the node's report.
constexpr std::uint64_t kMemoryStepMib = 64;

std::string cpu_model(const Root& root) {
  std::istringstream lines(read_text(root.proc() / "cpuinfo").value_or(""));
  std::string arm;
  for (std::string line; std::getline(lines, line);) {
    const auto colon = line.find(':');
    if (colon == std::string::npos) continue;
    const std::string_view key =
        std::string_view(line).substr(0, line.find_last_not_of(" \t", colon - 1) + 1);
    const auto start = line.find_first_not_of(" \t", colon + 1);
    if (start == std::string::npos) continue;
    if (key == "model name" || key == "Model") return line.substr(start);
    // Arm kernels give only numbers; the first core's stand for all cores.
    if (arm.empty() && key == "CPU implementer") arm = "Arm implementer " + line.substr(start);
    if (key == "CPU part" && arm.find("part") == std::string::npos)
      arm += " part " + line.substr(start);
  }
  return arm.empty() ? "unknown" : arm;
}

/// Memory of a line such as "Node 0 MemTotal:  16303652 kB" or "MemTotal: 16303652 kB".
std::uint64_t memory_mib(const std::filesystem::path& file) {
  const std::string text = read_text(file).value_or("");
  const auto at = text.find("MemTotal:");
  if (at == std::string::npos) return 0;
  const auto digits = text.find_first_of("0123456789", at);
  if (digits == std::string::npos) return 0;
  std::uint64_t kib = 0;
  std::from_chars(text.data() + digits, text.data() + text.size(), kib);
  const std::uint64_t steps = (kib / 1024 + kMemoryStepMib / 2) / kMemoryStepMib;
  return steps * kMemoryStepMib;
}

int count_cores(const Root& root, const std::vector<int>& online) {
  std::set<std::pair<std::int64_t, std::int64_t>> cores;
  for (const int cpu : online) {
    const auto topology =
        root.sys() / "devices/system/cpu" / ("cpu" + std::to_string(cpu)) / "topology";
    const auto core = read_number(topology / "core_id");
    // A virtual machine may have no topology files; each CPU then counts as a core.
    cores.emplace(core ? read_number(topology / "physical_package_id").value_or(0) : -1,
                  core.value_or(cpu));
  }
  return static_cast<int>(cores.size());
}

}  // namespace

Cpu probe_cpu(const Root& root) {
  Cpu cpu;
  cpu.model = cpu_model(root);
  const std::string online = read_text(root.sys() / "devices/system/cpu/online").value_or("");
  const auto cpus = parse_cpu_list(online).value_or(std::vector<int>{});
  cpu.threads = static_cast<int>(cpus.size());
  cpu.cores = count_cores(root, cpus);

  const auto nodes = root.sys() / "devices/system/node";
  for (const auto& name : list_names(nodes)) {
    int id = 0;
    if (name.size() < 5 || !name.starts_with("node")) continue;
    const auto [end, error] = std::from_chars(name.data() + 4, name.data() + name.size(), id);
    if (error != std::errc{} || end != name.data() + name.size()) continue;
    cpu.numa_nodes.push_back({id, read_text(nodes / name / "cpulist").value_or(""),
                              memory_mib(nodes / name / "meminfo")});
  }
  // A kernel without NUMA has no node folders: node 0 is the whole machine.
  if (cpu.numa_nodes.empty())
    cpu.numa_nodes.push_back({0, online, memory_mib(root.proc() / "meminfo")});
  return cpu;
}

}  // namespace paceline::agent
