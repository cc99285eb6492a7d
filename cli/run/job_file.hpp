// SPDX-License-Identifier: Apache-2.0
// A job file: YAML read into the JSON that the API server would get. It keeps the line of every
// field, so that an error names file, line and field. Pure apart from reading the file. Bounded: 1
// MiB, 100,000 values, 64 levels. Failure: an Error whose message begins with "FILE:LINE:".
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include <nlohmann/json.hpp>

#include "common/base/error.hpp"
#include "operator/api/field_error.hpp"

namespace paceline::cli {

struct JobFile {
  std::string name;  // of the file, as errors print it
  nlohmann::json document;
  // "spec.roles[0].replicas" → line, from 1; empty: the job comes from no file
  std::map<std::string, int> lines;

  /// The line of the field, or of the nearest enclosing field in the file.
  int line_of(const std::string& path) const;
};

Result<JobFile> parse_job(const std::string& name, const std::string& text);
Result<JobFile> read_job(const std::filesystem::path& path);

/// One error per line: "FILE:LINE: field: value problem; remedy".
std::string describe(const JobFile& file, const api::FieldErrors& errors);

}  // namespace paceline::cli
