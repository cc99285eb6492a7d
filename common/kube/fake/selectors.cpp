// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "common/kube/fake/model.hpp"

namespace paceline::kube {
namespace {

std::string_view trim(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

/// Splits at the commas that are outside parentheses.
std::vector<std::string_view> terms_of(std::string_view text) {
  std::vector<std::string_view> terms;
  int depth = 0;
  std::size_t begin = 0;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    if (i == text.size() || (text[i] == ',' && depth == 0)) {
      if (const auto term = trim(text.substr(begin, i - begin)); !term.empty())
        terms.push_back(term);
      begin = i + 1;
    } else if (text[i] == '(') {
      ++depth;
    } else if (text[i] == ')') {
      --depth;
    }
  }
  return terms;
}

using Value = std::optional<std::string>;

Value field_of(const Document& object, std::string_view path) {
  const Document* at = &object;
  while (!path.empty()) {
    const auto dot = path.find('.');
    const std::string key(path.substr(0, dot));
    if (!at->is_object() || !at->contains(key)) return std::nullopt;
    at = &(*at)[key];
    path = dot == std::string_view::npos ? std::string_view() : path.substr(dot + 1);
  }
  return at->is_string() ? Value(at->get<std::string>()) : Value();
}

Value label_of(const Document& object, std::string_view key) {
  const auto& meta = object["metadata"];
  if (!meta.contains("labels")) return std::nullopt;
  const auto found = meta["labels"].find(std::string(key));
  return found == meta["labels"].end() ? Value() : Value(found->get<std::string>());
}

bool in_set(std::string_view set, const Value& value) {
  if (!value) return false;
  const auto open = set.find('(');
  const auto close = set.rfind(')');
  if (open == std::string_view::npos || close == std::string_view::npos) return false;
  const auto members = terms_of(set.substr(open + 1, close - open - 1));
  return std::ranges::find(members, std::string_view(*value)) != members.end();
}

bool term_matches(std::string_view term, const std::function<Value(std::string_view)>& value_of,
                  bool labels) {
  if (labels) {
    if (const auto at = term.find(" notin "); at != std::string_view::npos)
      return !in_set(term.substr(at), value_of(trim(term.substr(0, at))));
    if (const auto at = term.find(" in "); at != std::string_view::npos)
      return in_set(term.substr(at), value_of(trim(term.substr(0, at))));
    if (term.starts_with('!')) return !value_of(trim(term.substr(1)));
    if (term.find('=') == std::string_view::npos) return value_of(term).has_value();
  }
  if (const auto at = term.find("!="); at != std::string_view::npos) {
    return value_of(trim(term.substr(0, at))).value_or("") != trim(term.substr(at + 2));
  }
  const auto at = term.find('=');
  std::string_view wanted = term.substr(at + 1);
  if (wanted.starts_with('=')) wanted.remove_prefix(1);
  const Value value = value_of(trim(term.substr(0, at)));
  return labels ? value && *value == trim(wanted) : value.value_or("") == trim(wanted);
}

}  // namespace

Outcome<bool> matches(const Selector& selector, const Document& object) {
  for (const auto term : terms_of(selector.labels)) {
    if (!term_matches(term, [&](std::string_view key) { return label_of(object, key); }, true))
      return false;
  }
  for (const auto term : terms_of(selector.fields)) {
    if (term.find('=') == std::string_view::npos)
      return refuse(400, "BadRequest", "invalid field selector: " + std::string(term));
    if (!term_matches(term, [&](std::string_view path) { return field_of(object, path); }, false))
      return false;
  }
  return true;
}

}  // namespace paceline::kube
