// SPDX-License-Identifier: Apache-2.0
#include "cli/yaml/document.hpp"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <optional>
#include <set>
#include <stdexcept>
#include <string_view>

namespace paceline::cli {
namespace {

using nlohmann::ordered_json;

constexpr int kMostValues = 100'000;
constexpr int kMostLevels = 64;
constexpr const char* kMergeRule =
    "\"<<\" takes a map or a list of maps, such as an alias; write one";

struct Located : std::runtime_error {
  Located(int at, const std::string& what) : std::runtime_error(what), line(at) {}
  int line;
};

template <typename Number>
bool parse_whole(std::string_view text, Number& number, auto... base) {
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), number, base...);
  return error == std::errc() && end == text.data() + text.size();
}

/// A whole number as kubectl reads it: 0x1f, 0o17, and 017 in base 8, as in YAML 1.1.
std::optional<std::int64_t> whole_number(std::string_view text) {
  std::int64_t number = 0;
  const bool negative = text.starts_with('-');
  const std::string_view digits = text.substr(text.find_first_not_of("+-"));
  const std::string_view behind = digits.substr(std::min<std::size_t>(2, digits.size()));
  const bool prefixed = !behind.empty() && behind.front() != '-' && digits.front() == '0';
  bool read = false;
  if (prefixed && (digits[1] == 'x' || digits[1] == 'X')) {
    read = parse_whole(behind, number, 16);
  } else if (prefixed && (digits[1] == 'o' || digits[1] == 'O')) {
    read = parse_whole(behind, number, 8);
  } else if (digits.size() > 1 && digits.find_first_not_of("01234567") == std::string_view::npos &&
             digits.front() == '0') {
    read = parse_whole(digits, number, 8);
  } else {
    return parse_whole(text.starts_with('+') ? digits : text, number) ? std::optional(number)
                                                                      : std::nullopt;
  }
  if (!read) return std::nullopt;
  return negative ? -number : number;
}

class Converter {
 public:
  Converter(std::map<std::string, int>& lines, int& values, int first_line)
      : lines_(lines), values_(values), first_line_(first_line) {}

  ordered_json convert(const YAML::Node& node, const std::string& path, int level) {
    const int line = node.Mark().line + first_line_;
    if (level > kMostLevels)
      throw Located(line, "is nested more than " + std::to_string(kMostLevels) + " levels deep");
    if (++values_ > kMostValues)
      throw Located(line, "the file holds more than " + std::to_string(kMostValues) +
                              " values (aliases counted each time)");
    if (!path.empty()) lines_.try_emplace(path, line);
    if (node.IsScalar())
      return is_text(node) ? ordered_json(node.Scalar()) : plain_scalar(node.Scalar());
    if (node.IsSequence()) {
      ordered_json list = ordered_json::array();
      for (std::size_t i = 0; i < node.size(); ++i)
        list.push_back(convert(node[i], path + "[" + std::to_string(i) + "]", level + 1));
      return list;
    }
    if (node.IsMap()) return convert_map(node, path, level);
    return nullptr;
  }

 private:
  using Keys = std::set<std::string>;

  /// Whether the scalar is quoted, or says that it is a string.
  static bool is_text(const YAML::Node& node) {
    return node.Tag() == "!" || node.Tag() == "tag:yaml.org,2002:str";
  }

  static bool is_merge(const YAML::Node& key) { return key.Scalar() == "<<" && !is_text(key); }

  ordered_json convert_map(const YAML::Node& node, const std::string& path, int level) {
    ordered_json object = ordered_json::object();
    Keys keys;
    for (const auto& entry : node) {
      const int line = entry.first.Mark().line + first_line_;
      if (!entry.first.IsScalar()) throw Located(line, "a key is not a word");
      const std::string& key = entry.first.Scalar();
      if (!keys.insert(key).second)
        throw Located(line, "\"" + key + "\" is written twice in one object; keep one");
    }
    for (const auto& entry : node) {
      if (is_merge(entry.first)) {
        merge(entry.second, path, level + 1, keys, object);
      } else {
        add_field(entry, path, level, object);
      }
    }
    return object;
  }

  void add_field(const auto& entry, const std::string& path, int level, ordered_json& object) {
    const std::string& key = entry.first.Scalar();
    const std::string below = path.empty() ? key : path + "." + key;
    lines_[below] = entry.first.Mark().line + first_line_;
    // The map's own insertion looks for the key first, which takes quadratic time.
    object.get_ref<ordered_json::object_t&>().emplace_back(key,
                                                           convert(entry.second, below, level + 1));
  }

  /// "<<: *other": the fields of another map, or of a list of maps, that the object does not have
  /// itself. The first map that has a field decides.
  void merge(const YAML::Node& node, const std::string& path, int level, Keys& keys,
             ordered_json& object) {
    const int line = node.Mark().line + first_line_;
    if (level > kMostLevels)
      throw Located(line, "is nested more than " + std::to_string(kMostLevels) + " levels deep");
    // Maps that merge each other add no values, but take time.
    values_ += 1 + static_cast<int>(node.size());
    if (values_ > kMostValues)
      throw Located(line, "the file holds more than " + std::to_string(kMostValues) +
                              " values (aliases counted each time)");
    if (node.IsSequence()) {
      for (const auto& item : node) {
        if (!item.IsMap()) throw Located(line, kMergeRule);
        merge(item, path, level + 1, keys, object);
      }
      return;
    }
    if (!node.IsMap()) throw Located(line, kMergeRule);
    for (const auto& entry : node) {
      if (!entry.first.IsScalar()) throw Located(line, "a key is not a word");
      if (!is_merge(entry.first) && keys.insert(entry.first.Scalar()).second)
        add_field(entry, path, level, object);
    }
    for (const auto& entry : node) {
      if (is_merge(entry.first)) merge(entry.second, path, level + 1, keys, object);
    }
  }

  std::map<std::string, int>& lines_;
  int& values_;
  int first_line_;
};

}  // namespace

ordered_json plain_scalar(const std::string& text) {
  if (text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL")
    return nullptr;
  if (text == "true" || text == "True" || text == "TRUE") return true;
  if (text == "false" || text == "False" || text == "FALSE") return false;
  const bool numeric = std::isdigit(static_cast<unsigned char>(text.front())) != 0 ||
                       text.front() == '-' || text.front() == '+' || text.front() == '.';
  if (!numeric) return text;
  if (text.find_first_not_of("+-") > 1) return text;  // two signs, or signs alone
  if (const auto integer = whole_number(text)) return *integer;
  double number = 0;
  if (parse_whole(std::string_view(text).substr(text.front() == '+' ? 1 : 0), number))
    return number;
  return text;
}

int line_of(const std::map<std::string, int>& lines, const std::string& path) {
  std::string at = path;
  while (!at.empty()) {
    const auto found = lines.find(at);
    if (found != lines.end()) return found->second;
    const std::size_t cut = at.find_last_of(".[");
    if (cut == std::string::npos) break;
    at.resize(cut);
  }
  return 0;
}

Result<std::vector<YamlDocument>> YamlReader::read(const std::string& text, int first_line) {
  const auto wrong = [&](int line, const std::string& what) {
    return fail(Code::kInvalid, Origin::kConfig, name_ + ":" + std::to_string(line) + ": " + what);
  };
  if (text.size() > kMostYamlBytes)
    return wrong(1, "the file is larger than 1 MiB; a job file is a page of YAML");
  std::vector<YamlDocument> documents;
  try {
    for (const YAML::Node& node : YAML::LoadAll(text)) {
      if (!node.IsDefined() || node.IsNull()) continue;
      YamlDocument& document = documents.emplace_back();
      document.line = node.Mark().line + first_line;
      document.value = Converter(document.lines, values_, first_line).convert(node, "", 0);
    }
  } catch (const Located& error) {
    return wrong(error.line, error.what());
  } catch (const YAML::Exception& error) {
    return wrong(
        error.mark.line + first_line,
        "not YAML: " + error.msg + "; look at the indentation and the colons around this line");
  }
  return documents;
}

Result<std::string> read_yaml_file(const std::string& path) {
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  if (!in) return fail_errno("cannot read " + path, errno == 0 ? ENOENT : errno);
  std::string text(kMostYamlBytes + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (in.bad())
    return fail(Code::kInvalid, Origin::kConfig,
                "cannot read " + path + "; name a file, not a directory");
  text.resize(static_cast<std::size_t>(in.gcount()));
  return text;
}

}  // namespace paceline::cli
