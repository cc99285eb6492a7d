// SPDX-License-Identifier: Apache-2.0
#include "operator/api/placement.hpp"

#include <algorithm>
#include <charconv>

namespace paceline::api {
namespace {

constexpr std::size_t kMostNodes = 10000;

/// How many characters all names share at their start, among the first `most`.
template <typename Begin>
std::size_t shared(const std::vector<PlacedNode>& placement, std::size_t most, Begin begin) {
  for (const PlacedNode& node : placement) {
    most = std::min(most, node.name.size());
    const auto first = begin(placement.front().name);
    const auto end = first + static_cast<std::ptrdiff_t>(most);
    most = static_cast<std::size_t>(std::mismatch(first, end, begin(node.name)).first - first);
  }
  return most;
}

}  // namespace

std::string placement_text(const std::vector<PlacedNode>& placement) {
  if (placement.empty()) return "";
  const std::string& one = placement.front().name;
  const std::size_t head =
      shared(placement, one.size(), [](const std::string& name) { return name.begin(); });
  std::size_t rest = one.size() - head;
  for (const PlacedNode& node : placement) rest = std::min(rest, node.name.size() - head);
  const std::size_t tail =
      shared(placement, rest, [](const std::string& name) { return name.rbegin(); });
  std::string text = one.substr(0, head) + "{";
  for (const PlacedNode& node : placement) {
    text.append(node.name, head, node.name.size() - head - tail);
    if (node.pods != 1) text += "*" + std::to_string(node.pods);
    text += ',';
  }
  text.back() = '}';
  return text + one.substr(one.size() - tail);
}

std::vector<PlacedNode> parse_placement_text(std::string_view text) {
  const std::size_t open = text.find('{');
  const std::size_t close = text.find('}');
  if (open == std::string_view::npos || close == std::string_view::npos || close < open) return {};
  const std::string head(text.substr(0, open));
  const std::string tail(text.substr(close + 1));
  std::string_view list = text.substr(open + 1, close - open - 1);
  std::vector<PlacedNode> placement;
  for (bool more = true; more;) {
    const std::size_t comma = list.find(',');
    more = comma != std::string_view::npos;
    const std::string_view entry = list.substr(0, comma);
    if (more) list.remove_prefix(comma + 1);
    const std::size_t star = entry.find('*');
    PlacedNode& node = placement.emplace_back();
    node.name = head + std::string(entry.substr(0, star)) + tail;
    node.pods = 1;
    if (star != std::string_view::npos) {
      const auto [end, error] =
          std::from_chars(entry.data() + star + 1, entry.data() + entry.size(), node.pods);
      if (error != std::errc() || end != entry.data() + entry.size()) return {};
    }
    if (placement.size() > kMostNodes) return {};
  }
  return placement;
}

}  // namespace paceline::api
