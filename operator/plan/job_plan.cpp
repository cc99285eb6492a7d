// SPDX-License-Identifier: Apache-2.0
#include "operator/plan/job_plan.hpp"

#include <algorithm>

#include "operator/plan/policies/policies.hpp"

namespace paceline::plan {
namespace {

/// True if the recorded incarnations are those of the spec's replicas.
bool knows_replicas(const api::JobStatus& status, const api::Spec& spec) {
  return std::equal(status.roles.begin(), status.roles.end(), spec.roles.begin(), spec.roles.end(),
                    [](const api::RoleStatus& known, const api::Role& role) {
                      return known.incarnations.size() == static_cast<std::size_t>(role.replicas);
                    });
}

/// False if the status was edited, or belongs to another spec: it then names replicas that do not
/// exist.
bool describes(const api::JobStatus& status, const api::Spec& spec) {
  return status.nodes().size() == static_cast<std::size_t>(api::replica_count(spec)) &&
         knows_replicas(status, spec);
}

/// A gang that has succeeded ends the job before anything else is decided: it is neither suspended
/// nor preempted nor failed, so it never runs again.
bool success_comes_first(Planner& planner) {
  if (!knows_replicas(planner.status(), planner.spec)) return false;
  const std::vector<ReplicaState> replicas = survey(planner);
  return gang_succeeded(planner, replicas) && job_verdict(planner, replicas);
}

}  // namespace

Plan plan_job(const Observed& observed) {
  Planner planner(observed);
  const api::TrainingJob& job = observed.job.job;
  const auto done = [&] {
    if (!planner.out.queued) planner.clear(status::kCouldRun, "NotQueued");
    after_the_end(planner);
    tend_workload(planner);
    tend_pod_group(planner);
    provision(planner);
    status::compute_phase(planner.status());
    return std::move(planner.out);
  };
  if (job.metadata.deleting) {
    // garbage collection deletes the pods; write nothing to an object that is being deleted
    planner.out.status = observed.job.status;
    return std::move(planner.out);
  }
  if (observed.job.of_other_manager()) {
    planner.out.status = observed.job.status;
    return std::move(planner.out);
  }
  if (planner.status().finished()) return done();
  if (!observed.job.errors.empty()) {
    planner.unplace("InvalidSpec", api::to_error(observed.job.errors).message, false);
    planner.out.queued = false;
    return done();
  }
  note_elastic(planner);
  if (spec_changed(planner)) {
    planner.unplace("SpecChanged",
                    "the spec was changed while the job was placed; the job starts again", false);
  } else if (success_comes_first(planner)) {
    return done();
  }
  if (suspension(planner) || deadline(planner)) return done();
  if (planner.status().placed() && !describes(planner.status(), planner.spec)) {
    planner.unplace("StatusDamaged",
                    "the placement on record is not one of this spec; the job starts again", true);
    return done();
  }
  if (!planner.status().placed()) {
    queue_up(planner);
    if (!planner.status().placed()) return done();
    if (!describes(planner.status(), planner.spec)) {
      // It has fewer replicas than the spec in hand. The next plan reads them from the status.
      planner.wake_after({});
      return done();
    }
  } else if (planner.status().placed_spec.empty()) {
    planner.status().placed_spec = observed.job.fingerprint;
  }
  if (!observed.job.status.placed()) {
    // The placement was taken just now: older findings do not apply to it.
  } else if (quota_lost(planner)) {
    return done();
  } else if (!observed.memory.preempted_by.empty()) {
    const std::string what =
        "made room for job " + observed.memory.preempted_by + " of higher priority";
    if (disruptions_exhausted(planner, what)) return done();
    ++planner.status().disruptions;
    planner.unplace("Preempted", what, false);
    return done();
  } else if (observed.memory.refusal && !status::replaces_pods(planner.status())) {
    planner.unplace(observed.memory.refusal->reason, observed.memory.refusal->message, true);
    return done();
  }
  std::vector<ReplicaState> replicas = survey(planner);
  if (stops_for_resize(planner, replicas) || create_gang(planner, replicas) ||
      preflight(planner, replicas) || mixed_releases(planner, replicas) ||
      job_verdict(planner, replicas))
    return done();
  report_if_it_trains(planner, replicas);
  if (create_replacements(planner, replicas) || lost_nodes(planner, replicas) ||
      bind_gang(planner, replicas) || replace_lost(planner, replicas) ||
      resize(planner, replicas)) {
    return done();
  }
  report_progress(planner, replicas);
  return done();
}

}  // namespace paceline::plan
