// SPDX-License-Identifier: Apache-2.0
// A file for `paceline convert`, as anyone may have written it. What the conversion writes can be
// read again, and converts nothing a second time.
#include "cli/convert/convert.hpp"

#include "cli/yaml/document.hpp"
#include "tests/fuzz/fuzz.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace paceline;
  const auto result = cli::convert("f", std::string(fuzz::text(data, size)));
  if (!result) {
    fuzz::require(result.error().message.starts_with("f:"), "a refusal names file and line");
    fuzz::require(result.error().message.find('\n') == std::string::npos, "a refusal is one line");
    return 0;
  }
  fuzz::require(result->jobs > 0 && result->incomplete <= result->jobs, "jobs are counted");
  for (const std::string& note : result->notes)
    fuzz::require(note.starts_with("f:") && note.find('\n') == std::string::npos,
                  "a note is one line and names the file");
  const auto documents = cli::YamlReader("f").read(result->text);
  if (!documents) {
    fuzz::require(result->text.size() > cli::kMostYamlBytes ||
                      documents.error().message.find("values") != std::string::npos,
                  "the result is YAML");
    return 0;
  }
  int jobs = 0;
  for (const cli::YamlDocument& document : *documents) {
    if (document.value.is_object() &&
        document.value.value("kind", nlohmann::ordered_json()) == "TrainingJob")
      ++jobs;
  }
  fuzz::require(jobs >= result->jobs, "each job is in the result");
  return 0;
}
