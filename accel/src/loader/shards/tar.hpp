// SPDX-License-Identifier: Apache-2.0
// Lists the regular files of a tar archive: POSIX ustar and pax, and GNU's long names. It reads
// headers only, one after the other.
//
// Ownership: the caller's. Threads: none of its own. Failure: text that names the archive, the
// offset and the reason. No header is trusted: files that reach beyond the archive are refused, and
// so are sparse files and compressed archives.
#pragma once

#include <cstdint>
#include <expected>
#include <functional>
#include <string>
#include <string_view>

#include "loader/source/source.hpp"

namespace paceline::loader {

// Calls `file(name, offset, size)` for each regular file in the order of the archive. If it returns
// text, that text is the failure.
using EachFile =
    std::function<std::string(std::string_view name, std::uint64_t offset, std::uint64_t size)>;
std::expected<void, std::string> read_tar(const Source& source, std::size_t object,
                                          const EachFile& file);

}  // namespace paceline::loader
