// SPDX-License-Identifier: Apache-2.0
// A converted job as the tests look at it.
#pragma once

#include <string>
#include <vector>

#include "cli/convert/convert.hpp"
#include "cli/yaml/document.hpp"

namespace paceline::cli {

struct Converted {
  nlohmann::ordered_json job;
  std::vector<std::string> notes;
  bool complete = false;

  const nlohmann::ordered_json& pod(std::size_t role = 0) const {
    return job["spec"]["roles"][role]["template"]["spec"];
  }
  const nlohmann::ordered_json& container(std::size_t role = 0) const {
    return pod(role)["containers"][0];
  }
  /// Of the last role, which trains.
  std::vector<std::string> command() const {
    return container(job["spec"]["roles"].size() - 1).value("command", std::vector<std::string>{});
  }
  /// "replicas x processes" of the last role.
  std::string shape() const {
    const auto& spec = job["spec"];
    return spec["roles"].back()["replicas"].dump() + " x " +
           spec["framework"].value("processesPerReplica", nlohmann::ordered_json("Auto")).dump();
  }
};

/// An error is the only note, and the job is null.
inline Converted converted(const std::string& text) {
  const auto result = convert("f", text);
  if (!result) return {nlohmann::ordered_json(), {result.error().message}, false};
  const auto documents = YamlReader("f").read(result->text);
  if (!documents) return {nlohmann::ordered_json(), {documents.error().message}, false};
  return {documents->front().value, result->notes, result->incomplete == 0};
}

}  // namespace paceline::cli
