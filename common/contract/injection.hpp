// SPDX-License-Identifier: Apache-2.0
// The folders of a runtime, which agents and init containers offer to pods. Where they lie in a pod
// is in labels.hpp.
#pragma once

#include <array>
#include <string_view>

#include "common/contract/labels.hpp"

namespace paceline::contract {

/// What the operator tells launchers, and what launchers say to each other. Raise it with every
/// change after which pods of both kinds cannot be in one gang, the protocol of the rendezvous
/// among them. 1: variables of their own. 2: PACELINE_SETTINGS, and protocol 2. 4: a token that is
/// derived from the UID of the job, and kPodDefaults. 5: settled steps in the summaries of ranks.
/// 6: what ranks used their time for, and tokens, in them. 7: ports of pods in the network of their
/// node, and protocol 5.
inline constexpr int kRuntimeContract = 7;

/// Holds modules for GPUs, where they were compiled before the runtime was laid out.
inline constexpr std::string_view kRuntimeModules = "kernels";
inline constexpr std::array<std::string_view, 4> kRuntimeParts{"bin", "lib", "python",
                                                               kRuntimeModules};

}  // namespace paceline::contract
