// SPDX-License-Identifier: Apache-2.0
// --map CONTAINER_PATH=LOCAL_PATH: maps a path of the image to a path of this machine. Pure.
// Failure: an Error that shows the option and the remedy.
#pragma once

#include <string>
#include <vector>

#include "common/base/error.hpp"

namespace paceline::cli {

struct PathMapping {
  std::string container;  // absolute, no slash at the end
  std::string local;      // absolute
};

/// `current`: a relative LOCAL_PATH is relative to it.
Result<PathMapping> parse_mapping(const std::string& text, const std::string& current);

/// Replaces mapped paths inside the text. A match begins at the start or after a character that
/// paths do not contain, and ends at a slash or the end of the path.
std::string apply_mappings(const std::vector<PathMapping>& mappings, const std::string& text);

/// True if `path` is a mapped path or lies below one.
bool is_mapped(const std::vector<PathMapping>& mappings, const std::string& path);

}  // namespace paceline::cli
