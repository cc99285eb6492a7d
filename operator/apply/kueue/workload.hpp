// SPDX-License-Identifier: Apache-2.0
// What the operator reads of Kueue's objects, and what it writes to a job's Workload. Every write
// may be repeated, and carries the version that it was planned on.
#pragma once

#include "common/base/clock.hpp"
#include "common/kube/api/api.hpp"
#include "operator/apply/actuator.hpp"
#include "operator/apply/stores.hpp"
#include "operator/plan/job/plan.hpp"

namespace paceline::apply {

/// A job is Kueue's if it names a LocalQueue of its namespace. With Kueue's label it also waits for
/// a LocalQueue that does not exist yet, in a cluster that has LocalQueues.
plan::KueueSeen look_at_kueue(const Stores& stores, const observe::JobView& job);

/// Asks the API server whether the Workload is still admitted: a cache may lag behind an eviction.
Done confirm_admission(kube::Api& api, const observe::WorkloadView& workload);

/// Carries out the plan's step on the Workload that it saw: every one but kNone, kCreate and
/// kRevise. `spec`: of the job.
Status write_workload(kube::Api& api, const plan::Plan& plan, const api::Spec& spec, WallTime now);

}  // namespace paceline::apply
