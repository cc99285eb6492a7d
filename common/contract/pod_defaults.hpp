// SPDX-License-Identifier: Apache-2.0
// What PACELINE_SETTINGS of a pod need not say: the operator leaves a setting out if it has this
// value, and the launcher of a pod puts it back. A cluster keeps the settings of each of its
// thousands of pods. A change here is a change of kRuntimeContract.
#pragma once

#include <array>
#include <string_view>

namespace paceline::contract {

struct PodDefault {
  std::string_view name;  // without the prefix PACELINE_
  std::string_view value;
};

inline constexpr std::array kPodDefaults{
    PodDefault{"ATTEMPT", "0"},
    PodDefault{"BACKOFF", "0s"},
    PodDefault{"FRAMEWORK_LAUNCHER", "Paceline"},
    PodDefault{"GRACE_PERIOD", "30s"},
    PodDefault{"HTTP_LISTEN", "[::]:29401"},
    PodDefault{"INCARNATION", "0"},
    PodDefault{"RENDEZVOUS_LISTEN", "[::]:29400"},
    PodDefault{"RESTARTS", "0"},
    PodDefault{"RUNTIME_DIR", "/opt/paceline"},
    PodDefault{"STARTUP_TIMEOUT", "10m"},
    PodDefault{"STATE_DIR", "/run/paceline"},
    PodDefault{"SUCCESS_POLICY", "AllRanks"},
    PodDefault{"TERMINATION_LOG", "/dev/termination-log"},
};

}  // namespace paceline::contract
