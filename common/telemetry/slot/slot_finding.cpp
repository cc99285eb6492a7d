// SPDX-License-Identifier: Apache-2.0
#include "common/telemetry/slot/slot_finding.hpp"

#include <algorithm>
#include <array>

namespace paceline::telemetry {
namespace {

constexpr char kSeparator = '\t';
constexpr std::size_t kMostName = 64;

bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20U || c == 0x7F; }

std::string plain(std::string text, std::size_t most) {
  if (text.size() > most) {
    // Do not cut inside a UTF-8 character.
    while (most > 0 && (static_cast<unsigned char>(text[most]) & 0xC0U) == 0x80U) --most;
    text.resize(most);
  }
  std::ranges::replace_if(text, is_control, ' ');
  return text;
}

}  // namespace

std::string pack(const SlotFinding& finding) {
  std::string text;
  for (const std::string& field : {finding.check, finding.subject, finding.status})
    text += plain(field, kMostName) + kSeparator;
  return text + plain(finding.evidence, kMostFindingText - text.size());
}

std::optional<SlotFinding> unpack(std::string_view text) {
  if (text.size() > kMostFindingText) return std::nullopt;
  std::array<std::string_view, 4> fields;
  for (std::size_t i = 0; i + 1 < fields.size(); ++i) {
    const std::size_t end = text.find(kSeparator);
    if (end == std::string_view::npos) return std::nullopt;
    fields.at(i) = text.substr(0, end);
    text.remove_prefix(end + 1);
  }
  fields.back() = text;
  for (const std::string_view field : fields) {
    if (std::ranges::any_of(field, is_control)) return std::nullopt;
  }
  if (fields[0].empty()) return std::nullopt;
  return SlotFinding{std::string(fields[0]), std::string(fields[1]), std::string(fields[2]),
                     std::string(fields[3])};
}

}  // namespace paceline::telemetry
