// SPDX-License-Identifier: Apache-2.0
// The settings that NCCL would read in this process: from its environment, the user's file and the
// image's file. Only those are read that decide whether NCCL uses RDMA and GPUDirect.
// paceline-probe reports them in a pod; the checks judge them.
//
// Plain values; thread-safe. Nothing fails: a missing file has no settings.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace paceline::agent {

struct NcclSetting {
  std::string name;
  std::string value;
  std::string source;  // "the environment", or the file's path
  bool operator==(const NcclSetting&) const = default;
};

inline constexpr std::size_t kMaxNcclSettings = 16;

/// As in NCCL, the first source that sets a name wins: the environment, NCCL_CONF_FILE or else
/// ~/.nccl.conf, /etc/nccl.conf. `variable` returns a variable's value, empty if unset. Files are
/// read below `root`.
std::vector<NcclSetting> read_nccl_settings(
    const std::function<std::string(const std::string&)>& variable,
    const std::filesystem::path& root = "/");

struct NcclTrouble {
  std::string evidence;
  bool forbids = false;  // GPUDirect RDMA cannot be used with this setting
  bool operator==(const NcclTrouble&) const = default;
};

/// The faults of these settings on a machine with these RDMA devices and network devices. `version`
/// is NCCL's if known: 22105 for 2.21.5.
std::vector<NcclTrouble> nccl_troubles(const std::vector<NcclSetting>& settings,
                                       const std::vector<std::string>& nics,
                                       const std::vector<std::string>& netdevs,
                                       std::optional<int> version = {});

/// The RDMA devices that NCCL_IB_HCA selects; nullopt if it is unset.
std::optional<std::vector<std::string>> chosen_nics(const std::vector<NcclSetting>& settings,
                                                    const std::vector<std::string>& nics);

/// Where NCCL's library may be: this name, and its paths in Python packages, which the dynamic
/// loader does not search.
std::vector<std::string> nccl_libraries(const std::string& name,
                                        const std::filesystem::path& root = "/");

}  // namespace paceline::agent
