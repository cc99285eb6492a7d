// SPDX-License-Identifier: Apache-2.0
// The cost of a process. Processor time comes from a control group of its own if one can be made,
// otherwise from the kernel's counters of the process. Memory comes from /proc. Values; nothing
// fails: a figure that cannot be read is 0.
#pragma once

#include <signal.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

namespace paceline::bench {

class Account {
 public:
  explicit Account(pid_t process) : process_(process) {
    namespace fs = std::filesystem;
    for (const char* root : {"/sys/fs/cgroup/cpuacct", "/sys/fs/cgroup"}) {
      const fs::path group = fs::path(root) / ("paceline-bench-" + std::to_string(process));
      const bool old = fs::exists(fs::path(root) / "cpuacct.usage");
      std::error_code error;
      if (!old && !fs::exists(fs::path(root) / "cgroup.controllers")) continue;
      if (!fs::create_directory(group, error)) continue;
      std::ofstream procs(group / "cgroup.procs");
      procs << process << std::flush;
      if (procs) {
        group_ = group;
        usage_ = group / (old ? "cpuacct.usage" : "cpu.stat");
        nanoseconds_ = old;
        return;
      }
      fs::remove(group, error);
    }
  }
  Account(const Account&) = delete;
  Account& operator=(const Account&) = delete;
  ~Account() {
    std::error_code ignored;
    if (!group_.empty()) std::filesystem::remove(group_, ignored);
  }

  const char* by() const { return group_.empty() ? "process" : "cgroup"; }

  double cpu_seconds() const {
    if (!group_.empty()) {
      std::ifstream file(usage_);
      double value = 0;
      std::string name;
      if (nanoseconds_) return file >> value ? value * 1e-9 : 0;
      return file >> name >> value && name == "usage_usec" ? value * 1e-6 : 0;
    }
    std::ifstream file("/proc/" + std::to_string(process_) + "/stat");
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    std::istringstream fields(text.substr(text.rfind(')') + 1));
    std::string skipped;
    for (int i = 0; i < 11; ++i) fields >> skipped;
    double user = 0;
    double system = 0;
    fields >> user >> system;
    return (user + system) / static_cast<double>(::sysconf(_SC_CLK_TCK));
  }

  /// `field` of /proc/PID/status: VmRSS, VmHWM.
  double memory_mib(const std::string& field) const {
    std::ifstream file("/proc/" + std::to_string(process_) + "/status");
    for (std::string line; std::getline(file, line);) {
      if (line.starts_with(field + ":")) return std::stod(line.substr(field.size() + 1)) / 1024;
    }
    return 0;
  }

 private:
  pid_t process_;
  std::filesystem::path group_;
  std::filesystem::path usage_;
  bool nanoseconds_ = false;
};

}  // namespace paceline::bench
