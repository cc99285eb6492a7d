// SPDX-License-Identifier: Apache-2.0
#include "cli/convert/yaml_writer.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>

namespace paceline::cli {
namespace {

constexpr std::size_t kColumns = 100;

/// Words that some reader takes for a boolean or for null.
bool is_reserved(std::string text) {
  constexpr std::array kWords{"true", "false", "yes", "no", "on", "off", "y", "n", "null"};
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  return std::ranges::find(kWords, text) != kWords.end();
}

/// "90s" and "64Gi": digits and letters that no reader takes for a number.
bool is_amount(const std::string& text) {
  const std::size_t unit = text.find_first_not_of("0123456789");
  if (unit == 0 || unit == std::string::npos || text[unit] == 'x' || text[unit] == 'X')
    return false;
  return std::ranges::all_of(text.substr(unit),
                             [](unsigned char c) { return std::isalpha(c) != 0; });
}

/// Whether the text needs no quotes. Behind dashes it starts with a letter or a slash, so it is no
/// number and no indicator.
bool is_plain(const std::string& text) {
  if (is_reserved(text)) return false;
  if (is_amount(text)) return true;
  const std::size_t start = text.find_first_not_of('-');
  if (start > 2) return false;  // "---" begins a document
  const auto first = static_cast<unsigned char>(text[start]);
  if (std::isalpha(first) == 0 && first != '/') return false;
  for (std::size_t i = start; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    const bool last = i + 1 == text.size();
    const bool joins = c == ' ' || c == ':';  // ": " ends a key
    if (joins && (last || text[i + 1] == ' ' || text[i + 1] == '-')) return false;
    if (!joins && std::isalnum(c) == 0 &&
        std::string_view("/._-=@+").find(text[i]) == std::string_view::npos)
      return false;
  }
  return true;
}

std::string quoted(const std::string& text) {
  std::string result;
  // JSON's escapes are YAML's. DEL and C1 controls are no printable characters of YAML.
  for (const char c : Json(text).dump(-1, ' ', false, Json::error_handler_t::replace)) {
    if (c == 0x7f) {
      result += "\\x7f";
    } else {
      result += c;
    }
  }
  return result;
}

/// Whether a literal block gives the text back: no line begins or ends with blanks that a block
/// would change or hide, and no control characters.
bool fits_literal(const std::string& text) {
  if (text.find('\n') == std::string::npos || text.front() == ' ' || text.front() == '\n')
    return false;
  if (text.ends_with("\n\n")) return false;
  bool ends_in_blank = false;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n') {
      if (ends_in_blank) return false;
      continue;
    }
    if (byte < 0x20 || byte >= 0x7f) return false;
    ends_in_blank = c == ' ';
  }
  return !ends_in_blank;
}

std::string scalar(const Json& value) {
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    return is_plain(text) ? text : quoted(text);
  }
  if (value.is_object()) return "{}";
  if (value.is_array()) return "[]";
  return value.dump();
}

bool is_block(const Json& value) {
  if (value.is_string()) return fits_literal(value.get_ref<const std::string&>());
  return value.is_structured() && !value.empty();
}

/// A list of words or numbers in one line, if it fits; else "".
std::string flow_list(const Json& list, std::size_t indent) {
  std::string text = "[";
  for (const Json& item : list) {
    if (is_block(item) || item.is_structured()) return "";
    if (text.size() > 1) text += ", ";
    // A plain word may hold no comma here; is_plain allows none.
    text += scalar(item);
  }
  text += "]";
  return indent + text.size() <= kColumns ? text : "";
}

class YamlText {
 public:
  std::string text() && { return std::move(out_); }

  /// The fields of an object. The first of them is not indented if it follows "- ".
  void object(const Json& object, std::size_t indent, bool after_dash) {
    for (const auto& [key, value] : object.items()) {
      if (!after_dash) out_.append(indent, ' ');
      after_dash = false;
      out_ += is_plain(key) ? key : quoted(key);
      out_ += ':';
      this->value(value, indent, false);
    }
  }

 private:
  void value(const Json& value, std::size_t indent, bool in_list) {
    if (!is_block(value)) {
      out_ += " " + scalar(value) + "\n";
    } else if (value.is_string()) {
      literal(value.get_ref<const std::string&>(), indent + 2);
    } else if (value.is_array()) {
      list(value, indent, in_list);
    } else if (in_list) {
      out_ += ' ';
      object(value, indent + 2, true);
    } else {
      out_ += '\n';
      object(value, indent + 2, false);
    }
  }

  void list(const Json& list, std::size_t indent, bool in_list) {
    const std::string flow = flow_list(list, indent + 12);
    if (!flow.empty()) {
      out_ += " " + flow + "\n";
      return;
    }
    if (in_list) indent += 2;
    out_ += '\n';
    for (const Json& item : list) {
      out_.append(indent, ' ');
      out_ += '-';
      value(item, indent, true);
    }
  }

  void literal(const std::string& text, std::size_t indent) {
    out_ += text.ends_with('\n') ? " |\n" : " |-\n";
    std::size_t begin = 0;
    while (begin < text.size()) {
      const std::size_t end = std::min(text.find('\n', begin), text.size());
      if (end > begin) out_.append(indent, ' ').append(text, begin, end - begin);
      out_ += '\n';
      begin = end + 1;
    }
  }

  std::string out_;
};

}  // namespace

std::string to_yaml(const Json& document) {
  if (!document.is_object() || document.empty()) return scalar(document) + "\n";
  YamlText writer;
  writer.object(document, 0, false);
  return std::move(writer).text();
}

}  // namespace paceline::cli
