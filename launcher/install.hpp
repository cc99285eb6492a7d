// SPDX-License-Identifier: Apache-2.0
// `install DIR`: copies launcher and runtime from the image to the directory that the trainer
// container shares. A container that finds the marker
// `.complete` finds everything; one that dies half-way leaves no marker and the next one starts
// over.
//
// Stateless. Failure: an Error that names the file; a full disk is one.
#pragma once

#include <filesystem>

#include "common/base/error.hpp"

namespace paceline::launcher {

/// Copies the parts of a runtime (contract::kRuntimeParts) from `source` to `target`, then renames
/// the marker into place. GPU modules that an older runtime left there go; of its other files those
/// that the new one has too are replaced.
Status install(const std::filesystem::path& source, const std::filesystem::path& target);

/// Where the running program's own tree lies: the parent of the directory it is in.
std::filesystem::path own_tree();

}  // namespace paceline::launcher
