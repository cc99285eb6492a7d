// SPDX-License-Identifier: Apache-2.0
// The documents of jobs that the tests of operator/api start from. Pure.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "operator/api/parse.hpp"

namespace paceline {

/// A job with one role of two replicas, which each hold two ranks.
inline nlohmann::json minimal() {
  return nlohmann::json::parse(R"({
    "apiVersion": "paceline.dev/v1alpha1", "kind": "TrainingJob",
    "metadata": {"name": "digits", "namespace": "research", "uid": "u-1"},
    "spec": {"framework": {"type": "PyTorch", "processesPerReplica": 2},
             "roles": [{"name": "worker", "replicas": 2, "template": {"spec": {"containers": [
               {"name": "trainer", "image": "i", "command": ["python3"], "args": ["train.py"]}]}}}]}})");
}

/// The only error of the document, as text; empty if it parses.
inline std::string error_of(const nlohmann::json& document) {
  const auto job = api::parse_training_job(document);
  return job ? "" : api::to_error(job.error()).message;
}

}  // namespace paceline
