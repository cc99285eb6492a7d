// SPDX-License-Identifier: Apache-2.0
#include "cli/convert/slurm/values.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <string_view>
#include <vector>

namespace paceline::cli {
namespace {

std::optional<std::int64_t> natural_number(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

}  // namespace

std::optional<std::int64_t> count_of(const std::string& text) {
  const auto number = natural_number(text);
  return number && *number > 0 && *number <= 1'000'000 ? number : std::nullopt;
}

std::optional<GpuCount> gpu_count(const std::string& text, bool gres) {
  GpuCount count;
  bool found = false;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string item = text.substr(begin, end - begin);
    begin = end + 1;
    const std::string words = item.substr(0, item.find('('));
    const std::size_t colon = words.find_last_of(':');
    const std::string kind = words.substr(0, words.find(':'));
    if (gres && kind != "gpu") {
      count.others += (count.others.empty() ? "" : ",") + item;
      continue;
    }
    auto number = natural_number(std::string_view(words).substr(colon + 1));
    // "gpu" and "gpu:a100" are one of them.
    if (gres && !number) number = 1;
    if (!number || *number > 1'000'000) return std::nullopt;
    count.number += *number;
    found = true;
  }
  return found ? std::optional(count) : std::nullopt;
}

std::optional<std::int64_t> time_limit(const std::string& text) {
  std::string_view rest = text;
  std::int64_t days = 0;
  const std::size_t dash = rest.find('-');
  if (dash != std::string_view::npos) {
    const auto number = natural_number(rest.substr(0, dash));
    if (!number || *number > 3650) return std::nullopt;
    days = *number;
    rest.remove_prefix(dash + 1);
  }
  std::vector<std::int64_t> parts;
  while (true) {
    const std::size_t colon = rest.find(':');
    const auto number = natural_number(rest.substr(0, colon));
    if (!number || *number > 1'000'000) return std::nullopt;
    parts.push_back(*number);
    if (colon == std::string_view::npos) break;
    rest.remove_prefix(colon + 1);
  }
  if (parts.size() > 3) return std::nullopt;
  // With days, the first part is hours; without, one or two parts begin with minutes.
  if (dash == std::string::npos && parts.size() < 3) parts.insert(parts.begin(), 0);
  parts.resize(3, 0);
  return ((days * 24 + parts[0]) * 60 + parts[1]) * 60 + parts[2];
}

std::string memory(const std::string& text) {
  const std::string digits = text.substr(0, text.find_first_not_of("0123456789"));
  if (digits.empty() || text.size() > digits.size() + 1) return "";
  if (digits.find_first_not_of('0') == std::string::npos) return "";
  const char unit = text.size() == digits.size()
                        ? 'M'
                        : static_cast<char>(std::toupper(static_cast<unsigned char>(text.back())));
  return std::string_view("KMGT").find(unit) == std::string_view::npos ? "" : digits + unit + "i";
}

}  // namespace paceline::cli
