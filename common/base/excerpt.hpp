// SPDX-License-Identifier: Apache-2.0
// Text of other programs, for a status, an event or an error. JSON holds UTF-8 alone: a status that
// quotes half a character, or bytes of another encoding, cannot be written. Pure; nothing fails.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace paceline {

/// At most so many bytes of the text: whole characters, and `?` for each byte that is not UTF-8.
std::string excerpt(std::string_view whole, std::size_t most = 512);

}  // namespace paceline
