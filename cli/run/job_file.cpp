// SPDX-License-Identifier: Apache-2.0
#include "cli/run/job_file.hpp"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <iterator>
#include <set>
#include <stdexcept>

namespace paceline::cli {
namespace {

using nlohmann::json;

constexpr std::size_t kMostBytes = 1 << 20;
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

// Interprets a plain scalar by YAML 1.2's core schema. As in Kubernetes, on/off/yes/no are strings.
json plain_scalar(const std::string& text) {
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

class Converter {
 public:
  explicit Converter(std::map<std::string, int>& lines) : lines_(lines) {}

  json convert(const YAML::Node& node, const std::string& path, int level) {
    const int line = node.Mark().line + 1;
    if (level > kMostLevels)
      throw Located(line, "is nested more than " + std::to_string(kMostLevels) + " levels deep");
    if (++values_ > kMostValues)
      throw Located(line, "the file holds more than " + std::to_string(kMostValues) +
                              " values (aliases counted each time)");
    if (!path.empty()) lines_.try_emplace(path, line);
    if (node.IsScalar())
      return node.Tag() == "!" ? json(node.Scalar()) : plain_scalar(node.Scalar());
    if (node.IsSequence()) {
      json list = json::array();
      for (std::size_t i = 0; i < node.size(); ++i)
        list.push_back(convert(node[i], path + "[" + std::to_string(i) + "]", level + 1));
      return list;
    }
    if (node.IsMap()) {
      json object = json::object();
      for (const auto& entry : node) {
        if (!entry.first.IsScalar())
          throw Located(entry.first.Mark().line + 1, "a key is not a word");
        const std::string& key = entry.first.Scalar();
        if (object.contains(key))
          throw Located(entry.first.Mark().line + 1,
                        "\"" + key + "\" is written twice in one object; keep one");
        const std::string below = path.empty() ? key : path + "." + key;
        lines_[below] = entry.first.Mark().line + 1;
        object[key] = convert(entry.second, below, level + 1);
      }
      return object;
    }
    return nullptr;
  }

 private:
  std::map<std::string, int>& lines_;
  int values_ = 0;
};

std::unexpected<Error> wrong(const std::string& name, int line, const std::string& what) {
  return fail(Code::kInvalid, Origin::kConfig, name + ":" + std::to_string(line) + ": " + what);
}

}  // namespace

int JobFile::line_of(const std::string& path) const {
  std::string at = path;
  while (!at.empty()) {
    const auto found = lines.find(at);
    if (found != lines.end()) return found->second;
    const std::size_t cut = at.find_last_of(".[");
    if (cut == std::string::npos) break;
    at.resize(cut);
  }
  return 1;
}

Result<JobFile> parse_job(const std::string& name, const std::string& text) {
  if (text.size() > kMostBytes)
    return wrong(name, 1, "the file is larger than 1 MiB; a job file is a page of YAML");
  JobFile file;
  file.name = name;
  try {
    std::vector<YAML::Node> documents = YAML::LoadAll(text);
    std::erase_if(documents,
                  [](const YAML::Node& node) { return !node.IsDefined() || node.IsNull(); });
    if (documents.empty())
      return wrong(name, 1,
                   "the file holds no job; write apiVersion, kind: TrainingJob, metadata and spec");
    if (documents.size() > 1)
      return wrong(name, documents[1].Mark().line + 1,
                   "a second document begins here; keep one TrainingJob in the file");
    file.document = Converter(file.lines).convert(documents.front(), "", 0);
  } catch (const Located& error) {
    return wrong(name, error.line, error.what());
  } catch (const YAML::Exception& error) {
    return wrong(
        name, error.mark.line + 1,
        "not YAML: " + error.msg + "; look at the indentation and the colons around this line");
  }
  return file;
}

Result<JobFile> read_job(const std::filesystem::path& path) {
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  if (!in) return fail_errno("cannot read " + path.string(), errno == 0 ? ENOENT : errno);
  std::string text(kMostBytes + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (in.bad())
    return fail(Code::kInvalid, Origin::kConfig,
                "cannot read " + path.string() + "; name a file, not a directory");
  text.resize(static_cast<std::size_t>(in.gcount()));
  return parse_job(path.string(), text);
}

std::string describe(const JobFile& file, const api::FieldErrors& errors) {
  std::string text;
  for (const api::FieldError& error : errors) {
    text += file.name + ":" + std::to_string(file.line_of(error.path)) + ": " +
            api::to_string(error) + "\n";
  }
  return text;
}

}  // namespace paceline::cli
