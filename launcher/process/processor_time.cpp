// SPDX-License-Identifier: Apache-2.0
#include "launcher/process/processor_time.hpp"

#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>

#include "launcher/process/cgroup.hpp"

namespace paceline::process {
namespace {

namespace fs = std::filesystem;

/// "RAN WAITED SLICES": nanoseconds of the first thread.
double waited_seconds(const fs::path& root, std::uint32_t pid) {
  std::ifstream file(root / "proc" / std::to_string(pid) / "schedstat");
  double ran = 0;
  double waited = 0;
  return file >> ran >> waited ? waited / 1e9 : 0;
}

/// "cpu USER NICE SYSTEM IDLE IOWAIT IRQ SOFTIRQ STEAL …", then a line for each processor.
double stolen_seconds(const fs::path& root) {
  std::ifstream file(root / "proc/stat");
  std::string line;
  if (!std::getline(file, line)) return 0;
  std::istringstream fields(line);
  std::string name;
  double ticks = 0;
  fields >> name;
  for (int field = 0; field < 8; ++field) {
    if (!(fields >> ticks)) return 0;
  }
  int processors = 0;
  while (std::getline(file, line) && line.starts_with("cpu")) ++processors;
  const auto hertz = static_cast<double>(::sysconf(_SC_CLK_TCK));
  return processors > 0 && hertz > 0 ? ticks / hertz / processors : 0;
}

}  // namespace

void add_lost_processor(const fs::path& root, const std::map<int, std::uint32_t>& processes,
                        std::vector<telemetry::RankSummary>& ranks) {
  telemetry::LostProcessor all;
  all.throttled = throttled_seconds(root).value_or(0);
  all.stolen = stolen_seconds(root);
  for (telemetry::RankSummary& rank : ranks) {
    const auto process = processes.find(rank.rank);
    if (process == processes.end()) continue;
    rank.lost_processor = all;
    rank.lost_processor->waited = waited_seconds(root, process->second);
  }
}

}  // namespace paceline::process
