// SPDX-License-Identifier: Apache-2.0
// The slots of this node: how many pods may have a runtime from it at a time, and for each slot a
// folder of its own that is mounted into the container which was given the slot, and a record of
// the version that the container got. The record lies apart from the folder, out of the container's
// reach.
//
//   FOLDER/slots/slot-0/         mounted; keeps its inode for ever, so that what is mounted stays
//   what the agent sees FOLDER/assignments/slot-0    "0.1.0-1f3a…": what was given out last
//
// Thread-safe after `prepare`: the names are fixed, a record is replaced by a rename. Failure is an
// Error that names the file.
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

  /// Makes what is missing.
  Status prepare() const;
  /// Nothing is missing.
  bool whole() const;

  const std::vector<std::string>& ids() const { return ids_; }
  /// The only check that an id from outside needs: no path is ever made of another.
  bool knows(std::string_view id) const;

  std::filesystem::path folder_of(const std::string& id) const { return folder_ / "slots" / id; }

  /// On the disk before it returns. Writes nothing where the record says so already.
  Status assign(const std::string& id, const std::string& version) const;

  /// What every slot got last, those of an earlier, larger count included.
  std::map<std::string, std::string> assignments() const;

 private:
  const std::filesystem::path folder_;
  std::vector<std::string> ids_;
};

}  // namespace paceline::agent
