// SPDX-License-Identifier: Apache-2.0
// HTML and SVG as text. Every text that comes from outside passes `escaped`. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace paceline::cli {

/// For text and for values of attributes in double quotes.
std::string escaped(std::string_view text);

/// A number of an attribute, with at most two digits behind the point.
std::string coordinate(double value);

/// A table of escaped cells. Columns from `first_number` on are aligned to the right.
std::string html_table(const std::vector<std::string>& head,
                       const std::vector<std::vector<std::string>>& rows,
                       std::size_t first_number = 1000);

}  // namespace paceline::cli
