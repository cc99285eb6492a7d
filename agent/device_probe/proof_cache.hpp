// SPDX-License-Identifier: Apache-2.0
// The proof cache of `paceline-probe --keep`: attempts of earlier runs on this machine. A busy GPU
// is not tried, so the proof from when it was idle has to last. It is valid until the machine
// boots, while kernel, driver, peer memory modules and devices are unchanged.
//
// Plain functions over one file. A file that belongs to another user, is too large, is malformed or
// was made in another state of the machine is ignored, and the reason is returned. If writing
// fails, the Error names the file.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "agent/probe/sysfs/root.hpp"
#include "agent/registration/registrations.hpp"
#include "common/base/clock.hpp"
#include "common/base/error.hpp"

namespace paceline::agent {

/// The state of the machine that a proof depends on, one line for each part; empty if the kernel
/// does not show the boot's id.
std::string machine_state(const Root& root);

struct CachedProofs {
  std::vector<Attempt> attempts;  // each with its time
  std::string refused;            // why an existing file is ignored
};

CachedProofs read_proof_cache(const std::filesystem::path& file, const std::string& machine,
                              WallTime now);

/// Replaces attempts that were not made now with cached ones.
void apply_cached_proofs(Registrations& report, const std::vector<Attempt>& kept);

/// Writes the attempts of every GPU whose memory each open NIC can reach in some way. Attempts from
/// earlier keep their time. Replaces the file atomically or leaves it.
Status write_proof_cache(const std::filesystem::path& file, const std::string& machine,
                         const Registrations& report);

}  // namespace paceline::agent
