// SPDX-License-Identifier: Apache-2.0
#include "operator/apply/actuator.hpp"

#include <algorithm>
#include <mutex>

#include "common/contract/host_ports.hpp"
#include "common/kube/api/kueue.hpp"
#include "common/kube/api/object_version.hpp"
#include "operator/api/template/containers.hpp"
#include "operator/apply/facts/owned.hpp"
#include "operator/observe/views.hpp"
#include "operator/render/names.hpp"
#include "operator/status/phase.hpp"

namespace paceline::apply {
namespace {

using nlohmann::json;

Done not_created(const Error& error) {
  Done done;
  if (final_refusal(error)) {
    done.refusal = plan::Waiting{"CreateRefused", error.message};
  } else {
    done.error = error;
  }
  return done;
}

/// The object may be there already: the API server compares a quota before it looks for the name.
bool may_exist(const Error& error) {
  return error.code == Code::kAlreadyExists ||
         (error.code == Code::kForbidden && error.message.contains("exceeded quota"));
}

bool leads_to_host_network(const json& service) {
  const json ports = service.value("/spec/ports"_json_pointer, json::array());
  return std::ranges::any_of(ports, [](const json& port) {
    return port.value("port", 0) == contract::kHostRendezvousServicePort;
  });
}

/// Nothing changes a Service that exists.
Done outdated_service(const api::TrainingJob& job) {
  const std::string name = render::rendezvous_service_name(job);
  Done done;
  done.refusal = plan::Waiting{"ServiceOutdated",
                               "Service " + name + " is of an earlier operator, which knew " +
                                   "no hostNetwork: kubectl delete service " + name};
  return done;
}

}  // namespace

Actuator::Actuator(kube::Api& api, Executor& executor, Settings settings, TokenSource tokens)
    : api_(api), executor_(executor), settings_(std::move(settings)), tokens_(std::move(tokens)) {}

std::expected<std::string, Done> Actuator::make(const kube::Resource& resource,
                                                const api::TrainingJob& job, const json& object) {
  const std::string name = object["metadata"]["name"];
  auto created = api_.create(resource, job.metadata.name_space, object.dump());
  if (created) return *created;
  if (!may_exist(created.error())) return std::unexpected(not_created(created.error()));
  Done failure;
  auto found = api_.get(resource, job.metadata.name_space, name);
  if (!found && created.error().code != Code::kAlreadyExists)
    return std::unexpected(not_created(created.error()));
  if (!found) {
    failure.error = found.error();
    return std::unexpected(failure);
  }
  if (owner_of(*found) != job.metadata.uid) {
    failure.refusal = plan::Waiting{"NameTaken", not_of_this_job(resource.kind, name)};
    return std::unexpected(failure);
  }
  return *found;
}

std::expected<std::string, Done> Actuator::keep(const kube::Resource& resource,
                                                const api::TrainingJob& job, const json& object) {
  auto found = api_.get(resource, job.metadata.name_space, object["metadata"]["name"]);
  if (found && owner_of(*found) == job.metadata.uid) return *found;
  return make(resource, job, object);
}

std::optional<Done> Actuator::make_secret(const api::TrainingJob& job, const std::string& token) {
  const auto created = api_.create(kube::kSecrets, job.metadata.name_space,
                                   render::render_secret(job, token).dump());
  // One of this name is the job's, and has the same token.
  if (created || created.error().code == Code::kAlreadyExists) return std::nullopt;
  return not_created(created.error());
}

std::expected<Surroundings, Done> Actuator::surround(const api::TrainingJob& job,
                                                     const std::optional<Surroundings>& known) {
  const auto token = token_of(job);
  if (!token) return std::unexpected(not_created(token.error()));
  std::expected<std::string, Done> service;
  std::expected<std::string, Done> headless;
  std::optional<Done> no_secret;
  executor_.run(
      {[&] {
         const std::string address = known ? known->rendezvous_ip : "";
         const json wanted = render::render_rendezvous_service(job, address);
         service = known ? keep(kube::kServices, job, wanted) : make(kube::kServices, job, wanted);
         if (known && !service && service.error().refusal)
           service = make(kube::kServices, job, render::render_rendezvous_service(job));
       },
       [&] {
         const json wanted = render::render_headless_service(job);
         headless = known ? keep(kube::kServices, job, wanted) : make(kube::kServices, job, wanted);
       },
       [&] { no_secret = make_secret(job, *token); }});
  if (no_secret) return std::unexpected(*no_secret);
  for (const auto* result : {&service, &headless}) {
    if (!*result) return std::unexpected(result->error());
  }
  const json found = json::parse(*service, nullptr, false);
  if (api::uses_host_network(job.spec.roles.front()) && !leads_to_host_network(found))
    return std::unexpected(outdated_service(job));
  const json address = found.value("/spec/clusterIP"_json_pointer, json());
  if (!address.is_string() || address == "" || address == "None") {
    Done failure;
    failure.error =
        Error{Code::kUnavailable, Origin::kKube,
              "Service " + render::rendezvous_service_name(job) + " has no ClusterIP yet", true};
    return std::unexpected(failure);
  }
  return Surroundings{address.get<std::string>()};
}

render::PodInputs Actuator::inputs(const plan::Plan& plan, const plan::CreatePod& create,
                                   const Surroundings& surroundings,
                                   const std::string& priority_class, int role) const {
  // A gang keeps the runtime that it started with, also after an upgrade of the operator.
  const std::string& placed = plan.status.runtime_image;
  const std::string& image = placed.empty() ? settings_.runtime_image : placed;
  const api::Condition* bound = plan.status.find(status::kPlaced);
  return {create.incarnation, plan.status.attempt, plan.status.restarts, create.node,
          surroundings.rendezvous_ip, image, settings_.pull_policy, priority_class,
          settings_.startup_timeout, create.gated, plan.status.acceleration, plan.status.slots,
          plan.status.goodput.is_null() ? "" : plan.status.goodput.dump(),
          plan.grants.empty() ? api::PodGrant{} : plan.grants[static_cast<std::size_t>(role)],
          // Of a gang that waits for another scheduler, its launchers tell when it began.
          bound != nullptr && plan.status.pod_group.empty() ? std::optional(bound->since)
                                                            : std::nullopt,
          create.port_base};
}

std::expected<std::vector<plan::Admitted>, Done> Actuator::dry_run(
    const api::TrainingJob& job, const plan::Plan& plan, const Surroundings& surroundings,
    const std::string& priority_class) {
  Collector collector;
  std::vector<Executor::Task> tasks;
  std::vector<plan::Admitted> admitted(job.spec.roles.size());
  for (const api::Replica& replica : api::replicas_of(job.spec)) {
    if (replica.index != 0) continue;
    tasks.emplace_back([&, replica] {
      render::PodInputs inputs;
      inputs.rendezvous_ip = surroundings.rendezvous_ip;
      inputs.runtime_image = settings_.runtime_image;
      inputs.pull_policy = settings_.pull_policy;
      inputs.priority_class = priority_class;
      inputs.acceleration = plan.status.acceleration;
      json pod = render::render_pod(job, replica, inputs);
      // the real pod may exist already
      pod["metadata"]["name"] = render::host_name(job, replica) + "-check";
      kube::WriteOptions options;
      options.dry_run = true;
      const auto answer = api_.create(kube::kPods, job.metadata.name_space, pod.dump(), options);
      if (!answer) {
        const bool full = answer.error().message.find("exceeded quota") != std::string::npos;
        collector.failed(answer.error(), full ? "QuotaExceeded" : "PodRefused");
      } else if (auto needs = plan::read_admitted(*answer); needs) {
        admitted[static_cast<std::size_t>(replica.role)] = std::move(*needs);
      } else {
        collector.failed(needs.error(), "PodRefused");
      }
    });
  }
  executor_.run(std::move(tasks));
  if (Done done = collector.take(); done.refusal || done.error) return std::unexpected(done);
  return admitted;
}

Done Actuator::create(const api::TrainingJob& job, const plan::Plan& plan,
                      const Surroundings& surroundings, const std::string& priority_class) {
  Collector collector;
  const std::vector<api::Replica> replicas = api::replicas_of(job.spec);
  const render::GangScheduler* scheduler =
      plan.status.pod_group.empty() ? nullptr : render::gang_scheduler(api::backend_of(job.spec));
  std::vector<Executor::Task> tasks;
  for (const plan::CreatePod& create : plan.creates) {
    tasks.emplace_back([&] {
      // one create was refused: do not create more pods that must be removed again
      if (collector.refusal()) return;
      const api::Replica& replica = replicas[static_cast<std::size_t>(create.node_rank)];
      json pod = render::render_pod(
          job, replica, inputs(plan, create, surroundings, priority_class, replica.role));
      if (scheduler != nullptr)
        render::join_pod_group(pod, plan.status.pod_group, *scheduler, plan.avoid_nodes);
      auto answer = api_.create(kube::kPods, job.metadata.name_space, pod.dump());
      if (answer) {
        collector.wrote(kube::version_of(*answer), &Done::created);
        return;
      }
      if (!may_exist(answer.error())) {
        collector.failed(answer.error(), "CreateRefused");
        return;
      }
      const std::string name = pod["metadata"]["name"];
      const auto found = api_.get(kube::kPods, job.metadata.name_space, name);
      if (!found && answer.error().code != Code::kAlreadyExists) {
        collector.failed(answer.error(), "CreateRefused");
      } else if (!found) {
        // The pod has gone meanwhile, or another write conflicted: try again later.
        collector.failed(Error{Code::kConflict, Origin::kKube, found.error().message, true},
                         "CreateRefused");
      } else if (owner_of(*found) != job.metadata.uid) {
        collector.refused("NameTaken", not_of_this_job("Pod", name));
      } else {
        collector.wrote(kube::version_of(*found), &Done::created);
      }
    });
  }
  executor_.run(std::move(tasks));
  return collector.take();
}

Done Actuator::ungate(const api::TrainingJob& job, const std::vector<plan::UngatePod>& pods) {
  Collector collector;
  std::vector<Executor::Task> tasks;
  for (const plan::UngatePod& pod : pods) {
    tasks.emplace_back([&] {
      json gates = json::array();
      for (const std::string& gate : pod.other_gates) gates.push_back({{"name", gate}});
      json patch = render::ungate_patch(gates);
      patch["metadata"]["uid"] = pod.uid;
      // The list is written whole: another controller may have opened its gate meanwhile.
      if (!gates.empty()) patch["metadata"]["resourceVersion"] = std::to_string(pod.version);
      const auto answer = api_.patch(kube::kPods, job.metadata.name_space, pod.name, patch.dump());
      if (answer) {
        collector.wrote(kube::version_of(*answer), &Done::ungated);
      } else if (answer.error().code != Code::kNotFound && answer.error().code != Code::kConflict) {
        collector.failed(answer.error(), "UngateRefused");
      }
    });
  }
  executor_.run(std::move(tasks));
  return collector.take();
}

Done Actuator::remove(const api::TrainingJob& job, const std::vector<plan::DeletePod>& pods) {
  Collector collector;
  std::vector<Executor::Task> tasks;
  for (const plan::DeletePod& pod : pods) {
    tasks.emplace_back([&] {
      kube::DeleteOptions options;
      options.uid = pod.uid;
      if (pod.force) options.grace_period_seconds = 0;
      if (pod.version > 0) options.resource_version = std::to_string(pod.version);
      const auto answer = api_.remove(kube::kPods, job.metadata.name_space, pod.name, options);
      if (answer) {
        collector.wrote(kube::version_of(*answer), &Done::deleted);
      } else if (answer.error().code != Code::kNotFound && answer.error().code != Code::kConflict) {
        Error error = answer.error();
        // a refused delete is retried, not given up
        if (final_refusal(error)) error.code = Code::kInternal;
        collector.failed(error, "");
      }
    });
  }
  executor_.run(std::move(tasks));
  return collector.take();
}

Done Actuator::remove_job(const api::TrainingJob& job) {
  Done done;
  kube::DeleteOptions options;
  options.uid = job.metadata.uid;
  const auto answer =
      api_.remove(kube::kTrainingJobs, job.metadata.name_space, job.metadata.name, options);
  if (!answer && answer.error().code != Code::kNotFound && answer.error().code != Code::kConflict)
    done.error = answer.error();
  return done;
}

std::expected<render::WorkloadPriority, Done> Actuator::workload_priority(
    const api::TrainingJob& job, const std::string& pod_priority, int value) {
  const std::string& name = job.metadata.kueue_priority;
  if (name.empty()) return render::WorkloadPriority{{pod_priority, false}, value};
  const auto found = api_.get(kube::kWorkloadPriorities, "", name);
  if (!found && found.error().code == Code::kNotFound) {
    Done done;
    done.refusal =
        plan::Waiting{"PriorityClassNotFound", "WorkloadPriorityClass " + name +
                                                   " does not exist; create it, or change " +
                                                   "the label " + api::kKueuePriorityLabel};
    return std::unexpected(done);
  }
  if (!found) return std::unexpected(not_created(found.error()));
  const json value_of = json::parse(*found, nullptr, false).value("value", json());
  return render::WorkloadPriority{{name, true},
                                  value_of.is_number_integer() ? value_of.get<int>() : 0};
}

Done Actuator::submit(const api::TrainingJob& job, const std::string& pod_priority, int value,
                      const api::LevelAsk& level) {
  const auto priority = workload_priority(job, pod_priority, value);
  if (!priority) return priority.error();
  const json workload = render::render_workload(job, *priority, pod_priority, level);
  if (auto made = make(kube::kKueueWorkloads, job, workload); !made) return made.error();
  return {};
}

Done Actuator::revise(const api::TrainingJob& job, const observe::WorkloadView& workload,
                      const std::string& pod_priority, int value, const api::LevelAsk& level) {
  const auto priority = workload_priority(job, pod_priority, value);
  if (!priority) return priority.error();
  json spec = render::render_workload(job, *priority, pod_priority, level)["spec"];
  if (!spec.contains("priorityClassRef")) spec["priorityClassRef"] = nullptr;
  // Kueue takes no other ones once it has reserved quota.
  for (const char* fixed : {"podSets", "queueName"}) {
    if (workload.quota_reserved) spec.erase(fixed);
  }
  const json patch = {{"metadata",
                       {{"uid", workload.meta.uid},
                        {"resourceVersion", std::to_string(workload.meta.resource_version)}}},
                      {"spec", std::move(spec)}};
  const auto written =
      api_.patch(kube::kKueueWorkloads, workload.meta.ns, workload.meta.name, patch.dump());
  const bool stale = !written && (written.error().code == Code::kConflict ||
                                  written.error().code == Code::kNotFound);
  return written || stale ? Done{} : not_created(written.error());
}

Gone Actuator::gone(const api::TrainingJob& job, const std::vector<std::string>& pod_names) {
  std::mutex mutex;
  Gone gone;
  std::vector<Executor::Task> tasks;
  for (const std::string& name : pod_names) {
    tasks.emplace_back([&] {
      const auto found = api_.get(kube::kPods, job.metadata.name_space, name);
      const std::lock_guard lock(mutex);
      if (found ? owner_of(*found) != job.metadata.uid : found.error().code == Code::kNotFound) {
        gone.pods.insert(name);
      } else if (!found) {
        gone.error = found.error();
      }
    });
  }
  executor_.run(std::move(tasks));
  return gone;
}

}  // namespace paceline::apply
