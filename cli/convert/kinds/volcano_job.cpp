// SPDX-License-Identifier: Apache-2.0
#include "cli/convert/kinds/volcano_job.hpp"

#include <algorithm>
#include <array>

#include "cli/convert/kinds/guess.hpp"
#include "cli/convert/pod_template.hpp"

namespace paceline::cli {
namespace {

constexpr std::array<std::string_view, 4> kTaskTrainers{"trainer", "pytorch", "tensorflow",
                                                        "worker"};

void read_depends_on(Fields& task, NewJob& job) {
  Fields depends(task.object("dependsOn"), task.path("dependsOn"), task.notes());
  const Json* names = depends.list("name");
  depends.skip("iteration");
  depends.finish();
  if (names == nullptr || names->empty()) return;
  // The names are checked once all tasks are read.
  job.roles.back().start_after = text_of(&names->front());
  for (std::size_t i = 1; i < names->size(); ++i)
    task.notes().drop(depends.path("name") + "[" + std::to_string(i) + "]", &(*names)[i],
                      "a role starts after one other role at most",
                      "write spec.roles[].startAfter");
}

void read_task(const Json& value, const std::string& path, NewJob& job, Notes& notes) {
  Fields task(&value, path, notes);
  const std::string name = task.text("name").value_or("worker");
  const std::int64_t replicas = task.integer("replicas").value_or(1);
  if (replicas == 0) {
    notes.drop(path, &value, "it has no pods", "no action is needed");
    return;
  }
  add_role(job, name, task.path("name"), notes).replicas = replicas;
  carry_template(task.take("template"), task.path("template"), kTaskTrainers, job,
                 job.roles.size() - 1, notes);
  read_depends_on(task, job);
  if (const auto least = task.integer("minAvailable"); least && *least < replicas) {
    const Json shown = *least;
    notes.drop(task.path("minAvailable"), &shown, "a gang starts whole or not at all",
               "lower spec.roles[].replicas if fewer pods are enough");
  }
  // A job ends with its ranks in any case.
  const Json* policies = task.list("policies");
  for (std::size_t i = 0; policies != nullptr && i < policies->size(); ++i) {
    const Json& policy = (*policies)[i];
    const bool ends = text_of(member(&policy, "event")) == "TaskCompleted" &&
                      text_of(member(&policy, "action")) == "CompleteJob";
    if (!ends)
      notes.drop(task.path("policies") + "[" + std::to_string(i) + "]", &policy,
                 "a failed rank restarts the whole gang",
                 "spec.failurePolicy.maxRestarts says how often");
  }
  task.drop("topologyPolicy", "the launcher binds ranks by what it knows of the node",
            "no action is needed");
  task.drop("maxRetry", "a failed rank restarts the whole gang",
            "spec.failurePolicy.maxRestarts says how often");
  task.drop("partitionPolicy", "Paceline places the gang by what it knows of the network",
            "no action is needed");
  task.finish();
}

/// spec.volumes: claims that every container mounts.
void read_volumes(Fields& spec, NewJob& job) {
  const Json* volumes = spec.list("volumes");
  for (std::size_t i = 0; volumes != nullptr && i < volumes->size(); ++i) {
    const std::string path = spec.path("volumes") + "[" + std::to_string(i) + "]";
    Fields volume(&(*volumes)[i], path, spec.notes());
    const std::string claim = volume.text("volumeClaimName").value_or("");
    const std::string mount = volume.text("mountPath").value_or("");
    volume.drop("volumeClaim", "Paceline makes no claims",
                "make the PersistentVolumeClaim and mount it in the template");
    volume.finish();
    if (claim.empty() || mount.empty()) continue;
    const std::string name = "volcano-" + std::to_string(i);
    for (NewRole& role : job.roles) {
      Json* container = trainer_in(role.pod_template);
      if (container == nullptr) continue;
      (*container)["volumeMounts"].push_back({{"name", name}, {"mountPath", mount}});
      role.pod_template["spec"]["volumes"].push_back(
          {{"name", name}, {"persistentVolumeClaim", {{"claimName", claim}}}});
    }
  }
}

void read_plugins(Fields& spec, NewJob& job) {
  Fields plugins(spec.object("plugins"), spec.path("plugins"), spec.notes());
  // What these do, the launcher does.
  for (const char* name : {"env", "svc", "ssh"}) plugins.skip(name);
  struct Framework {
    const char* plugin;
    const char* framework;
  };
  for (const auto& [name, framework] :
       {Framework{"pytorch", "PyTorch"}, Framework{"tensorflow", "TensorFlow"},
        Framework{"mpi", "MPI"}}) {
    const Json* arguments = plugins.take(name);
    if (arguments == nullptr) continue;
    job.framework = framework;
    if (!arguments->empty())
      spec.notes().drop(plugins.path(name), arguments,
                        "names and ports are the launcher's; the plugin sets spec.framework.type",
                        "look at the kinds of the roles");
  }
  plugins.finish();
}

void read_volcano_scheduling(Fields& spec, NewJob& job) {
  job.queue = spec.text("queue").value_or(job.queue);
  const std::string priority = spec.text("priorityClassName").value_or("");
  if (!priority.empty()) {
    const Json shown = priority;
    job.priority_class = priority;
    spec.notes().add("spec.priorityClassName", &shown, "moves to spec.scheduling.priorityClassName",
                     "its preemptionPolicy must be Never");
  }
  std::int64_t pods = 0;
  for (const NewRole& role : job.roles) pods += role.replicas;
  if (const auto least = spec.integer("minAvailable"); least && *least < pods) {
    const Json shown = *least;
    spec.notes().drop("spec.minAvailable", &shown, "a gang starts whole or not at all",
                      "lower spec.roles[].replicas if fewer pods are enough");
  }
  if (const auto name = spec.text("schedulerName"); name && *name != "volcano") {
    const Json shown = *name;
    spec.notes().drop("spec.schedulerName", &shown, "Paceline places the pods of the gang itself",
                      "no action is needed");
  }
  spec.drop("minSuccess", "a job succeeds with all of its ranks, or with rank 0",
            "write spec.successPolicy: RankZero if that is enough");
  spec.drop("runningEstimate", "placement does not use it", "no action is needed");
  spec.drop("networkTopology", "Paceline places the gang by what it knows of the network",
            "no action is needed");
  spec.drop("policies", "a failed or evicted rank restarts the whole gang",
            "spec.failurePolicy.maxRestarts says how often");
}

}  // namespace

Result<NewJob> convert_volcano_job(const Json& document, Notes& notes) {
  NewJob job;
  Fields fields(&document, "", notes);
  read_envelope(fields, job);
  Fields spec(fields.object("spec"), "spec", notes);
  const Json* tasks = spec.list("tasks");
  for (std::size_t i = 0; tasks != nullptr && i < tasks->size(); ++i)
    read_task((*tasks)[i], "spec.tasks[" + std::to_string(i) + "]", job, notes);
  if (job.roles.empty())
    return fail(Code::kInvalid, Origin::kConfig,
                "spec.tasks: names no tasks; write at least one, with a template");
  for (NewRole& role : job.roles) {
    const bool known =
        std::ranges::find(job.roles, role.start_after, &NewRole::name) != job.roles.end();
    if (role.start_after.empty() || known) continue;
    const Json shown = role.start_after;
    notes.drop("spec.tasks", &shown, "it is named in dependsOn, and no role has that name",
               "write spec.roles[].startAfter");
    role.start_after.clear();
  }
  read_volumes(spec, job);
  read_plugins(spec, job);
  read_volcano_scheduling(spec, job);
  if (const auto retries = spec.integer("maxRetry")) job.max_restarts = *retries;
  if (document["spec"].contains("ttlSecondsAfterFinished"))
    job.ttl = spec.seconds("ttlSecondsAfterFinished");
  guess_roles(job, document, "spec.tasks", notes);
  spec.finish();
  fields.finish();
  return job;
}

}  // namespace paceline::cli
