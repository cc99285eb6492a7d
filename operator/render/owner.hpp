// SPDX-License-Identifier: Apache-2.0
// The reference that makes a job the owner of an object: garbage collection deletes the object with
// the job. Pure.
#pragma once

#include <nlohmann/json.hpp>

#include "common/contract/labels.hpp"
#include "operator/api/training_job.hpp"

namespace paceline::render {

inline nlohmann::json owner_reference(const api::TrainingJob& job) {
  return {{"apiVersion", contract::kApiVersion},
          {"kind", "TrainingJob"},
          {"name", job.metadata.name},
          {"uid", job.metadata.uid},
          {"controller", true},
          {"blockOwnerDeletion", false}};
}

}  // namespace paceline::render
