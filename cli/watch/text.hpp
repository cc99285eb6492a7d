// SPDX-License-Identifier: Apache-2.0
// Text for terminals: names and messages of any origin made harmless, numbers as people read them,
// and lines cut to columns. Pure. Text that passed `clean` can be printed as it is.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace paceline::cli {

/// One line of valid UTF-8. Control characters, characters that turn the direction of writing or
/// have no width, and broken bytes become "?"; a tab or a line break becomes a blank.
std::string clean(std::string_view text);

/// The columns that a clean text takes in a terminal.
std::size_t columns_of(std::string_view text);

/// The first `width` columns of a clean text; a longer one ends in "…".
std::string cut(std::string_view text, std::size_t width);

/// Exactly `width` columns, cut or padded.
std::string left(std::string_view text, std::size_t width);
std::string right(std::string_view text, std::size_t width);

/// "12.3ms"; "-" for nothing measured.
std::string seconds_text(double seconds);
/// "12.3%"
std::string percent(double share);
/// "682", "12.5k", "3.20M": at most five columns.
std::string short_number(double value);
/// One digit behind the point below 100, else none.
std::string rate(double value);

}  // namespace paceline::cli
