// SPDX-License-Identifier: Apache-2.0
#include "launcher/process/cpu_binding.hpp"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <map>
#include <string>
#include <system_error>

namespace paceline::process {
namespace {

constexpr int kMostCpus = 8192;

}  // namespace

std::vector<int> parse_cpu_list(std::string_view text) {
  std::vector<int> cpus;
  while (!text.empty()) {
    std::string_view part = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), part.size() + 1));
    int first = 0;
    auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), first);
    if (error != std::errc()) continue;
    int last = first;
    if (end != part.data() + part.size() && *end == '-' &&
        std::from_chars(end + 1, part.data() + part.size(), last).ec != std::errc())
      continue;
    for (int cpu = std::max(0, first); cpu <= std::min(last, kMostCpus); ++cpu) cpus.push_back(cpu);
  }
  return cpus;
}

std::vector<std::vector<int>> numa_nodes(const std::filesystem::path& root) {
  std::map<int, std::vector<int>> found;
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator(root / "sys/devices/system/node", error)) {
    const std::string name = entry.path().filename().string();
    int number = 0;
    if (!name.starts_with("node") ||
        std::from_chars(name.data() + 4, name.data() + name.size(), number).ec != std::errc())
      continue;
    std::ifstream file(entry.path() / "cpulist");
    std::string list;
    std::getline(file, list);
    found[number] = parse_cpu_list(list);
  }
  std::vector<std::vector<int>> nodes;
  for (auto& [number, cpus] : found) nodes.push_back(std::move(cpus));
  return nodes;
}

std::vector<int> allowed_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cpus;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(static_cast<unsigned>(cpu), &set)) cpus.push_back(cpu);
  }
  return cpus;
}

std::vector<std::vector<int>> plan_binding(const std::vector<int>& allowed,
                                           const std::vector<std::vector<int>>& nodes,
                                           int processes) {
  std::vector<std::vector<int>> usable;
  for (const auto& node : nodes) {
    std::vector<int> cpus;
    std::copy_if(node.begin(), node.end(), std::back_inserter(cpus), [&](int cpu) {
      return std::find(allowed.begin(), allowed.end(), cpu) != allowed.end();
    });
    if (!cpus.empty()) usable.push_back(std::move(cpus));
  }
  std::vector<std::vector<int>> plan(static_cast<std::size_t>(std::max(0, processes)));
  // A single rank may need all nodes, and with one node there is nothing to choose.
  if (usable.size() < 2 || processes < 2) return plan;
  for (std::size_t rank = 0; rank < plan.size(); ++rank)
    plan[rank] = usable[rank * usable.size() / plan.size()];
  return plan;
}

}  // namespace paceline::process
