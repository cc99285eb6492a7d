// SPDX-License-Identifier: Apache-2.0
#include "cli/run/path_map.hpp"

#include <cctype>

namespace paceline::cli {
namespace {

bool is_path_character(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' || c == '.' ||
         c == '/';
}

// The mapping whose path begins at `at`. The longest wins, so that /data/train can be mapped apart
// from /data.
const PathMapping* mapping_at(const std::vector<PathMapping>& mappings, const std::string& text,
                              std::size_t at) {
  if (at > 0 && is_path_character(text[at - 1])) return nullptr;
  const PathMapping* longest = nullptr;
  for (const PathMapping& mapping : mappings) {
    if (text.compare(at, mapping.container.size(), mapping.container) != 0) continue;
    const std::size_t after = at + mapping.container.size();
    if (after < text.size() && text[after] != '/' && is_path_character(text[after])) continue;
    if (longest == nullptr || mapping.container.size() > longest->container.size())
      longest = &mapping;
  }
  return longest;
}

}  // namespace

Result<PathMapping> parse_mapping(const std::string& text, const std::string& current) {
  const std::size_t equals = text.find('=');
  PathMapping mapping;
  if (equals != std::string::npos) mapping = {text.substr(0, equals), text.substr(equals + 1)};
  while (mapping.container.size() > 1 && mapping.container.ends_with('/'))
    mapping.container.pop_back();
  while (mapping.local.size() > 1 && mapping.local.ends_with('/')) mapping.local.pop_back();
  if (!mapping.container.starts_with('/') || mapping.container == "/" || mapping.local.empty()) {
    return fail(Code::kInvalid, Origin::kConfig,
                "--map " + text +
                    ": not CONTAINER_PATH=LOCAL_PATH with an absolute CONTAINER_PATH below /; "
                    "write for example --map "
                    "/workspace=examples");
  }
  if (!mapping.local.starts_with('/')) mapping.local = current + "/" + mapping.local;
  return mapping;
}

std::string apply_mappings(const std::vector<PathMapping>& mappings, const std::string& text) {
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    if (const PathMapping* mapping = mapping_at(mappings, text, at)) {
      result += mapping->local;
      at += mapping->container.size();
      // Skip the rest of this path: another path can begin only after its end.
      while (at < text.size() && is_path_character(text[at])) result += text[at++];
    } else {
      result += text[at++];
    }
  }
  return result;
}

bool is_mapped(const std::vector<PathMapping>& mappings, const std::string& path) {
  return mapping_at(mappings, path, 0) != nullptr;
}

}  // namespace paceline::cli
