// SPDX-License-Identifier: Apache-2.0
// One JSON document of all that is known of a job. `paceline top`, `explain` and `report` print it
// with `-o json`, and read it back from a file. docs/train/watch.md has its fields. Pure.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "common/base/clock.hpp"
#include "operator/api/acceleration.hpp"
#include "operator/api/training_job.hpp"

namespace paceline::cli {

/// What the status of a TrainingJob says, in the units of a launcher's summary.
nlohmann::json job_document(const nlohmann::json& training_job);

/// The document of a local run, before its launcher has said anything.
nlohmann::json run_document(const std::string& name, int ranks, WallTime started,
                            const api::Acceleration* acceleration);

/// The ranks of all roles that train.
int ranks_of(const api::Spec& spec);

/// Replaces what a status knows coarsely by what rank 0's launcher says: its summary, its report,
/// or its termination message. The phase of a cluster's job stays the operator's.
void add_summary(nlohmann::json& document, const nlohmann::json& summary);

/// Valid JSON, whatever bytes a program has written.
std::string dump(const nlohmann::json& document);

}  // namespace paceline::cli
