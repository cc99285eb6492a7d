// SPDX-License-Identifier: Apache-2.0
// What NCCL would be told in this process: by its environment, by the user's file and by the
// image's. Only the names that decide whether it uses RDMA and GPUDirect are read.
//
// Plain values; thread-safe. Nothing fails: a file that is not there tells nothing.
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
  std::string source;  // "the environment", or the file
  bool operator==(const NcclSetting&) const = default;
};

inline constexpr std::size_t kMaxNcclSettings = 16;

/// The first to set a name wins, as NCCL has it: the environment, NCCL_CONF_FILE or else
/// ~/.nccl.conf, /etc/nccl.conf. `variable` answers the environment, empty where it has none of
/// that name; files are read below `root`.
std::vector<NcclSetting> read_nccl_settings(
    const std::function<std::string(const std::string&)>& variable,
    const std::filesystem::path& root = "/");

struct NcclTrouble {
  std::string evidence;
  bool forbids = false;  // GPUDirect RDMA cannot be used so
  bool operator==(const NcclTrouble&) const = default;
};

/// What is wrong with them where these RDMA devices and network devices are. `version` is NCCL's,
/// 22105 for 2.21.5, where it is known.
std::vector<NcclTrouble> nccl_troubles(const std::vector<NcclSetting>& settings,
                                       const std::vector<std::string>& nics,
                                       const std::vector<std::string>& netdevs,
                                       std::optional<int> version = {});

/// Those of the RDMA devices that NCCL_IB_HCA leaves, all where it is not set. Absent: it is not
/// set.
std::optional<std::vector<std::string>> chosen_nics(const std::vector<NcclSetting>& settings,
                                                    const std::vector<std::string>& nics);

/// Where NCCL's library may be: by this name, and in the packages of Python, which no loader
/// searches.
std::vector<std::string> nccl_libraries(const std::string& name,
                                        const std::filesystem::path& root = "/");

}  // namespace paceline::agent
