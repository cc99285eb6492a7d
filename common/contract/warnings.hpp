// SPDX-License-Identifier: Apache-2.0
// How the operator tells rank 0's launcher that nodes of the job may soon be lost. Pure.
#pragma once

#include <cstddef>
#include <string_view>

namespace paceline::contract {

/// POST {"nodes": [...], "tainted": [...]}, with the job's token. All ranks save together, so a few
/// names will do. `tainted`: those of the nodes for which the ranks are to save once more.
inline constexpr std::string_view kWarningsPath = "/v1/warnings";
inline constexpr std::size_t kMostWarnedNodes = 10;

}  // namespace paceline::contract
