// SPDX-License-Identifier: Apache-2.0
// Fingerprints of specs, also those that earlier operators recorded: an upgrade stops no gang.
// Pure; thread-safe.
#pragma once

#include <string>

#include "operator/api/training_job.hpp"

namespace paceline::api {

/// A letter for its form and 15 hexadecimal digits. They differ if the gangs of two specs differ:
/// roles with their templates, framework, network, acceleration, and where pods may be. The size of
/// an elastic role is left out: a resize is no new spec. What has a default and keeps it is left
/// out: a new default must not stop running gangs. So is what may change while the job runs.
std::string fingerprint(const Spec& spec);

/// Whether the recorded fingerprint was given to this spec by an operator before the present form.
/// It does not say what the job asks of acceleration, nor where its pods may be.
bool is_former_fingerprint(const std::string& recorded, const Spec& spec);

/// The same of a Workload's, which says the size of an elastic job.
bool is_former_sized_fingerprint(const std::string& recorded, const Spec& spec);

}  // namespace paceline::api
