// SPDX-License-Identifier: Apache-2.0
// Fingerprints that are on record, also those of earlier operators: an upgrade stops no gang. Pure;
// thread-safe.
#pragma once

#include <string>

#include "operator/api/training_job.hpp"

namespace paceline::api {

/// Whether the recorded fingerprint is of this spec. An earlier operator's does not say what the
/// job asks of acceleration, nor where its pods may be.
bool is_fingerprint_of(const std::string& recorded, const Spec& spec);

}  // namespace paceline::api
