// SPDX-License-Identifier: Apache-2.0
// RuntimeStore: the runtimes on this node, each in its own folder, named by version and content:
// FOLDER/0.1.0-1f3a…/{bin,lib,python,kernels}. A folder with such a name is complete: it was copied
// beside, synced to disk and renamed. It is never written again, and another build has another
// name. So a container keeps the runtime that it started with. Injector owns one.
//
// Any number of processes may use one folder at a time, and each may be killed at any moment. A
// process holds a shared lock on the version that it copies or gives out, and removes only versions
// that it can lock exclusively. The kernel releases the locks of dead processes; the next `collect`
// removes what they left.
//
// One thread. Failure is an Error that names the file (also for a full disk) and leaves no new name
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

  /// Makes sure that the runtime in `source` (as `paceline-launcher install` leaves it) is in the
  /// store, and holds it until another is staged. Returns its name.
  Result<std::string> stage(const std::filesystem::path& source, const std::stop_token& stop = {});

  /// True if the held version still exists, so the folder was not emptied.
  bool intact() const;

  /// Removes versions that are not in `keep` and that no process holds, and incomplete copies of
  /// dead processes. Returns how many versions were removed.
  Result<int> collect(const std::set<std::string>& keep);

  std::vector<std::string> versions() const;
  std::filesystem::path path_of(const std::string& version) const { return folder_ / version; }
  const std::string& current() const { return current_; }

 private:
  /// Holds the version; returns false if it does not exist.
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
