// SPDX-License-Identifier: Apache-2.0
#include "testing/node_tree.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <vector>

namespace paceline::agent {
namespace fs = std::filesystem;

NodeTree::NodeTree(std::string_view fixture) {
  // A machine has a thousand small files. Put them in memory if possible, since a disk takes
  // seconds.
  const fs::path place = fs::exists("/dev/shm") ? fs::path("/dev/shm") : fs::temp_directory_path();
  std::string pattern = (place / "paceline-node-XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) ADD_FAILURE() << "no temporary folder " << pattern;
  folder_ = pattern;

  std::ifstream lines(fs::path(PACELINE_SOURCE_DIR) / "tests/fixtures/nodes" /
                      (std::string(fixture) + ".tree"));
  if (!lines) ADD_FAILURE() << "no fixture " << fixture;
  std::vector<std::pair<fs::path, fs::path>> links;
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line.starts_with('#')) continue;
    if (const auto arrow = line.find(" -> "); arrow != std::string::npos) {
      links.emplace_back(line.substr(0, arrow), line.substr(arrow + 4));
    } else if (line.ends_with(" <<")) {
      std::string text;
      for (std::string more; std::getline(lines, more) && more != ".";) text += more + "\n";
      write(line.substr(0, line.size() - 3), text);
    } else if (const auto hex = line.find(" =hex/"); hex != std::string::npos) {
      std::string bytes;
      for (std::size_t i = line.find(' ', hex + 1) + 1; i + 1 < line.size(); i += 2)
        bytes += static_cast<char>(std::stoi(line.substr(i, 2), nullptr, 16));
      bytes.resize(std::stoul(line.substr(hex + 6)));  // zeros at the end are not written
      write(line.substr(0, hex), bytes);
    } else if (const auto equals = line.find(" ="); equals != std::string::npos) {
      write(line.substr(0, equals), line.substr(std::min(equals + 3, line.size())) + "\n");
    } else {
      ADD_FAILURE() << "fixture " << fixture << ": " << line;
    }
  }
  for (const auto& [name, target] : links) {
    fs::create_directories((folder_ / name).parent_path());
    // A link's target exists on the machine, even if no file in it was recorded.
    fs::create_directories((folder_ / name).parent_path() / target);
    fs::create_symlink(target, folder_ / name);
  }
}

NodeTree::~NodeTree() {
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

std::string NodeTree::nvml_json(std::string_view fixture) {
  std::ifstream file(fs::path(PACELINE_SOURCE_DIR) / "tests/fixtures/nodes" /
                     (std::string(fixture) + ".nvml.json"));
  if (!file) ADD_FAILURE() << "no recorded NVML of " << fixture;
  return {std::istreambuf_iterator<char>(file), {}};
}

void NodeTree::write(const std::string& file, std::string_view text) const {
  fs::create_directories((folder_ / file).parent_path());
  std::ofstream(folder_ / file) << text;
}

void NodeTree::remove(const std::string& file) const { fs::remove_all(folder_ / file); }

}  // namespace paceline::agent
