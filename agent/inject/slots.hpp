// SPDX-License-Identifier: Apache-2.0
// Slots: how many pods of this node may have a runtime at a time. Each slot has a folder that is
// mounted into its container, and a record of the version that the container got. The record is
// apart from the folder, where the container cannot write. Injector owns one.
//
//   FOLDER/slots/slot-0/         mounted; keeps its inode for ever, so that a running container
//                                sees what the agent sees
//   FOLDER/assignments/slot-0    "0.1.0-1f3a…": the version assigned last
//
// Thread-safe after `prepare`: the names are fixed, and a record is replaced by a rename. Failure
// is an Error that names the file.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/error.hpp"

namespace paceline::agent {

class Slots {
 public:
  Slots(std::filesystem::path folder, int count);

  /// Creates missing folders.
  Status prepare() const;
  /// True if no folder is missing.
  bool whole() const;

  const std::vector<std::string>& ids() const { return ids_; }
  /// The only check for ids from outside: no path is made from any other id.
  bool knows(std::string_view id) const;

  std::filesystem::path folder_of(const std::string& id) const { return folder_ / "slots" / id; }

  /// The record is on the disk before this returns. Writes nothing if the record is unchanged.
  Status assign(const std::string& id, const std::string& version) const;

  /// The last assignment of every slot, including slots of an earlier, larger count.
  std::map<std::string, std::string> assignments() const;

 private:
  const std::filesystem::path folder_;
  std::vector<std::string> ids_;
};

}  // namespace paceline::agent
