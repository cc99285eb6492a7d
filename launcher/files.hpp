// SPDX-License-Identifier: Apache-2.0
// Small files that others read while we write them. Stateless. Failure: an Error that names the
// path (a full disk is one).
#pragma once

#include <filesystem>
#include <string_view>

#include "common/base/error.hpp"

namespace paceline::launcher {

/// Whole or not at all: written beside it, then renamed.
Status write_atomically(const std::filesystem::path& path, std::string_view content);

/// Into the file as it is: the kubelet's termination log is a mount that cannot be renamed over.
Status write_in_place(const std::filesystem::path& path, std::string_view content);

}  // namespace paceline::launcher
