// SPDX-License-Identifier: Apache-2.0
// The regular files of a tar archive: POSIX ustar and pax, GNU long names. Reads headers only, one
// after the other.
//
// Ownership: the caller's. Threads: none of its own. Failure: text that names the archive, the
// place and the reason; an archive is believed in nothing: what points outside it, sparse and
// compressed archives are refused.
#pragma once

#include <cstdint>
#include <expected>
#include <functional>
#include <string>
#include <string_view>

#include "loader/source/source.hpp"

namespace paceline::loader {

// Calls `file(name, offset, size)` for each regular file in the archive's order; what it returns,
// if anything, is the failure.
using EachFile =
    std::function<std::string(std::string_view name, std::uint64_t offset, std::uint64_t size)>;
std::expected<void, std::string> read_tar(const Source& source, std::size_t object,
                                          const EachFile& file);

}  // namespace paceline::loader
