// SPDX-License-Identifier: Apache-2.0
// JobSet (jobset.x-k8s.io/v1alpha2). A TrainJob's runtime holds one, too. Pure.
#pragma once

#include "cli/convert/job.hpp"
#include "common/base/error.hpp"

namespace paceline::cli {

Result<NewJob> convert_job_set(const Json& document, Notes& notes);

/// Reads the spec of a JobSet; an error if it has no jobs.
Status read_job_set_spec(const Json* spec, const std::string& path, NewJob& job, Notes& notes);

}  // namespace paceline::cli
