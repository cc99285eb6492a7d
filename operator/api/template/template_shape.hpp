// SPDX-License-Identifier: Apache-2.0
// The types of the fields that Paceline reads or changes in a pod template. The CRD keeps unknown
// fields of a template, so any field may hold any type. A wrong type is refused here by name, and
// later code may rely on the types. The API server checks all other fields.
//
// Pure. Nothing here throws.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "operator/api/field_error.hpp"

namespace paceline::api {

/// Appends an error for each field of a wrong type. `path` names `pod_spec` in the errors.
void check_template_shape(const nlohmann::json& pod_spec, const std::string& path,
                          FieldErrors& errors);

}  // namespace paceline::api
