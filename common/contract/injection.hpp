// SPDX-License-Identifier: Apache-2.0
// What agents offer to pods of their nodes and pods ask for, in one place.
#pragma once

#include <array>
#include <string_view>

namespace paceline::contract {

/// The folders of a runtime. kernels/ is there where modules for GPUs were compiled before it was
/// laid out.
inline constexpr std::string_view kRuntimeModules = "kernels";
inline constexpr std::array<std::string_view, 4> kRuntimeParts{"bin", "lib", "python",
                                                               kRuntimeModules};

/// Slots of a node's agent: a container that has one finds the runtime at kRuntimeMount and a
/// folder of its own at kSlotMount.
inline constexpr std::string_view kRuntimeResource = "paceline.dev/runtime";
inline constexpr std::string_view kSlotMount = "/run/paceline-slot";

}  // namespace paceline::contract
