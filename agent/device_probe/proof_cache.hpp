// SPDX-License-Identifier: Apache-2.0
// Proofs of an earlier look at this machine. A GPU that works for somebody is not tried, so what an
// idle one proved has to last: until the machine boots, and while kernel, driver, peer memory
// modules and devices are the same.
//
// Plain functions over one file. A file that is not this user's own, is too large, is no such list
// or was made of another state of the machine counts for nothing, and it is said why; what cannot
// be written is an Error that names the file.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "agent/probe/sysfs/root.hpp"
#include "agent/registration/registrations.hpp"
#include "common/base/clock.hpp"
#include "common/base/error.hpp"

namespace paceline::agent {

/// The state of the machine that a proof belongs to, a line for each part; empty where the kernel
/// does not tell which boot this is.
std::string machine_state(const Root& root);

struct CachedProofs {
  std::vector<Attempt> attempts;  // each with its time
  std::string refused;            // why a file that is there counts for nothing
};

CachedProofs read_proof_cache(const std::filesystem::path& file, const std::string& machine,
                              WallTime now);

/// Puts what was proved before in the place of what was left alone now.
void apply_cached_proofs(Registrations& report, const std::vector<Attempt>& kept);

/// Of every GPU that each open NIC can reach in some way. What the report has from earlier keeps
/// its time. Replaces the file at once or leaves it.
Status write_proof_cache(const std::filesystem::path& file, const std::string& machine,
                         const Registrations& report);

}  // namespace paceline::agent
