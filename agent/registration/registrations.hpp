// SPDX-License-Identifier: Apache-2.0
// What paceline-probe found by using the devices: which memory of this machine can be registered
// with which NIC, and in which way. Settings promise that; only an attempt proves it.
//
// Plain values; thread-safe as any value is. Failure is an attempt's outcome, or `problem` where
// nothing could be tried.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/registration/nccl_settings.hpp"
#include "common/base/clock.hpp"
#include "common/base/error.hpp"

namespace paceline::agent {

enum class Step {
  kDevices,       // list the RDMA devices
  kOpen,          // open a NIC
  kHostMemory,    // register memory of this process with it
  kPort,          // ask one of its ports what it runs at
  kDmaBufDriver,  // does its driver know dma-buf at all
  kGpus,          // find the GPUs
  kGpuMemory,     // allocate memory of a GPU
  kDmaBuf,        // register that with a NIC as dma-buf
  kPeerMemory,    // register that with a NIC by its pointer, which takes a peer memory module
  kLinkLoad,      // copy to a GPU for a moment, and read its PCIe link: an idle GPU lowers it
  // export memory of a GPU to its NVLink domain and import it again, as NCCL does before it uses
  // one
  kFabricMemory,
};

/// A refusal of these tells something and is no failure by itself.
constexpr bool only_tells(Step step) {
  return step == Step::kDmaBufDriver || step == Step::kPort || step == Step::kFabricMemory;
}

enum class Outcome { kDone, kRefused, kHung, kNotTried };

struct Attempt {
  Step step = Step::kDevices;
  std::string nic;  // "mlx5_0"; empty where none is concerned
  std::string gpu;  // "0000:1b:00.0"; likewise
  Outcome outcome = Outcome::kNotTried;
  int error = 0;         // errno of a refusal, 0 where it has none
  std::string why;       // empty when done
  std::string saw = {};  // of kLinkLoad: "32.0 GT/s PCIe x16"; of kPort: "port 1 MTU 1024 of 4096"
  /// When, where that was before the report was made: of a GPU that works for somebody now.
  std::optional<WallTime> taken = {};
  bool operator==(const Attempt&) const = default;
};

struct Registrations {
  std::string problem;  // why nothing was tried, and what helps
  /// Tried in a pod of a job: then its limits and devices are the job's.
  bool in_pod = false;
  std::optional<std::uint64_t> memlock_bytes;  // absent: no limit
  std::vector<Attempt> attempts;
  std::vector<NcclSetting> nccl = {};     // in a pod of a job: what its NCCL is told
  std::vector<std::string> netdevs = {};  // and the network devices that it sees
  /// In a pod of a job: the RDMA devices that serve GPUs, by this machine's topology. A pod may be
  /// given others, for storage; empty: not known.
  std::vector<std::string> job_nics = {};
  // in a pod of a job: those that it may run on, "0-15,32-47"
  std::string cpus = {};
  // of the library that was found in the pod: 22105 is 2.21.5
  std::optional<int> nccl_version = {};
  std::optional<WallTime> taken = {};  // to the second; absent in a report that does not say
  bool operator==(const Registrations&) const = default;
};

inline constexpr std::size_t kMaxAttempts = 16384;
inline constexpr std::size_t kMaxNetdevs = 256;
inline constexpr std::size_t kMaxJobNics = 128;

std::string_view to_string(Step step);
std::string_view to_string(Outcome outcome);
std::optional<Step> step_of(std::string_view text);
std::optional<Outcome> outcome_of(std::string_view text);

/// "registering memory of 0000:1b:00.0 with mlx5_0 as dma-buf".
std::string describe(const Attempt& attempt);

/// Some attempt was refused or hung. Of the two ways for a GPU's memory one is enough.
bool any_failed(const Registrations& registrations);

/// The report of paceline-probe. Refuses what is none, by the name of the field.
std::string registrations_json(const Registrations& registrations);
Result<Registrations> read_registrations(std::string_view text);

}  // namespace paceline::agent
