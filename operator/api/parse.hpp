// SPDX-License-Identifier: Apache-2.0
// Reads a TrainingJob or a RuntimeProfile from JSON. The rules are those of the CRD's schema:
// types, bounds, unknown fields, defaults. So `paceline run` accepts exactly what the API server
// accepts. validate.hpp checks what a schema cannot express: trainer container, command, and fields
// that Paceline sets itself.
//
// Pure and thread-safe. Reports all problems at once, each with its path.
#pragma once

#include <expected>

#include <nlohmann/json.hpp>

#include "common/base/timestamp.hpp"
#include "operator/api/field_error.hpp"
#include "operator/api/training_job.hpp"

namespace paceline::api {

enum class UnknownFields { kRefuse, kIgnore };

/// Reads `apiVersion`, `kind`, `metadata` and `spec`; status.hpp reads `status`.
std::expected<TrainingJob, FieldErrors> parse_training_job(
    const nlohmann::json& document, UnknownFields unknown = UnknownFields::kRefuse);
std::expected<RuntimeProfile, FieldErrors> parse_runtime_profile(const nlohmann::json& document);

}  // namespace paceline::api
