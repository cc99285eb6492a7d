// SPDX-License-Identifier: Apache-2.0
// From JSON to a TrainingJob, and to a RuntimeProfile. The same rules as the CRD's schema (types,
// bounds, unknown fields, defaults), so that `paceline run` accepts exactly what the API server
// accepts. What the schema cannot say (trainer container, command, fields Paceline sets itself) is
// in validate.hpp.
//
// Pure and thread-safe. All problems are reported at once, each with its path.
#pragma once

#include <expected>

#include <nlohmann/json.hpp>

#include "common/base/timestamp.hpp"
#include "operator/api/field_error.hpp"
#include "operator/api/training_job.hpp"

namespace paceline::api {

/// Reads `apiVersion`, `kind`, `metadata` and `spec`; `status` is left to status.hpp.
std::expected<TrainingJob, FieldErrors> parse_training_job(const nlohmann::json& document);
std::expected<RuntimeProfile, FieldErrors> parse_runtime_profile(const nlohmann::json& document);

}  // namespace paceline::api
