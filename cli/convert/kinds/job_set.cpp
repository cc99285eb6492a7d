// SPDX-License-Identifier: Apache-2.0
#include "cli/convert/kinds/job_set.hpp"

#include <algorithm>
#include <array>

#include "cli/convert/kinds/guess.hpp"
#include "cli/convert/pod_template.hpp"

namespace paceline::cli {
namespace {

constexpr std::array<std::string_view, 7> kJobSetTrainers{
    "node", "trainer", "pytorch", "tensorflow", "worker", "jax", "mpi-worker"};

/// A role and the replicated job that it was, in case its name changed.
struct ReplicatedRole {
  std::string name;
  std::size_t role;
};

class JobSetReader {
 public:
  JobSetReader(NewJob& job, Notes& notes) : job_(job), notes_(notes) {}

  Status read(const Json* value, const std::string& path) {
    Fields spec(value, path, notes_);
    const Json* jobs = spec.list("replicatedJobs");
    for (std::size_t i = 0; jobs != nullptr && i < jobs->size(); ++i)
      read_job((*jobs)[i], spec.path("replicatedJobs") + "[" + std::to_string(i) + "]");
    if (job_.roles.empty())
      return fail(Code::kInvalid, Origin::kConfig,
                  spec.path("replicatedJobs") + ": names no jobs; write at least one");
    read_order(spec);
    read_success(spec);
    read_failure(spec);
    job_.suspend = spec.boolean("suspend").value_or(job_.suspend);
    if (value->contains("ttlSecondsAfterFinished"))
      job_.ttl = spec.seconds("ttlSecondsAfterFinished");
    // Pods of a TrainingJob have names in a headless Service of their own.
    spec.drop("coordinator", "the launcher tells each rank where rank 0 is (MASTER_ADDR)",
              "no action is needed");
    spec.drop("volumeClaimPolicies", "Paceline makes no claims",
              "make the PersistentVolumeClaims and name them in the template");
    spec.drop("managedBy", "the old controller does not know TrainingJobs",
              "write spec.managedBy if another controller than Paceline's reconciles the job");
    read_network(spec);
    spec.finish();
    return {};
  }

 private:
  void read_job(const Json& value, const std::string& path) {
    Fields fields(&value, path, notes_);
    const std::string name = fields.text("name").value_or("worker");
    const std::int64_t jobs = fields.integer("replicas").value_or(1);
    fields.skip("groupName");
    Fields job_template(fields.object("template"), fields.path("template"), notes_);
    // The metadata of Jobs that no longer exist.
    job_template.skip("metadata");
    Fields spec(job_template.object("spec"), job_template.path("spec"), notes_);
    const std::int64_t pods = spec.integer("parallelism").value_or(1);
    if (jobs * pods == 0) {
      notes_.drop(path, &value, "it has no pods", "no action is needed");
      return;
    }
    add_role(job_, name, fields.path("name"), notes_).replicas = jobs * pods;
    origins_.push_back({name, job_.roles.size() - 1});
    if (const auto completions = spec.integer("completions"); completions && *completions != pods) {
      const Json shown = *completions;
      notes_.drop(spec.path("completions"), &shown, "all pods run at once, and each once",
                  "set replicas of the role to the pods that train together");
    }
    read_job_spec(spec);
    carry_template(spec.take("template"), spec.path("template"), kJobSetTrainers, job_,
                   job_.roles.size() - 1, notes_);
    spec.finish();
    job_template.finish();
    read_dependence(fields);
    fields.finish();
  }

  void read_job_spec(Fields& spec) {
    // 0 is Paceline's way: a failed pod is the gang's failure.
    if (const auto limit = spec.integer("backoffLimit"); limit && *limit > 0) {
      const Json shown = *limit;
      notes_.drop(spec.path("backoffLimit"), &shown, "a failed rank restarts the whole gang",
                  "spec.failurePolicy.maxRestarts says how often");
    }
    if (const std::string time = spec.seconds("activeDeadlineSeconds"); !time.empty())
      job_.active_deadline = time;
    for (const char* key : {"completionMode", "manualSelector", "selector", "podReplacementPolicy"})
      spec.skip(key);
    spec.drop("podFailurePolicy", "every failure costs a restart of the gang",
              "spec.failurePolicy.maxRestarts says how many there may be");
    for (const char* key : {"backoffLimitPerIndex", "maxFailedIndexes", "successPolicy"})
      spec.drop(key, "the gang succeeds and fails as a whole", "see spec.successPolicy");
    for (const char* key : {"suspend", "ttlSecondsAfterFinished", "managedBy"})
      spec.drop(key, "it is a field of the whole job", "write it at spec of the TrainingJob");
  }

  void read_dependence(Fields& fields) {
    const Json* list = fields.list("dependsOn");
    for (std::size_t i = 0; list != nullptr && i < list->size(); ++i) {
      const std::string path = fields.path("dependsOn") + "[" + std::to_string(i) + "]";
      Fields dependence(&(*list)[i], path, notes_);
      const std::string name = dependence.text("name").value_or("");
      const std::string status = dependence.text("status").value_or("Ready");
      dependence.finish();
      const auto before = std::ranges::find(origins_, name, &ReplicatedRole::name);
      if (status != "Ready" || before == origins_.end() || i > 0) {
        notes_.drop(path, &(*list)[i],
                    status != "Ready" ? "all roles of a gang run together, none after another's end"
                    : i > 0           ? "a role starts after one other role at most"
                                      : "it names no role of this job",
                    status != "Ready" ? "run that step as a job of its own, or as an init container"
                                      : "write spec.roles[].startAfter");
        continue;
      }
      job_.roles.back().start_after = job_.roles[before->role].name;
    }
  }

  void read_order(Fields& spec) {
    Fields policy(spec.object("startupPolicy"), spec.path("startupPolicy"), notes_);
    if (policy.text("startupPolicyOrder").value_or("") == "InOrder") {
      for (std::size_t i = 1; i < job_.roles.size(); ++i) {
        if (job_.roles[i].start_after.empty()) job_.roles[i].start_after = job_.roles[i - 1].name;
      }
    }
    policy.finish();
  }

  void read_success(Fields& spec) {
    const Json* value = spec.object("successPolicy");
    Fields policy(value, spec.path("successPolicy"), notes_);
    const std::string how = policy.text("operator").value_or("All");
    const std::vector<std::string> targets = texts_of(policy.list("targetReplicatedJobs"));
    policy.finish();
    const bool all = targets.empty() || targets.size() == origins_.size();
    if (value == nullptr || (how == "All" && all)) return;
    const auto one = targets.size() == 1
                         ? std::ranges::find(origins_, targets.front(), &ReplicatedRole::name)
                         : origins_.end();
    if (one != origins_.end() && one->role == 0 && job_.roles[0].replicas == 1) {
      job_.rank_zero = true;
      return;
    }
    // The launcher of an MPI job ends it in any case.
    if (one != origins_.end() && targets.front() == "launcher") return;
    notes_.drop(spec.path("successPolicy"), value,
                "a job succeeds with all of its ranks, or with rank 0",
                "write spec.successPolicy: RankZero, or give roles that do not train a kind "
                "such as ParameterServer");
  }

  void read_failure(Fields& spec) {
    Fields policy(spec.object("failurePolicy"), spec.path("failurePolicy"), notes_);
    if (const auto restarts = policy.integer("maxRestarts")) job_.max_restarts = *restarts;
    policy.skip("restartStrategy");
    policy.drop("rules", "every failure costs a restart of the gang",
                "spec.failurePolicy.maxRestarts says how many there may be");
    policy.finish();
    // Without a failure policy, the first failure ends a JobSet.
    if (!job_.max_restarts) job_.max_restarts = 0;
  }

  void read_network(Fields& spec) {
    Fields network(spec.object("network"), spec.path("network"), notes_);
    network.skip("enableDNSHostnames");
    network.skip("publishNotReadyAddresses");
    network.drop("subdomain", "the subdomain is the job's headless Service",
                 "change addresses in commands, or use MASTER_ADDR");
    network.finish();
  }

  NewJob& job_;
  Notes& notes_;
  std::vector<ReplicatedRole> origins_;
};

}  // namespace

Status read_job_set_spec(const Json* spec, const std::string& path, NewJob& job, Notes& notes) {
  return JobSetReader(job, notes).read(spec, path);
}

Result<NewJob> convert_job_set(const Json& document, Notes& notes) {
  NewJob job;
  Fields fields(&document, "", notes);
  read_envelope(fields, job);
  constexpr const char* kExclusive = "alpha.jobset.sigs.k8s.io/exclusive-topology";
  if (const Json* key = member(&job.annotations, kExclusive)) {
    notes.drop(std::string("metadata.annotations.") + kExclusive, key,
               "Paceline places a gang close together by what it knows of the network",
               "spec.scheduling.podsPerNode: 1 puts each pod on a node of its own");
    job.annotations.erase(kExclusive);
  }
  const Json* spec = fields.object("spec");
  if (const Status read = read_job_set_spec(spec, "spec", job, notes); !read)
    return std::unexpected(read.error());
  guess_roles(job, document, "spec.replicatedJobs", notes);
  fields.finish();
  return job;
}

}  // namespace paceline::cli
