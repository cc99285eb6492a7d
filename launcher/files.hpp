// SPDX-License-Identifier: Apache-2.0
// Writes small files that other processes read at the same time: the rank table, the report and the
// termination message. Stateless. Failure is an Error that names the path, also when the disk is
// full.
#pragma once

#include <filesystem>
#include <string_view>

#include "common/base/error.hpp"

namespace paceline::launcher {

/// Writes a new file beside `path` and renames it, so that a reader sees all of it or nothing.
Status write_atomically(const std::filesystem::path& path, std::string_view content);

/// Writes into the existing file: the kubelet's termination log is a mount and cannot be renamed
/// over.
Status write_in_place(const std::filesystem::path& path, std::string_view content);

}  // namespace paceline::launcher
