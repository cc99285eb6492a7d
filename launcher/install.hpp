// SPDX-License-Identifier: Apache-2.0
// `paceline-launcher install DIR`: the init container copies launcher and runtime from the image to
// a directory that it shares with the trainer container. The marker `.complete` is written last. If
// the copy is interrupted there is no marker, and the next container starts again.
//
// Stateless. Failure is an Error that names the file, also when the disk is full.
#pragma once

#include <filesystem>

#include "common/base/error.hpp"

namespace paceline::launcher {

/// Copies the parts of a runtime (contract::kRuntimeParts) from `source` to `target`, then renames
/// the marker into place. GPU modules of an older runtime are removed. Other old files are replaced
/// where the new runtime has the same name, and kept otherwise.
Status install(const std::filesystem::path& source, const std::filesystem::path& target);

/// The tree that the running program belongs to: the parent of its directory.
std::filesystem::path own_tree();

}  // namespace paceline::launcher
