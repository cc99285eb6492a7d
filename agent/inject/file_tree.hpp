// SPDX-License-Identifier: Apache-2.0
// Copies a tree of files to another file system: lists its entries, makes a digest that
// distinguishes two trees, and copies. When the copy returns it is on the disk, not only in the
// kernel's memory. RuntimeStore uses it.
//
// Values and free functions; threads share nothing. Failure is an Error that names the file: a full
// disk, an entry that is neither file, folder nor link, more than 65536 entries.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/error.hpp"

namespace paceline::agent {

struct TreeEntry {
  enum class Kind { kFolder, kFile, kLink };
  std::filesystem::path path;  // relative to the tree's root
  Kind kind = Kind::kFile;
  bool executable = false;
  std::string leads_to;  // target of a link
};

/// Called before each change of the file system. A test ends the process there, to simulate a kill.
using BeforeChange = std::function<void(std::string_view)>;

/// All entries at or below `parts` of `root`, folders before their content. A missing part is left
/// out.
Result<std::vector<TreeEntry>> read_tree(const std::filesystem::path& root,
                                         const std::vector<std::string>& parts);

/// Differs if a name, a kind, an execute bit, a link or a byte of a file differs. It distinguishes
/// builds and is no protection against forgery.
Result<std::uint64_t> digest_tree(const std::filesystem::path& root,
                                  const std::vector<TreeEntry>& entries);

/// Copies the entries below an existing folder and waits until they are on the disk. All users may
/// read them; only the owner may write.
Status copy_tree(const std::filesystem::path& from, const std::vector<TreeEntry>& entries,
                 const std::filesystem::path& to, const std::stop_token& stop = {},
                 const BeforeChange& step = {});

/// Waits until the names in a folder are on the disk.
Status sync_folder(const std::filesystem::path& folder);

}  // namespace paceline::agent
