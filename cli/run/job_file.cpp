// SPDX-License-Identifier: Apache-2.0
#include "cli/run/job_file.hpp"

#include <algorithm>
#include <vector>

#include "cli/yaml/document.hpp"

namespace paceline::cli {

int JobFile::line_of(const std::string& path) const {
  return std::max(1, cli::line_of(lines, path));
}

Result<JobFile> parse_job(const std::string& name, const std::string& text) {
  auto documents = YamlReader(name).read(text);
  if (!documents) return std::unexpected(documents.error());
  const auto wrong = [&](int line, const std::string& what) {
    return fail(Code::kInvalid, Origin::kConfig, name + ":" + std::to_string(line) + ": " + what);
  };
  if (documents->empty())
    return wrong(1,
                 "the file holds no job; write apiVersion, kind: TrainingJob, metadata and spec");
  if (documents->size() > 1)
    return wrong((*documents)[1].line,
                 "a second document begins here; keep one TrainingJob in the file");
  YamlDocument& document = documents->front();
  return JobFile{name, nlohmann::json(document.value), std::move(document.lines)};
}

Result<JobFile> read_job(const std::filesystem::path& path) {
  const auto text = read_yaml_file(path.string());
  if (!text) return std::unexpected(text.error());
  return parse_job(path.string(), *text);
}

std::string describe(const JobFile& file, const api::FieldErrors& errors) {
  std::string text;
  for (const api::FieldError& error : errors) {
    const std::string line =
        file.lines.empty() ? "" : ":" + std::to_string(file.line_of(error.path));
    text += file.name + line + ": " + api::to_string(error) + "\n";
  }
  return text;
}

}  // namespace paceline::cli
