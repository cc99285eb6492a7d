// SPDX-License-Identifier: Apache-2.0
// Variables that are lists (PYTHONPATH, LD_LIBRARY_PATH, LD_PRELOAD): the user's entries stay, ours
// go in front, once. Pure.
#pragma once

#include <string>
#include <vector>

namespace paceline::frameworks {

/// `entries` in order, then what of `current` is not among them. An empty entry of `current` in the
/// middle stays (it means the working directory to the programs that read it); an empty `current`
/// adds none.
std::string prepend(const std::vector<std::string>& entries, const std::string& current,
                    char separator = ':');

}  // namespace paceline::frameworks
