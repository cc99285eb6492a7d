// SPDX-License-Identifier: Apache-2.0
// A recorded machine (tests/fixtures/nodes/NAME.tree) in a temporary folder, which the destructor
// removes. Not thread-safe; a broken fixture fails the test that uses it.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "agent/probe/sysfs/root.hpp"

namespace paceline::agent {

class NodeTree {
 public:
  explicit NodeTree(std::string_view fixture);
  NodeTree(const NodeTree&) = delete;
  NodeTree& operator=(const NodeTree&) = delete;
  ~NodeTree();

  /// The recorded answer of NVML beside the fixture.
  static std::string nvml_json(std::string_view fixture);

  const std::filesystem::path& folder() const { return folder_; }
  Root root() const { return Root::at(folder_); }
  void write(const std::string& file, std::string_view text) const;
  void remove(const std::string& file) const;

 private:
  std::filesystem::path folder_;
};

}  // namespace paceline::agent
