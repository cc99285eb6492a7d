// SPDX-License-Identifier: Apache-2.0
// For the tests of injection: a temporary folder, and a runtime as `paceline-launcher install`
// leaves it. Not thread-safe; the test fails if the fixture cannot be made.
#pragma once

#include <filesystem>
#include <map>
#include <string>

namespace paceline::agent {

/// A new folder, removed with its content at the end.
class Scratch {
 public:
  Scratch();
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  std::filesystem::path operator/(const std::string& name) const { return folder_ / name; }

 private:
  std::filesystem::path folder_;
};

/// bin/, lib/, python/, kernels/ and the marker; `content` distinguishes builds of the same
/// version.
void make_runtime(const std::filesystem::path& folder, const std::string& content);

/// Paths below a folder with their content ("<folder>", "-> link"), and modes of files.
std::map<std::string, std::string> picture(const std::filesystem::path& folder);

}  // namespace paceline::agent
