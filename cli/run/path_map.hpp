// SPDX-License-Identifier: Apache-2.0
// --map CONTAINER_PATH=LOCAL_PATH: where on this machine a path of the image lies. Pure. Failure:
// an Error that shows the option and the remedy.
#pragma once

#include <string>
#include <vector>

#include "common/base/error.hpp"

namespace paceline::cli {

struct PathMapping {
  std::string container;  // absolute, no slash at the end
  std::string local;      // absolute
};

/// `current`: the directory that a relative LOCAL_PATH is meant from.
Result<PathMapping> parse_mapping(const std::string& text, const std::string& current);

/// Replaces mapped paths wherever they stand as paths: at the start or after a character that no
/// path holds, and whole up to a slash or the end.
std::string apply_mappings(const std::vector<PathMapping>& mappings, const std::string& text);

/// True when `path` is a mapped path or lies below one.
bool is_mapped(const std::vector<PathMapping>& mappings, const std::string& path);

}  // namespace paceline::cli
