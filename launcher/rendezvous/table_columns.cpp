// SPDX-License-Identifier: Apache-2.0
#include "launcher/rendezvous/table_columns.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string_view>

#include "common/contract/host_ports.hpp"
#include "common/json/fields.hpp"

namespace paceline::rendezvous {
namespace {

using nlohmann::json;

constexpr std::size_t kLongestText = 512;
constexpr std::size_t kMostDigits = 15;
constexpr std::size_t kMostRows = kMostNodes;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// A text that is split around one of its numbers.
struct Numbered {
  std::string_view before;
  std::string_view digits;
  std::string_view after;
};

/// Appends `number`, padded with zeros to `width`.
void append_number(std::string& text, std::int64_t number, std::size_t width) {
  const std::string digits = std::to_string(number);
  text.append(width > digits.size() ? width - digits.size() : 0, '0');
  text += digits;
}

std::int64_t number_of(std::string_view digits) {
  std::int64_t number = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), number);
  return number;
}

std::string text_at(const Numbered& first, std::int64_t offset) {
  std::string text(first.before);
  const bool padded = first.digits.starts_with('0');
  append_number(text, number_of(first.digits) + offset, padded ? first.digits.size() : 1);
  return text.append(first.after);
}

/// Splits `text` around the number in which it differs from `next`. The digits are empty if the
/// texts differ in anything else.
Numbered split(std::string_view text, std::string_view next) {
  const auto shared =
      static_cast<std::size_t>(std::ranges::mismatch(text, next).in1 - text.begin());
  std::size_t begin = shared;
  while (begin > 0 && is_digit(text[begin - 1])) --begin;
  std::size_t end = begin;
  while (end < text.size() && is_digit(text[end])) ++end;
  if (end == begin || end - begin > kMostDigits) return {};
  return {text.substr(0, begin), text.substr(begin, end - begin), text.substr(end)};
}

bool may_cut_at(char c) { return !is_digit(c) && static_cast<unsigned char>(c) < 0x80U; }

/// What all texts have in common in front, and at the end of the rest.
struct Common {
  std::size_t before = 0;
  std::size_t after = 0;
};

Common common_parts(const std::vector<Node>& nodes, std::string Node::* text) {
  if (nodes.size() < 2) return {};
  const std::string& first = nodes.front().*text;
  Common common{first.size(), first.size()};
  for (const Node& node : nodes) {
    const std::string& other = node.*text;
    const auto [end, ignored] = std::ranges::mismatch(first, other);
    common.before = std::min(common.before, static_cast<std::size_t>(end - first.begin()));
  }
  // Numbers stay whole, so that runs are recognised, and so do characters of several bytes.
  while (common.before > 0 && !may_cut_at(first[common.before - 1])) --common.before;
  for (const Node& node : nodes) {
    const std::string& other = node.*text;
    std::size_t same = 0;
    const std::size_t most =
        std::min({common.after, first.size() - common.before, other.size() - common.before});
    while (same < most && first[first.size() - 1 - same] == other[other.size() - 1 - same]) ++same;
    common.after = same;
  }
  while (common.after > 0 && !may_cut_at(first[first.size() - common.after])) --common.after;
  return common;
}

json text_column(const std::vector<Node>& nodes, std::string Node::* text) {
  const Common common = common_parts(nodes, text);
  const auto between = [&](std::size_t row) {
    const std::string_view whole = nodes[row].*text;
    return whole.substr(common.before, whole.size() - common.before - common.after);
  };
  json runs = json::array();
  for (std::size_t row = 0; row < nodes.size();) {
    const std::string_view first = between(row);
    std::size_t end = row + 1;
    while (end < nodes.size() && between(end) == first) ++end;
    if (end > row + 1) {
      runs.push_back({first, end - row});
      row = end;
      continue;
    }
    const Numbered parts = end < nodes.size() ? split(first, between(end)) : Numbered{};
    while (!parts.digits.empty() && end < nodes.size() &&
           between(end) == text_at(parts, static_cast<std::int64_t>(end - row)))
      ++end;
    if (end > row + 1) {
      runs.push_back({parts.before, parts.digits, parts.after, end - row});
    } else {
      runs.push_back(first);
    }
    row = end;
  }
  if (nodes.empty()) return {{"before", ""}, {"after", ""}, {"runs", runs}};
  const std::string_view first = nodes.front().*text;
  return {{"before", first.substr(0, common.before)},
          {"after", first.substr(first.size() - common.after)},
          {"runs", std::move(runs)}};
}

template <typename Number>
json number_column(const std::vector<Node>& nodes, Number Node::* field) {
  const auto number = [&](std::size_t row) { return static_cast<std::int64_t>(nodes[row].*field); };
  json column = json::array();
  for (std::size_t row = 0; row < nodes.size();) {
    const std::int64_t first = number(row);
    const std::int64_t step = row + 1 < nodes.size() ? number(row + 1) - first : 0;
    std::size_t end = row + 1;
    while (end < nodes.size() && number(end) == first + step * static_cast<std::int64_t>(end - row))
      ++end;
    column.push_back({first, step, end - row});
    row = end;
  }
  return column;
}

std::size_t rows_of(const json& run, std::size_t place) {
  const json& count = run[place];
  const bool good = count.is_number_unsigned() && count.get<std::uint64_t>() <= kMostRows;
  return good ? count.get<std::size_t>() : 0;
}

bool is_short_text(const json& text) {
  return text.is_string() && text.get_ref<const std::string&>().size() <= kLongestText;
}

bool are_digits(const json& text) {
  if (!text.is_string()) return false;
  const auto& digits = text.get_ref<const std::string&>();
  return !digits.empty() && digits.size() <= kMostDigits && std::ranges::all_of(digits, is_digit);
}

/// Appends the texts of one run. False: the run is not understood, or the column is too long.
bool read_run(const json& run, std::vector<std::string>& texts) {
  if (is_short_text(run)) {
    texts.push_back(run.get<std::string>());
    return texts.size() <= kMostRows;
  }
  const bool same = run.is_array() && run.size() == 2 && is_short_text(run[0]);
  const bool counted = run.is_array() && run.size() == 4 && is_short_text(run[0]) &&
                       are_digits(run[1]) && is_short_text(run[2]);
  if (!same && !counted) return false;
  const std::size_t rows = rows_of(run, same ? 1 : 3);
  if (rows == 0 || texts.size() + rows > kMostRows) return false;
  if (same) {
    texts.insert(texts.end(), rows, run[0].get<std::string>());
    return true;
  }
  const Numbered parts{run[0].get_ref<const std::string&>(), run[1].get_ref<const std::string&>(),
                       run[2].get_ref<const std::string&>()};
  for (std::size_t row = 0; row < rows; ++row)
    texts.push_back(text_at(parts, static_cast<std::int64_t>(row)));
  return true;
}

bool read_run(const json& run, std::int64_t least, std::int64_t most, std::vector<int>& numbers) {
  if (!run.is_array() || run.size() != 3 || !run[0].is_number_integer() ||
      !run[1].is_number_integer())
    return false;
  const std::size_t rows = rows_of(run, 2);
  if (rows == 0 || numbers.size() + rows > kMostRows) return false;
  const auto first = run[0].get<std::int64_t>();
  const auto step = run[1].get<std::int64_t>();
  // The bounds also keep the products below from overflowing.
  if (first < least || first > most || step < -most || step > most) return false;
  const std::int64_t last = first + step * static_cast<std::int64_t>(rows - 1);
  if (last < least || last > most) return false;
  for (std::size_t row = 0; row < rows; ++row)
    numbers.push_back(static_cast<int>(first + step * static_cast<std::int64_t>(row)));
  return true;
}

class ColumnReader {
 public:
  ColumnReader(const json& columns, std::string& problem)
      : problem_(problem), fields_(columns, problem) {}

  void read(const char* key, std::string Node::* field) {
    static const json kNone;
    const json* column = fields_.find(key);
    JsonFields parts(column == nullptr ? kNone : *column, problem_, key);
    const std::string before = parts.text("before");
    const std::string after = parts.text("after");
    std::vector<std::string> texts;
    for (const json& run : parts.array("runs", kMostRows)) {
      if (read_run(run, texts)) continue;
      return parts.note("runs", "holds something that is not a run of texts");
    }
    for (std::string& text : texts) text = before + text + after;
    fill(key, field, std::move(texts));
  }

  template <typename Number>
  void read(const char* key, Number Node::* field, std::int64_t least, std::int64_t most) {
    std::vector<int> numbers;
    for (const json& run : fields_.array(key, kMostRows)) {
      if (read_run(run, least, most, numbers)) continue;
      return fields_.note(key, "holds something that is not a run of numbers");
    }
    fill(key, field, std::move(numbers));
  }

  std::vector<Node> take() { return std::move(nodes_); }

 private:
  /// The first column decides how many rows there are.
  template <typename Field, typename Value>
  void fill(const char* key, Field Node::* field, std::vector<Value> values) {
    if (nodes_.empty()) nodes_.resize(values.size());
    if (values.size() != nodes_.size())
      return fields_.note(key, "has another number of rows than the column before");
    for (std::size_t row = 0; row < values.size(); ++row)
      nodes_[row].*field = static_cast<Field>(std::move(values[row]));
  }

  std::string& problem_;
  JsonFields fields_;
  std::vector<Node> nodes_;
};

}  // namespace

json to_columns(const std::vector<Node>& nodes) {
  json columns{{"nodeRank", number_column(nodes, &Node::node_rank)},
               {"role", text_column(nodes, &Node::role)},
               {"replicaIndex", number_column(nodes, &Node::replica_index)},
               {"incarnation", number_column(nodes, &Node::incarnation)},
               {"podName", text_column(nodes, &Node::pod_name)},
               {"address", text_column(nodes, &Node::address)},
               {"nodeName", text_column(nodes, &Node::node_name)},
               {"kind", number_column(nodes, &Node::kind)},
               {"processes", number_column(nodes, &Node::processes)},
               {"execPort", number_column(nodes, &Node::exec_port)}};
  if (std::ranges::any_of(nodes, [](const Node& node) { return node.port_base != 0; }))
    columns["portBase"] = number_column(nodes, &Node::port_base);
  return columns;
}

std::vector<Node> read_columns(const json& columns, std::string& problem) {
  ColumnReader reader(columns, problem);
  reader.read("nodeRank", &Node::node_rank, 0, kMostNodes);
  reader.read("role", &Node::role);
  reader.read("replicaIndex", &Node::replica_index, 0, kMostNodes);
  reader.read("incarnation", &Node::incarnation, 0, kMostAttempts);
  reader.read("podName", &Node::pod_name);
  reader.read("address", &Node::address);
  reader.read("nodeName", &Node::node_name);
  reader.read("kind", &Node::kind, 0, contract::kRoleKinds.size() - 1);
  reader.read("processes", &Node::processes, 1, kMostProcesses);
  reader.read("execPort", &Node::exec_port, 0, 65535);
  if (columns.is_object() && columns.contains("portBase"))
    reader.read("portBase", &Node::port_base, 0, contract::kLastPortBase);
  if (!problem.empty()) return {};
  std::vector<Node> nodes = reader.take();
  number_ranks(nodes);
  return nodes;
}

}  // namespace paceline::rendezvous
