// SPDX-License-Identifier: Apache-2.0
// The runtimes that lie on this node, each in a folder of its own, named by version and content:
// FOLDER/0.1.0-1f3a…/{bin,lib,python,kernels}. A folder that has such a name is whole: it was
// copied beside, brought to the disk and renamed. It is never written again; another build has
// another name. So a container that has one mounted keeps what it started with.
//
// Any number of processes may use one folder at a time and each may be killed at any moment. A
// process holds a shared lock on what it is copying and on the version it gives out, and removes
// only what it can lock alone; the kernel releases locks of the dead. What they leave is removed by
// the next `collect`.
//
// One thread. Failure is an Error that names the file (a full disk is one) and leaves no new name
// behind.
#pragma once

#include <filesystem>
#include <set>
#include <stop_token>
#include <string>
#include <vector>

#include "agent/inject/file_tree.hpp"
#include "common/base/error.hpp"
#include "common/base/unique_fd.hpp"

namespace paceline::agent {

class RuntimeStore {
 public:
  explicit RuntimeStore(std::filesystem::path folder, BeforeChange step = {})
      : folder_(std::move(folder)), step_(std::move(step)) {}

  /// Makes sure that the runtime in `source` (as `paceline-launcher install` leaves it) lies here,
  /// and holds it until another is staged. Answers its name.
  Result<std::string> stage(const std::filesystem::path& source, const std::stop_token& stop = {});

  /// The held version is still where it was put: nobody emptied the folder.
  bool intact() const;

  /// Removes versions that are not in `keep` and that nobody holds, and what the dead left half
  /// done. Answers how many versions.
  Result<int> collect(const std::set<std::string>& keep);

  std::vector<std::string> versions() const;
  std::filesystem::path path_of(const std::string& version) const { return folder_ / version; }
  const std::string& current() const { return current_; }

 private:
  /// Holds the version if it is there; false when it is not.
  bool hold(const std::string& version);
  Status copy(const std::filesystem::path& source, const std::vector<TreeEntry>& entries,
              const std::string& version, const std::stop_token& stop);
  void remove_leftovers();
  void step(std::string_view what) const {
    if (step_) step_(what);
  }

  const std::filesystem::path folder_;
  const BeforeChange step_;
  UniqueFd held_;
  std::string current_;
};

}  // namespace paceline::agent
