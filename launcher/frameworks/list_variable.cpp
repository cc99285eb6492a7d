// SPDX-License-Identifier: Apache-2.0
#include "launcher/frameworks/list_variable.hpp"

#include <algorithm>

namespace paceline::frameworks {

std::string prepend(const std::vector<std::string>& entries, const std::string& current,
                    char separator) {
  std::string result;
  for (const std::string& entry : entries) {
    if (!result.empty()) result += separator;
    result += entry;
  }
  if (current.empty()) return result;
  std::size_t begin = 0;
  while (begin <= current.size()) {
    const std::size_t end = std::min(current.find(separator, begin), current.size());
    const std::string entry = current.substr(begin, end - begin);
    if (std::find(entries.begin(), entries.end(), entry) == entries.end()) {
      if (!result.empty()) result += separator;
      result += entry;
    }
    begin = end + 1;
  }
  return result;
}

}  // namespace paceline::frameworks
