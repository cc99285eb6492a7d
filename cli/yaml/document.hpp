// SPDX-License-Identifier: Apache-2.0
// Reads YAML into the JSON that the API server would get, keys in the order of the file. Merge keys
// ("<<: *other") are carried out. It keeps the line of every field, so that an error names file,
// line and field. Pure. Bounded: 1 MiB, 100,000 values over all documents of a file (aliases
// counted each time), 64 levels. Failure: an Error whose message begins with "FILE:LINE:".
#pragma once

#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/base/error.hpp"

namespace paceline::cli {

inline constexpr std::size_t kMostYamlBytes = 1 << 20;

struct YamlDocument {
  int line = 1;  // where it begins, from 1
  nlohmann::ordered_json value;
  std::map<std::string, int> lines;  // "spec.roles[0].replicas" → line, from 1
};

/// The line of the field, or of the nearest enclosing field.
int line_of(const std::map<std::string, int>& lines, const std::string& path);

/// Reads the documents of one file, given whole or in parts.
class YamlReader {
 public:
  explicit YamlReader(std::string name) : name_(std::move(name)) {}

  /// The documents of `text` that are not empty. `first_line`: the line of the file where the text
  /// begins, from 1.
  Result<std::vector<YamlDocument>> read(const std::string& text, int first_line = 1);

 private:
  std::string name_;  // of the file, as errors print it
  int values_ = 0;    // read so far
};

/// The value of a plain scalar by YAML 1.2's core schema. As in Kubernetes, on/off/yes/no are
/// strings, and 0400 is a number of base 8.
nlohmann::ordered_json plain_scalar(const std::string& text);

/// The bytes of a file of at most 1 MiB; one byte more than that if it is larger.
Result<std::string> read_yaml_file(const std::string& path);

}  // namespace paceline::cli
