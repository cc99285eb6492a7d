// SPDX-License-Identifier: Apache-2.0
#include "cli/doctor/view.hpp"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <utility>

namespace paceline::cli {
namespace {

using agent::Finding;
using agent::Verdict;

constexpr std::size_t kMaxSubjects = 4;
constexpr std::size_t kIdWidth = 24;

/// Pads the text to a column, with at least two blanks behind it.
std::string column(std::string_view text, std::size_t width) {
  std::string result(text);
  result.append(width > text.size() + 2 ? width - text.size() : 2, ' ');
  return result;
}

/// One row: the findings of one check with the same verdict and the same evidence.
struct Row {
  const Finding* first = nullptr;
  std::vector<std::string> subjects;
};

std::vector<Row> rows_of(const std::vector<Finding>& findings, Verdict verdict) {
  std::vector<Row> rows;
  for (const auto& finding : findings) {
    if (finding.verdict != verdict) continue;
    const auto known = std::find_if(rows.begin(), rows.end(), [&](const Row& row) {
      return row.first->id == finding.id && row.first->evidence == finding.evidence;
    });
    Row& row = known == rows.end() ? rows.emplace_back(Row{&finding, {}}) : *known;
    if (!finding.subject.empty()) row.subjects.push_back(finding.subject);
  }
  return rows;
}

std::string subjects_text(const Row& row) {
  std::string text;
  for (std::size_t i = 0; i < std::min(row.subjects.size(), kMaxSubjects); ++i)
    text += (i == 0 ? "" : ", ") + row.subjects[i];
  if (row.subjects.size() > kMaxSubjects)
    text += " and " + std::to_string(row.subjects.size() - kMaxSubjects) + " more";
  return text.empty() ? text : text + ": ";
}

/// What is wrong. The remedy stands below the last row of its check.
std::string trouble_text(const std::vector<Finding>& findings, Verdict verdict,
                         std::string_view word) {
  std::string text;
  const auto rows = rows_of(findings, verdict);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Row& row = rows[i];
    text += column(word, 6) + column(row.first->id, kIdWidth) + subjects_text(row) +
            row.first->evidence + "\n";
    const bool last = i + 1 == rows.size() || rows[i + 1].first->id != row.first->id;
    if (last && !row.first->remedy.empty()) {
      const agent::Check* check = agent::find_check(row.first->id);
      text += std::string(6, ' ') + "remedy: " + row.first->remedy + "\n";
      if (check != nullptr && !check->link.empty())
        text += std::string(6, ' ') + "see: " + std::string(check->link) + "\n";
    }
  }
  return text;
}

}  // namespace

std::string doctor_text(const std::vector<Finding>& findings) {
  std::map<Verdict, int> count;
  for (const auto& check : agent::checks()) ++count[worst(findings, check.id)];
  std::string text = trouble_text(findings, Verdict::kFail, "FAIL") +
                     trouble_text(findings, Verdict::kWarn, "WARN");
  if (!text.empty()) text += "\n";
  text +=
      std::to_string(agent::checks().size()) + " checks: " + std::to_string(count[Verdict::kFail]) +
      " fail, " + std::to_string(count[Verdict::kWarn]) + " warn, " +
      std::to_string(count[Verdict::kPass]) + " pass, " + std::to_string(count[Verdict::kSkip]) +
      " do not apply, " + std::to_string(count[Verdict::kUnknown]) + " could not be told\n";
  const auto unknown = rows_of(findings, Verdict::kUnknown);
  if (!unknown.empty()) text += "\nCould not be told:\n";
  for (const auto& row : unknown) {
    text += "  " + column(row.first->id, kIdWidth) + subjects_text(row) + row.first->evidence;
    text += "\n";
  }
  // Skips of whole checks are only counted; a device that is left out has a name.
  std::vector<Finding> aside;
  std::copy_if(findings.begin(), findings.end(), std::back_inserter(aside),
               [](const Finding& finding) {
                 return finding.verdict == Verdict::kSkip && !finding.subject.empty();
               });
  if (!aside.empty()) text += "\nLeft out:\n";
  for (const auto& row : rows_of(aside, Verdict::kSkip))
    text +=
        "  " + column(row.first->id, kIdWidth) + subjects_text(row) + row.first->evidence + "\n";
  return text;
}

}  // namespace paceline::cli
