// SPDX-License-Identifier: Apache-2.0
// Carries a pod template over to a role. What a TrainingJob refuses, or the launcher sets itself,
// is left out with a note; everything else stays as it was. Pure.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "cli/convert/job.hpp"

namespace paceline::cli {

/// `trainers`: names of the container that trains, the likeliest first. `role`: an index into
/// job.roles. A priority class of the template moves to the job.
void carry_template(const Json* source, const std::string& path,
                    std::span<const std::string_view> trainers, NewJob& job, std::size_t role,
                    Notes& notes);

/// The container that trains, in a template that was carried over; null if there is none.
Json* trainer_in(Json& pod_template);

}  // namespace paceline::cli
