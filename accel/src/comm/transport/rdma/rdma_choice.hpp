// SPDX-License-Identifier: Apache-2.0
// Which ports of which RDMA devices carry links, and which GID reaches a port. The settings are
// NCCL's own environment variables (NCCL_IB_HCA and others), so that a job sets them once. The rest
// comes from sysfs.
//
// Ownership: values. Threads: pure functions, except for reading files. Failure: a text that names
// the variable or the port, and what to change.
#pragma once

#include <cstddef>
#include <expected>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace paceline::comm {

struct RdmaSettings {
  bool disabled = false;  // NCCL_IB_DISABLE
  // NCCL_IB_HCA: "mlx5_0:1,mlx5_2" by how names begin, "=…" by whole names, "^…" all but these
  std::string devices;
  int gid_index = -1;     // NCCL_IB_GID_INDEX; -1: gid_index_of finds it
  int timeout = 18;       // NCCL_IB_TIMEOUT: an answer within 4.096 us * 2^timeout, 1.07 s
  int retries = 7;        // NCCL_IB_RETRY_CNT
  int service_level = 0;  // NCCL_IB_SL
  int traffic_class = 0;  // NCCL_IB_TC

  bool operator==(const RdmaSettings&) const = default;
};

// `variable` looks up an environment variable; null if it is not set.
std::expected<RdmaSettings, std::string> read_rdma_settings(
    const std::function<const char*(const char* name)>& variable);

bool is_wanted(const std::string& devices, const std::string& device, int port);

// Finds the first GID of an Ethernet port that is RoCE v2 with an IPv4 address. `root` is the
// folder that contains /sys.
std::expected<int, std::string> gid_index_of(const std::filesystem::path& root,
                                             const std::string& device, int port);

}  // namespace paceline::comm
