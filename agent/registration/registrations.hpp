// SPDX-License-Identifier: Apache-2.0
// The report of paceline-probe: which memory of this machine can be registered with which NIC, and
// in which way. Settings suggest it; only an attempt proves it. The checks judge the report. Other
// headers of this folder: nccl_settings.hpp (what NCCL is told in a pod), probe_process.hpp (runs
// the program), attempt_json.hpp.
//
// Plain values; thread-safe as any value is. A failure is an attempt's outcome, or `problem` if
// nothing could be tried.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/registration/attempt.hpp"
#include "agent/registration/nccl_settings.hpp"
#include "common/base/clock.hpp"
#include "common/base/error.hpp"

namespace paceline::agent {

struct Registrations {
  std::string problem;  // why nothing was tried and what helps
  /// Tried in a job's pod: the limits and devices are then the job's.
  bool in_pod = false;
  std::optional<std::uint64_t> memlock_bytes;  // nullopt: no limit
  std::vector<Attempt> attempts;
  std::vector<NcclSetting> nccl = {};     // in a job's pod: the settings that its NCCL reads
  std::vector<std::string> netdevs = {};  // in a job's pod: the network devices that it sees
  /// In a job's pod: the RDMA devices that serve GPUs by this machine's topology. A pod may have
  /// others, for storage. Empty: not known.
  std::vector<std::string> job_nics = {};
  // in a job's pod: the CPUs that it may use, "0-15,32-47"
  std::string cpus = {};
  // version of the library found in the pod: 22105 is 2.21.5
  std::optional<int> nccl_version = {};
  std::optional<WallTime> taken = {};  // to the second; nullopt if the report has no time
  bool operator==(const Registrations&) const = default;
};

inline constexpr std::size_t kMaxAttempts = 16384;
inline constexpr std::size_t kMaxNetdevs = 256;
inline constexpr std::size_t kMaxJobNics = 128;

/// True if an attempt was refused or hung. One of the two ways to register a GPU's memory is
/// enough.
bool any_failed(const Registrations& registrations);

/// The report of paceline-probe as JSON. Reading fails for anything else, with the name of the
/// field.
std::string registrations_json(const Registrations& registrations);
Result<Registrations> read_registrations(std::string_view text);

}  // namespace paceline::agent
