// SPDX-License-Identifier: Apache-2.0
// Which settings NCCL and Gloo get on this machine, and why. docs/operate/nccl.md has the rules
// and their sources.
//
// A setting is made only where NCCL's own choice is known to be wrong or slow, and where the facts
// leave no doubt. What the user or the image sets is never replaced. Pure.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "launcher/fabric/machine.hpp"

namespace paceline::fabric {

using NcclSettings = std::map<std::string, std::string>;

struct Job {
  int hosts = 1;                // addresses of the replicas that train
  int cpus = 1;                 // of each rank
  bool gpu_direct_off = false;  // spec.network.gpuDirect: Disabled
  std::string left_alone = {};  // why no more is set than on one host; empty: nothing forbids it
  std::string profiler = {};    // the runtime's profiler plugin; empty: not wanted or not there
  NcclSettings user_sets = {};  // in the environment or in NCCL's files
};

inline constexpr const char* kProfilerPlugin = "NCCL_PROFILER_PLUGIN";

struct Setting {
  std::string name;
  std::string value;
  std::string reason;
  bool operator==(const Setting&) const = default;
};

struct Advice {
  std::vector<Setting> settings = {};
  /// How NCCL reaches other hosts, in one sentence; empty on one host, and without GPUs.
  std::string transport = {};
  /// The GID index that an NCCL before 2.21 needs, since it does not look for one; -1: none.
  int old_gid_index = -1;
};

Advice advise(const Machine& machine, const Job& job);

/// The settings of NCCL's files (NCCL_CONF_FILE or ~/.nccl.conf, and /etc/nccl.conf below `root`),
/// and over them those of the environment, which wins in NCCL, too.
NcclSettings user_settings(const std::map<std::string, std::string>& environment,
                           const std::filesystem::path& root);

}  // namespace paceline::fabric
