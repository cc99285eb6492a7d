// SPDX-License-Identifier: Apache-2.0
// Variables that are lists (PYTHONPATH, LD_LIBRARY_PATH, LD_PRELOAD): Paceline's entries are put
// before the user's, each once. Pure.
#pragma once

#include <string>
#include <vector>

namespace paceline::frameworks {

/// `entries` in order, then the entries of `current` that are not among them. An empty entry in the
/// middle of `current` stays, since programs read it as the working directory; an empty `current`
/// adds no entry.
std::string prepend(const std::vector<std::string>& entries, const std::string& current,
                    char separator = ':');

}  // namespace paceline::frameworks
