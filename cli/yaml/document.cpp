// SPDX-License-Identifier: Apache-2.0
#include "cli/yaml/document.hpp"

#include <yaml-cpp/yaml.h>

#include <cerrno>
#include <charconv>
#include <fstream>
#include <set>
#include <stdexcept>

namespace paceline::cli {
namespace {

using nlohmann::ordered_json;

constexpr int kMostValues = 100'000;
constexpr int kMostLevels = 64;

struct Located : std::runtime_error {
  Located(int at, const std::string& what) : std::runtime_error(what), line(at) {}
  int line;
};

template <typename Number>
bool parse_whole(const std::string& text, Number& number) {
  const char* begin = text.data() + (text.starts_with('+') ? 1 : 0);
  const auto [end, error] = std::from_chars(begin, text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
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
      return node.Tag() == "!" ? ordered_json(node.Scalar()) : plain_scalar(node.Scalar());
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
  ordered_json convert_map(const YAML::Node& node, const std::string& path, int level) {
    ordered_json object = ordered_json::object();
    auto& fields = object.get_ref<ordered_json::object_t&>();
    std::set<std::string> keys;
    for (const auto& entry : node) {
      const int line = entry.first.Mark().line + first_line_;
      if (!entry.first.IsScalar()) throw Located(line, "a key is not a word");
      const std::string& key = entry.first.Scalar();
      if (!keys.insert(key).second)
        throw Located(line, "\"" + key + "\" is written twice in one object; keep one");
      const std::string below = path.empty() ? key : path + "." + key;
      lines_[below] = line;
      // The map's own insertion looks for the key first, which takes quadratic time.
      fields.emplace_back(key, convert(entry.second, below, level + 1));
    }
    return object;
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
  std::int64_t integer = 0;
  if (parse_whole(text, integer)) return integer;
  double number = 0;
  if (parse_whole(text, number)) return number;
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
