// SPDX-License-Identifier: Apache-2.0
// Fingerprints that are on record, also those of earlier operators: an upgrade stops no gang. Pure;
// thread-safe.
#pragma once

#include <string>

#include "operator/api/training_job.hpp"

namespace paceline::api {

/// Whether the recorded fingerprint was given to this spec by an operator before the present form.
/// It does not say what the job asks of acceleration, nor where its pods may be.
bool is_former_fingerprint(const std::string& recorded, const Spec& spec);

/// The same of a Workload's, which says the size of an elastic job.
bool is_former_sized_fingerprint(const std::string& recorded, const Spec& spec);

}  // namespace paceline::api
