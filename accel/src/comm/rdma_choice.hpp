// SPDX-License-Identifier: Apache-2.0
// Which ports of which RDMA devices carry links between hosts, and by which of its addresses a port
// is reached: read from NCCL's own variables, so that a job says it once, and from sysfs below a
// given root.
//
// Ownership: values. Threads: pure functions, but for reading files. Failure: a text that names the
// variable or the port, and the remedy.
#pragma once

#include <cstddef>
#include <expected>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace paceline::comm {

// How far a PCI device is from another, by NCCL's names: below one switch, below several under one
// root port, of one NUMA node, or of two. It is not known where a machine does not say where a
// device is, or shows both on root buses, as hypervisors do whatever lies between them.
enum class PciDistance { kPix, kPxb, kPhb, kSys, kUnknown };

struct RdmaSettings {
  bool disabled = false;  // NCCL_IB_DISABLE
  // NCCL_IB_HCA: "mlx5_0:1,mlx5_2" by how names begin, "=…" by whole names, "^…" all but these
  std::string devices;
  int gid_index = -1;     // NCCL_IB_GID_INDEX; -1: found by gid_index_of
  int timeout = 18;       // NCCL_IB_TIMEOUT: an answer within 4.096 us * 2^timeout, 1.07 s
  int retries = 7;        // NCCL_IB_RETRY_CNT
  int service_level = 0;  // NCCL_IB_SL
  int traffic_class = 0;  // NCCL_IB_TC
  // NCCL_NET_GDR_LEVEL: why never (LOC, 0, or no level), or the greatest distance between GPU and
  // RDMA device (PIX or 1, PXB or 2, PHB or 3, SYS or 4 or 5)
  std::string no_gpudirect{};
  PciDistance most_distant = PciDistance::kPxb;

  bool operator==(const RdmaSettings&) const = default;
};

// `variable`: of an environment, null where it is not set.
std::expected<RdmaSettings, std::string> read_rdma_settings(
    const std::function<const char*(const char* name)>& variable);

bool is_wanted(const std::string& devices, const std::string& device, int port);

// Which rails a GPU's memory goes by.
struct RailsWanted {
  std::size_t most;          // rails
  PciDistance most_distant;  // none is farther; where the distance is not known all may be used
  std::size_t first;         // among equals: GPUs that have the same rails begin at different ones
};

// Of these rails those that are nearest to a GPU ("0000:19:00.0") in the tree of PCI bridges;
// refused where they are too far. `names`: "mlx5_0", or "mlx5_0:2" of another port. `root`: that
// /sys lies in.
std::expected<std::vector<std::size_t>, std::string> nearest_rails(
    const std::filesystem::path& root, const std::string& pci,
    const std::vector<std::string>& names, const RailsWanted& wanted);

// The first GID of an Ethernet port that is RoCE v2 with an IPv4 address. `root`: that /sys lies
// in.
std::expected<int, std::string> gid_index_of(const std::filesystem::path& root,
                                             const std::string& device, int port);

// The kernel's driver of an RDMA device, "mlx5_core"; empty where the system does not say. `root`:
// that /sys lies in.
std::string driver_of(const std::filesystem::path& root, const std::string& device);

}  // namespace paceline::comm
