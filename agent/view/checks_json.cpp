// SPDX-License-Identifier: Apache-2.0
#include "agent/view/checks_json.hpp"

#include <utility>

namespace paceline::agent {

using nlohmann::json;

json checks_json(const std::vector<Finding>& findings) {
  json view{{"version", 1}, {"failed", 0}, {"warned", 0}, {"checks", json::array()}};
  for (const auto& check : checks()) {
    const Verdict verdict = worst(findings, check.id);
    if (verdict == Verdict::kFail) view["failed"] = view["failed"].get<int>() + 1;
    if (verdict == Verdict::kWarn) view["warned"] = view["warned"].get<int>() + 1;
    json entry{{"id", check.id},
               {"title", check.title},
               {"status", to_string(verdict)},
               {"where", to_string(check.place)},
               {"severity", to_string(check.severity)},
               {"reads", check.reads},
               {"findings", json::array()}};
    if (verdict == Verdict::kFail || verdict == Verdict::kWarn) entry["remedy"] = check.remedy;
    if (!check.link.empty()) entry["link"] = check.link;
    for (const auto& finding : findings) {
      if (finding.id != check.id) continue;
      json one{{"status", to_string(finding.verdict)}, {"evidence", finding.evidence}};
      if (!finding.subject.empty()) one["subject"] = finding.subject;
      entry["findings"].push_back(std::move(one));
    }
    view["checks"].push_back(std::move(entry));
  }
  return view;
}

}  // namespace paceline::agent
