// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <fstream>
#include <string>

#include "launcher/fabric/nccl.hpp"

namespace paceline::fabric {
namespace {

/// Lines of NAME=value. NCCL drops blanks in them, and the first that sets a name wins.
void read_file(const std::filesystem::path& file, NcclSettings& settings) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    std::erase_if(line, [](char c) { return c == ' ' || c == '\t' || c == '\r'; });
    const std::size_t equals = line.find('=');
    if (line.starts_with('#') || equals == std::string::npos) continue;
    settings.try_emplace(line.substr(0, equals), line.substr(equals + 1));
  }
}

}  // namespace

NcclSettings user_settings(const std::map<std::string, std::string>& environment,
                           const std::filesystem::path& root) {
  NcclSettings settings;
  for (const auto& [name, value] : environment) {
    if (name.starts_with("NCCL_") || name.starts_with("GLOO_")) settings.emplace(name, value);
  }
  const auto path_in = [&](const std::string& name) {
    const auto found = environment.find(name);
    const std::filesystem::path path = found == environment.end() ? "" : found->second;
    return path.is_absolute() ? root / path.relative_path() : path;
  };
  const std::filesystem::path named = path_in("NCCL_CONF_FILE");
  const std::filesystem::path home = path_in("HOME");
  if (!named.empty()) {
    read_file(named, settings);
  } else if (!home.empty()) {
    read_file(home / ".nccl.conf", settings);
  }
  read_file(root / "etc/nccl.conf", settings);
  return settings;
}

}  // namespace paceline::fabric
