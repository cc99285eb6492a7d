// SPDX-License-Identifier: Apache-2.0
#include "cli/convert/kinds/train_job.hpp"

#include <algorithm>

#include "cli/convert/kinds/guess.hpp"
#include "cli/convert/kinds/job_set.hpp"
#include "cli/convert/pod_template.hpp"

namespace paceline::cli {
namespace {

constexpr const char* kStep = "trainer.kubeflow.org/trainjob-ancestor-step";

/// The field by which Kubernetes tells the items of a list apart.
std::string_view key_of(std::string_view list) {
  if (list == "volumeMounts") return "mountPath";
  if (list == "volumeDevices") return "devicePath";
  if (list == "ports") return "containerPort";
  if (list == "hostAliases") return "ip";
  return "name";
}

/// Puts a patch over a value: objects field by field, lists by the key of their items, lists
/// without keys one after the other. `list`: the field that the value is.
void merge(Json& value, const Json& patch, std::string_view list = "") {
  if (value.is_object() && patch.is_object()) {
    for (const auto& [key, part] : patch.items()) {
      if (value.contains(key)) {
        merge(value[key], part, key);
      } else {
        value[key] = part;
      }
    }
    return;
  }
  if (!value.is_array() || !patch.is_array()) {
    value = patch;
    return;
  }
  for (const Json& part : patch) {
    const Json* wanted = member(&part, key_of(list));
    const auto same = std::ranges::find_if(value, [&](const Json& item) {
      const Json* key = member(&item, key_of(list));
      return wanted != nullptr && key != nullptr && *key == *wanted;
    });
    if (same == value.end()) {
      value.push_back(part);
    } else {
      merge(*same, part);
    }
  }
}

/// A field of an object, made if it is absent or no object.
Json& child(Json& object, const char* key) {
  Json& value = object[key];
  if (!value.is_object()) value = Json::object();
  return value;
}

class Builder {
 public:
  Builder(NewJob& job, Notes& notes) : job_(job), notes_(notes) {}

  /// Reads the runtime's policies and keeps a copy of its JobSet.
  void read_runtime(const Json& runtime) {
    const Json* metadata = member(&runtime, "metadata");
    path_ = "runtime " + text_of(member(metadata, "name")) + " spec";
    Fields spec(member(&runtime, "spec"), path_, notes_);
    read_ml_policy(spec);
    read_pod_group(spec);
    Fields job_template(spec.object("template"), spec.path("template"), notes_);
    job_template.skip("metadata");
    if (const Json* set = job_template.object("spec")) job_set_ = *set;
    job_template.finish();
    spec.finish();
  }

  /// Puts the TrainJob's own fields over the runtime's.
  void read_trainer(const Json* value) {
    Fields trainer(value, "spec.trainer", notes_);
    if (const auto nodes = trainer.integer("numNodes")) nodes_ = *nodes;
    read_processes(trainer, "numProcPerNode");
    Json container = Json::object();
    for (const char* key : {"image", "command", "args", "env"}) {
      if (const Json* field = trainer.take(key)) container[key] = *field;
    }
    const Json* resources = trainer.object("resourcesPerNode");
    trainer.finish();
    for (Json& job : jobs()) {
      Json& pod = pod_template(job);
      if (is_trainer(job)) {
        for (const auto& [key, field] : container.items()) {
          Json& target = node_container(pod);
          // Variables of the job are added to the runtime's, commands replace its own.
          if (key == "env" && target.contains(key)) {
            merge(target[key], field);
          } else {
            target[key] = field;
          }
        }
      }
      if (text_of(member(&job, "name")) != "node") continue;
      if (resources != nullptr) node_container(pod)["resources"] = *resources;
      if (nodes_) {
        Json& spec = child(child(job, "template"), "spec");
        spec["parallelism"] = *nodes_;
        spec["completions"] = *nodes_;
      }
    }
  }

  /// podTemplateOverrides: patches of pods of some jobs.
  void read_overrides(Fields& spec, const char* key) {
    const Json* list = spec.list(key);
    for (std::size_t i = 0; list != nullptr && i < list->size(); ++i) {
      Fields fields(&(*list)[i], spec.path(key) + "[" + std::to_string(i) + "]", notes_);
      const Json* targets = fields.list("targetJobs");
      Json patch = Json::object();
      for (const char* part : {"metadata", "spec"}) {
        if (const Json* value = fields.object(part)) patch[part] = *value;
      }
      for (Json& job : jobs()) {
        const Json name = job.contains("name") ? job["name"] : Json();
        const bool named =
            targets == nullptr || std::ranges::any_of(*targets, [&](const Json& target) {
              const Json* other = member(&target, "name");
              return other != nullptr && *other == name;
            });
        if (named) merge(pod_template(job), patch);
      }
      fields.finish();
    }
  }

  /// runtimePatches: patches of the whole JobSet.
  void read_patches(Fields& spec) {
    const Json* list = spec.list("runtimePatches");
    for (std::size_t i = 0; list != nullptr && i < list->size(); ++i) {
      Fields fields(&(*list)[i], spec.path("runtimePatches") + "[" + std::to_string(i) + "]",
                    notes_);
      fields.skip("manager");
      fields.skip("time");
      Fields runtime(fields.object("trainingRuntimeSpec"), fields.path("trainingRuntimeSpec"),
                     notes_);
      Fields job_template(runtime.object("template"), runtime.path("template"), notes_);
      if (const Json* metadata = job_template.object("metadata")) {
        for (const auto& [key, into] :
             {std::pair{"labels", &job_.labels}, std::pair{"annotations", &job_.annotations}}) {
          if (const Json* map = member(metadata, key)) merge(*into, *map);
        }
      }
      if (const Json* set = job_template.object("spec")) merge(job_set_, *set);
      job_template.finish();
      runtime.finish();
      fields.finish();
    }
  }

  Status finish() {
    drop_initializers();
    if (const Status read = read_job_set_spec(&job_set_, path_ + ".template.spec", job_, notes_);
        !read)
      return read;
    guess_roles(job_, job_set_, path_ + ".template.spec.replicatedJobs", notes_);
    return {};
  }

 private:
  Json& jobs() {
    Json& list = job_set_["replicatedJobs"];
    if (!list.is_array()) list = Json::array();
    std::erase_if(list.get_ref<Json::array_t&>(), [](const Json& job) { return !job.is_object(); });
    return list;
  }

  static Json& pod_template(Json& job) {
    return child(child(child(job, "template"), "spec"), "template");
  }

  static Json& node_container(Json& pod) {
    Json& containers = child(pod, "spec")["containers"];
    if (!containers.is_array() || containers.empty())
      containers = Json::array({{{"name", "node"}}});
    for (Json& container : containers) {
      if (text_of(member(&container, "name")) == "node") return container;
    }
    if (!containers.front().is_object()) containers.front() = Json::object();
    return containers.front();
  }

  static std::string step_of(const Json& job) {
    return text_of(member(member(member(member(&job, "template"), "metadata"), "labels"), kStep));
  }

  /// The step label says which job holds the trainer; without labels it is the one named node.
  bool is_trainer(const Json& job) {
    const bool labelled =
        std::ranges::any_of(jobs(), [](const Json& other) { return step_of(other) == "trainer"; });
    return labelled ? step_of(job) == "trainer" : text_of(member(&job, "name")) == "node";
  }

  void read_processes(Fields& fields, const char* key) {
    const Json* value = fields.take(key);
    if (value == nullptr) return;
    if (value->is_number_integer()) {
      job_.processes = value->get<std::int64_t>();
    } else if (*value == "auto" || *value == "gpu") {
      job_.processes.reset();
    } else {
      notes_.drop(fields.path(key), value, "it is no number, and not auto or gpu",
                  "write spec.framework.processesPerReplica");
    }
  }

  void read_elastic(Fields& torch) {
    const Json* value = torch.object("elasticPolicy");
    if (value == nullptr) return;
    Fields policy(value, torch.path("elasticPolicy"), notes_);
    const NewElastic elastic{policy.integer("minNodes"), policy.integer("maxNodes")};
    if (elastic.fewest || elastic.most) job_.elastic = elastic;
    if (const auto restarts = policy.integer("maxRestarts")) job_.max_restarts = *restarts;
    policy.drop("metrics", "Paceline starts no autoscaler",
                "apply a HorizontalPodAutoscaler that scales the TrainingJob");
    policy.finish();
  }

  void read_ml_policy(Fields& spec) {
    Fields policy(spec.object("mlPolicy"), spec.path("mlPolicy"), notes_);
    if (const auto nodes = policy.integer("numNodes")) nodes_ = *nodes;
    if (const Json* value = policy.object("torch")) {
      job_.framework = "PyTorch";
      Fields torch(value, policy.path("torch"), notes_);
      read_processes(torch, "numProcPerNode");
      read_elastic(torch);
      torch.finish();
    }
    if (const Json* value = policy.object("mpi")) {
      job_.framework = "MPI";
      Fields mpi(value, policy.path("mpi"), notes_);
      job_.processes = 1;
      read_processes(mpi, "numProcPerNode");
      mpi.skip("mpiImplementation");
      mpi.drop("sshAuthMountPath", "the launcher starts processes on other pods without ssh",
               "no action is needed");
      if (mpi.boolean("runLauncherAsNode").value_or(false)) {
        const Json shown = true;
        notes_.drop(mpi.path("runLauncherAsNode"), &shown,
                    "the launcher's pod holds no ranks, all nodes are workers",
                    "no action is needed");
      }
      mpi.finish();
    }
    if (policy.object("jax") != nullptr) job_.framework = "JAX";
    if (policy.object("xgboost") != nullptr) job_.framework = "XGBoost";
    policy.drop("flux", "Flux starts processes by its own protocol",
                "write the program itself as command");
    policy.finish();
  }

  void read_pod_group(Fields& spec) {
    Fields policy(spec.object("podGroupPolicy"), spec.path("podGroupPolicy"), notes_);
    Fields group(policy.object("coscheduling"), policy.path("coscheduling"), notes_);
    job_.gang_timeout = group.seconds("scheduleTimeoutSeconds");
    if (job_.gang_timeout == "0s") job_.gang_timeout.clear();
    group.finish();
    policy.drop("volcano", "Paceline places the pods of the gang itself", "no action is needed");
    policy.finish();
  }

  /// Jobs that fetch data sets and models before the trainer starts.
  void drop_initializers() {
    Json& list = jobs();
    for (std::size_t i = 0; i < list.size();) {
      const std::string step = step_of(list[i]);
      const std::string name = text_of(member(&list[i], "name"));
      if (step.ends_with("initializer") || name.ends_with("-initializer")) {
        const Json shown = name;
        notes_.drop(path_ + ".template.spec.replicatedJobs", &shown,
                    "all roles of a gang run together, none after another's end",
                    "fetch data and model in a job of its own, or in an init container");
        list.erase(i);
        for (Json& job : list) drop_dependence(job, name);
      } else {
        ++i;
      }
    }
  }

  static void drop_dependence(Json& job, const std::string& name) {
    const auto found = job.find("dependsOn");
    if (found == job.end() || !found->is_array()) return;
    std::erase_if(found->get_ref<Json::array_t&>(), [&](const Json& dependence) {
      return text_of(member(&dependence, "name")) == name;
    });
  }

  NewJob& job_;
  Notes& notes_;
  std::string path_;
  Json job_set_ = Json::object();
  std::optional<std::int64_t> nodes_;
};

/// The runtime that a TrainJob names; null if the file lacks it.
const Json* find_runtime(Fields& spec, const std::vector<const Json*>& runtimes,
                         std::string& wanted) {
  Fields reference(spec.object("runtimeRef"), spec.path("runtimeRef"), spec.notes());
  reference.skip("apiGroup");
  const std::string kind = reference.text("kind").value_or("ClusterTrainingRuntime");
  const std::string name = reference.text("name").value_or("");
  reference.finish();
  wanted = kind + " " + name;
  const auto found = std::ranges::find_if(runtimes, [&](const Json* runtime) {
    return text_of(member(runtime, "kind")) == kind &&
           text_of(member(member(runtime, "metadata"), "name")) == name;
  });
  return found == runtimes.end() ? nullptr : *found;
}

}  // namespace

Result<NewJob> convert_train_job(const Json& document, const std::vector<const Json*>& runtimes,
                                 Notes& notes) {
  NewJob job;
  Fields fields(&document, "", notes);
  read_envelope(fields, job);
  Fields spec(fields.object("spec"), "spec", notes);
  std::string wanted;
  const Json* runtime = find_runtime(spec, runtimes, wanted);
  if (runtime == nullptr)
    return fail(Code::kInvalid, Origin::kConfig,
                "spec.runtimeRef: " + wanted +
                    " is not in this file, and holds what the job runs; add it to the file, as "
                    "`kubectl get " +
                    wanted + " -o yaml` prints it");
  Builder builder(job, notes);
  builder.read_runtime(*runtime);
  builder.read_trainer(spec.object("trainer"));
  builder.read_overrides(spec, "podTemplateOverrides");
  builder.read_overrides(spec, "podSpecOverrides");
  builder.read_patches(spec);
  if (const Status read = builder.finish(); !read) return std::unexpected(read.error());
  for (const auto& [key, into] :
       {std::pair{"labels", &job.labels}, std::pair{"annotations", &job.annotations}}) {
    if (const Json* map = spec.object(key)) merge(*into, *map);
  }
  job.suspend = spec.boolean("suspend").value_or(job.suspend);
  spec.drop("initializer", "all roles of a gang run together, none after another's end",
            "fetch data and model in a job of its own, or in an init container");
  spec.drop("managedBy", "the old controller does not know TrainingJobs",
            "write spec.managedBy if another controller than Paceline's reconciles the job");
  if (const std::string time = spec.seconds("activeDeadlineSeconds"); !time.empty())
    job.active_deadline = time;
  spec.finish();
  fields.finish();
  return job;
}

}  // namespace paceline::cli
