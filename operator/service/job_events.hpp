// SPDX-License-Identifier: Apache-2.0
// The Events that tell people about a job, as `kubectl describe trainingjob` shows them. Pure.
#pragma once

#include "common/kube/control/event_recorder.hpp"
#include "operator/apply/controller.hpp"

namespace paceline {

/// The event's reason is the cause, such as RankFailed, and its action is what followed, such as
/// Restarting: repetitions with one cause become a series, and another cause is told.
kube::EventNote event_of(const api::TrainingJob& job, const api::JobStatus& status,
                         apply::News news);

}  // namespace paceline
