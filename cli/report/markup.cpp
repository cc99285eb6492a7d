// SPDX-License-Identifier: Apache-2.0
#include "cli/report/markup.hpp"

#include <array>
#include <cstdio>

namespace paceline::cli {

std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&': result += "&amp;"; break;
      case '<': result += "&lt;"; break;
      case '>': result += "&gt;"; break;
      case '"': result += "&quot;"; break;
      case '\'': result += "&#39;"; break;
      default: result += c;
    }
  }
  return result;
}

std::string coordinate(double value) {
  std::array<char, 32> buffer{};
  std::snprintf(buffer.data(), buffer.size(), "%.2f", value);
  return buffer.data();
}

std::string html_table(const std::vector<std::string>& head,
                       const std::vector<std::vector<std::string>>& rows,
                       std::size_t first_number) {
  const auto line = [&](const std::vector<std::string>& cells, const std::string& tag) {
    std::string text = "<tr>";
    for (std::size_t i = 0; i < cells.size(); ++i)
      text += "<" + tag + (i >= first_number ? " class=\"n\">" : ">") + escaped(cells[i]) + "</" +
              tag + ">";
    return text + "</tr>\n";
  };
  std::string text = "<table>\n";
  if (!head.empty()) text += line(head, "th");
  for (const auto& row : rows) text += line(row, "td");
  return text + "</table>\n";
}

}  // namespace paceline::cli
