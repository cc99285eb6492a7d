// SPDX-License-Identifier: Apache-2.0
// TrainJob of Kubeflow Trainer (trainer.kubeflow.org/v1alpha1) with the runtime that it names,
// which must be in the same file. Pure.
#pragma once

#include <vector>

#include "cli/convert/job.hpp"
#include "common/base/error.hpp"

namespace paceline::cli {

/// `runtimes`: the TrainingRuntimes and ClusterTrainingRuntimes of the file.
Result<NewJob> convert_train_job(const Json& document, const std::vector<const Json*>& runtimes,
                                 Notes& notes);

}  // namespace paceline::cli
