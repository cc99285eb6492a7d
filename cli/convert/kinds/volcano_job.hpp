// SPDX-License-Identifier: Apache-2.0
// Job of Volcano (batch.volcano.sh/v1alpha1). Pure.
#pragma once

#include "cli/convert/job.hpp"
#include "common/base/error.hpp"

namespace paceline::cli {

Result<NewJob> convert_volcano_job(const Json& document, Notes& notes);

}  // namespace paceline::cli
