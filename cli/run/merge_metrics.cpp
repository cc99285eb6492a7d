// SPDX-License-Identifier: Apache-2.0
#include "cli/run/merge_metrics.hpp"

#include <map>
#include <sstream>

namespace paceline::cli {

std::string merge_metrics(const std::vector<std::string>& scrapes) {
  struct Family {
    std::string head;
    std::string series;
  };
  std::vector<std::string> order;
  std::map<std::string, Family> families;
  for (const std::string& scrape : scrapes) {
    std::stringstream lines(scrape);
    Family* current = nullptr;
    bool fresh = false;
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with("# HELP ")) {
        const std::string name = line.substr(7, line.find(' ', 7) - 7);
        const auto [entry, inserted] = families.try_emplace(name);
        if (inserted) order.push_back(name);
        current = &entry->second;
        fresh = inserted;
        if (fresh) current->head = line + "\n";
      } else if (line.starts_with("# TYPE ")) {
        if (current != nullptr && fresh) current->head += line + "\n";
      } else if (!line.empty() && current != nullptr) {
        current->series += line + "\n";
      }
    }
  }
  std::string merged;
  for (const std::string& name : order) merged += families[name].head + families[name].series;
  return merged;
}

}  // namespace paceline::cli
