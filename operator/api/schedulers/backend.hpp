// SPDX-License-Identifier: Apache-2.0
// Who chooses the nodes of a job's pods: Paceline, or a scheduler of others that binds whole gangs.
// Pure.
#pragma once

#include <string_view>

#include "operator/api/field_error.hpp"
#include "operator/api/training_job.hpp"

namespace paceline::api {

/// The scheduler as people know it: "Volcano", "kube-scheduler".
std::string_view chooser_of(Backend backend);

/// A placement that Paceline made stays its own: Auto then means Native, whatever the pod templates
/// name. `by_paceline`: there is such a placement.
void backend_as_placed(Spec& spec, bool by_paceline);

/// With another scheduler: appends an error for each field that only Paceline's placement obeys,
/// for what the scheduler needs and the spec lacks, and for pod templates that name another one.
void check_backend(const Spec& spec, FieldErrors& errors);

}  // namespace paceline::api
