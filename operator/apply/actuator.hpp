// SPDX-License-Identifier: Apache-2.0
// Actuator: carries out the actions of a Plan through the API. Every call may be repeated: names
// are deterministic, deletes and patches carry the UID, and an object that exists already is
// checked to belong to the job.
//
// Api and Executor must outlive it. Thread-safe. If the server refuses an action for good (quota,
// policy, an unknown field), the result is a refusal in the server's own words. Any other failure
// is an Error to try again.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/kube/api/api.hpp"
#include "operator/apply/executor.hpp"
#include "operator/apply/node_marks.hpp"
#include "operator/apply/results.hpp"
#include "operator/plan/job/plan.hpp"
#include "operator/render/pod.hpp"
#include "operator/render/pod_group.hpp"
#include "operator/render/workload.hpp"

namespace paceline::apply {

struct Settings {
  MarkSettings marks;
  std::string runtime_image = "paceline/runtime:dev";
  std::string pull_policy = "IfNotPresent";
  std::string startup_timeout = "10m";
  std::string agent_namespace = "paceline-agents";  // namespace of the agents' Leases
  std::string default_priority_class;  // for jobs that name none; ignored if it does not exist
  api::Provision provision = api::Provision::kAuto;  // for jobs whose own is Auto
};

/// What the pods of a job need and what is made once.
struct Surroundings {
  std::string rendezvous_ip;
};

struct Gone {
  std::set<std::string> pods;
  std::optional<Error> error;  // one of those that came back; the others may be gone, too
};

/// The token of the job with this UID; an Error if it is not known yet.
using TokenSource = std::function<Result<std::string>(const std::string& job_uid)>;

class Actuator {
 public:
  Actuator(kube::Api& api, Executor& executor, Settings settings, TokenSource tokens);

  /// Creates the Services and the Secret. Existing Services are checked to belong to the job. With
  /// `known`, which the job's pods were told, a Service that somebody deleted gets the same address
  /// again; if it is taken meanwhile, another one.
  std::expected<Surroundings, Done> surround(const api::TrainingJob& job,
                                             const std::optional<Surroundings>& known);
  /// Creates one pod of each role with dryRun=All, and returns what the admitted pods need, by
  /// role. The refusal's reason is QuotaExceeded if only a quota refused a pod, else PodRefused.
  std::expected<std::vector<plan::Admitted>, Done> dry_run(const api::TrainingJob& job,
                                                           const plan::Plan& plan,
                                                           const Surroundings& surroundings,
                                                           const std::string& priority_class);
  Done create(const api::TrainingJob& job, const plan::Plan& plan, const Surroundings& surroundings,
              const std::string& priority_class);
  /// Creates these placeholders.
  Done hold(const api::TrainingJob& job, const std::vector<plan::HoldRoom>& rooms,
            const std::vector<plan::Need>& needs);
  nlohmann::json placeholder(const api::TrainingJob& job, int rank, const plan::Need& need) const;
  Done ungate(const api::TrainingJob& job, const std::vector<plan::UngatePod>& pods);
  Done remove(const api::TrainingJob& job, const std::vector<plan::DeletePod>& pods);
  Done remove_job(const api::TrainingJob& job);
  /// Creates the job's Workload of Kueue. `pod_priority`: the PriorityClass of the pods, and its
  /// value, which Kueue uses unless the job names a WorkloadPriorityClass.
  Done submit(const api::TrainingJob& job, const std::string& pod_priority, int value,
              const api::LevelAsk& level);
  /// Gives that Workload the job's priority and level. Does nothing if it has changed meanwhile.
  Done revise(const api::TrainingJob& job, const observe::WorkloadView& workload,
              const std::string& pod_priority, int value, const api::LevelAsk& level);
  /// Creates the PodGroup of a job that another scheduler binds, unless the job has it. A refusal's
  /// reason is SchedulerNotInstalled if its API is not served. `only_try`: with dryRun=All.
  Done group(const api::TrainingJob& job, const std::string& name,
             const render::PodGroupInputs& inputs, bool only_try);
  /// Deletes the job's PodGroup, whatever scheduler it was made for. A refusal if that is
  /// forbidden.
  Done ungroup(const api::TrainingJob& job, const std::string& name);
  /// Which of these pods of the job the API server no longer has.
  Gone gone(const api::TrainingJob& job, const std::vector<std::string>& pod_names);

  Result<std::string> token_of(const api::TrainingJob& job) { return tokens_(job.metadata.uid); }

  const Settings& settings() const { return settings_; }

 private:
  std::expected<std::string, Done> make(const kube::Resource& resource, const api::TrainingJob& job,
                                        const nlohmann::json& object);
  /// The same, but asks first: reading is cheaper than a create that is refused.
  std::expected<std::string, Done> keep(const kube::Resource& resource, const api::TrainingJob& job,
                                        const nlohmann::json& object);
  std::optional<Done> make_secret(const api::TrainingJob& job, const std::string& token);
  std::expected<render::WorkloadPriority, Done> workload_priority(const api::TrainingJob& job,
                                                                  const std::string& pod_priority,
                                                                  int value);
  render::PodInputs inputs(const plan::Plan& plan, const plan::CreatePod& create,
                           const Surroundings& surroundings, const std::string& priority_class,
                           int role) const;

  kube::Api& api_;
  Executor& executor_;
  const Settings settings_;
  const TokenSource tokens_;
};

}  // namespace paceline::apply
