// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/operator/controller_bench.hpp"

#include <array>
#include <stdexcept>

#include "common/contract/pod_defaults.hpp"
#include "common/kube/api/kueue.hpp"
#include "operator/worker_pool.hpp"

namespace paceline::apply {

using nlohmann::json;

namespace {

/// What a scheduler of whole PodGroups reads.
struct GroupApi {
  kube::Resource groups;
  const char* least;   // in a PodGroup: how many pods it binds at least
  const char* of_pod;  // in a pod: the name of its PodGroup
};

constexpr std::array kGroupApis{
    GroupApi{{"scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup"},
             "/spec/minMember",
             "/metadata/annotations/scheduling.k8s.io~1group-name"},
    GroupApi{{"scheduling.x-k8s.io", "v1alpha1", "podgroups", "PodGroup"},
             "/spec/minMember",
             "/metadata/labels/scheduling.x-k8s.io~1pod-group"},
    GroupApi{{"scheduling.k8s.io", "v1beta1", "podgroups", "PodGroup"},
             "/spec/schedulingPolicy/gang/minCount",
             "/spec/schedulingGroup/podGroupName"},
    GroupApi{{"scheduling.run.ai", "v2alpha2", "podgroups", "PodGroup"},
             "/spec/minMember",
             "/metadata/annotations/pod-group-name"},
};

}  // namespace

struct ControllerBench::Operator {
  explicit Operator(ControllerBench& bench)
      : queue(bench.clock_),
        controller({*bench.api_, bench.clock_, stores, executor,
                    [this, &bench](const std::string& key) {
                      ++bench.enqueued;
                      queue.add(key);
                    },
                    [](const std::string& uid) { return Result<std::string>("token-of-" + uid); },
                    [&bench](const Launcher& launcher) -> Result<std::string> {
                      ++bench.summary_reads;
                      bench.summary_port = launcher.port;
                      bench.warned = launcher.warned;
                      bench.blocked_worker = bench.blocked_worker || bench.reconciling;
                      if (bench.summary.empty())
                        return fail(Code::kUnavailable, Origin::kHttp, "nobody answers", true);
                      return bench.summary;
                    },
                    [&bench](const api::TrainingJob& job, const api::JobStatus& status, News news) {
                      if (news == News::kPhase) bench.phases.push_back(status.phase);
                      bench.events.push_back(event_of(job, status, news));
                    }},
                   bench.settings_),
        feeds{{bench.cluster_, kube::kNodes, stores.nodes},
              {bench.cluster_, kube::kPods, stores.pods},
              {bench.cluster_, kube::kResourceQuotas, stores.quotas},
              {bench.cluster_, kube::kPriorityClasses, stores.priorities},
              {bench.cluster_, kube::kRuntimeProfiles, stores.profiles},
              {bench.cluster_, kube::kNodeFabrics, stores.fabrics},
              {bench.cluster_, kube::kResourceFlavors, stores.flavors},
              {bench.cluster_, kube::kTopologies, stores.topologies},
              {bench.cluster_, kube::kKueueWorkloads, stores.workloads},
              {bench.cluster_, kube::kLocalQueues, stores.local_queues},
              {bench.cluster_, kube::kTrainingJobs, stores.jobs}} {
    controller.subscribe();
    for (auto& feed : feeds) feed.relist();
  }
  Stores stores;
  kube::WorkQueue queue;
  InlineExecutor executor;
  Controller controller;
  std::vector<kube::FakeFeed> feeds;
};

namespace {

int cpu_of(const json& pod) {
  const json& cpu = pod["spec"]["containers"][0]["resources"]["requests"]["cpu"];
  return cpu.is_string() ? std::stoi(cpu.get<std::string>()) : cpu.get<int>();
}

std::string default_of(const std::string& name) {
  for (const contract::PodDefault& known : contract::kPodDefaults) {
    if (known.name == name) return std::string(known.value);
  }
  return "";
}

}  // namespace

std::string setting_of(const json& pod, const std::string& name) {
  for (const json& variable : pod["spec"]["containers"][0]["env"]) {
    if (variable["name"] == "PACELINE_SETTINGS")
      return json::parse(variable["value"].get<std::string>()).value(name, default_of(name));
  }
  return "";
}

ControllerBench::ControllerBench(MarkSettings marks)
    : cluster_(clock_), api_(kube::make_fake_api(cluster_)) {
  settings_.marks = marks;
  restart_operator();
}
ControllerBench::~ControllerBench() = default;

void ControllerBench::restart_operator() {
  operator_.reset();
  operator_ = std::make_unique<Operator>(*this);
}

void ControllerBench::restart_operator(api::Provision provision) {
  settings_.provision = provision;
  restart_operator();
}

void ControllerBench::upgrade_operator(const std::string& runtime_image) {
  settings_.runtime_image = runtime_image;
  restart_operator();
}

Controller& ControllerBench::controller() { return operator_->controller; }
const kube::WorkQueue& ControllerBench::queue() const { return operator_->queue; }
const Stores& ControllerBench::stores() const { return operator_->stores; }

void ControllerBench::create(const kube::Resource& resource, const std::string& ns,
                             const json& object) {
  json document = object;
  document["apiVersion"] = resource.api_version();
  document["kind"] = resource.kind;
  if (resource.namespaced) document["metadata"]["namespace"] = ns;
  if (const auto made = api_->create(resource, ns, document.dump()); !made)
    throw std::runtime_error(made.error().message);
  // Only the system writes a status.
  if (document.contains("status"))
    cluster_.poke(resource, ns, document["metadata"]["name"].get<std::string>(),
                  json{{"status", document["status"]}}.dump());
}

void ControllerBench::add_node(const std::string& name, int cpu, const json& labels) {
  create(kube::kNodes, "",
         {{"metadata", {{"name", name}, {"labels", labels}}},
          {"status",
           {{"allocatable", {{"cpu", cpu}, {"memory", "64Gi"}, {"pods", "110"}}},
            {"conditions", json::array({{{"type", "Ready"}, {"status", "True"}}})}}}});
}

void ControllerBench::add_job(const std::string& name, const json& spec) {
  json job = {{"metadata", {{"name", name}}}, {"spec", json::parse(R"({
      "framework": {"type": "Custom", "processesPerReplica": 1},
      "roles": [{"name": "w", "replicas": 2, "template": {"spec": {"containers": [
        {"name": "trainer", "image": "i", "command": ["train"], "resources": {"requests": {"cpu": 1}}}]}}}]})")}};
  job["spec"].merge_patch(spec);
  create(kube::kTrainingJobs, "default", job);
}

void ControllerBench::patch_job(const std::string& name, const json& patch) {
  if (const auto done = api_->patch(kube::kTrainingJobs, "default", name, patch.dump()); !done)
    throw std::runtime_error(done.error().message);
}

void ControllerBench::remove_job(const std::string& name) {
  if (const auto done = api_->remove(kube::kTrainingJobs, "default", name); !done)
    throw std::runtime_error(done.error().message);
}

bool ControllerBench::work() {
  bool any = false;
  for (auto& feed : operator_->feeds) {
    const bool lags = (jobs_lag && &feed == &operator_->feeds.back()) ||
                      (nodes_lag && &feed == &operator_->feeds.front()) ||
                      (pods_lag && &feed == &operator_->feeds[1]);
    if (!lags) any = feed.deliver(1000) > 0 || any;
  }
  while (const auto key = operator_->queue.try_get()) {
    const bool pass = *key == kScheduleKey && around_pass;
    if (pass) around_pass(true);
    reconciling = true;
    work_once(operator_->queue, operator_->controller, *key);
    reconciling = false;
    if (pass) around_pass(false);
    any = true;
  }
  while (operator_->controller.summaries().poll_one()) any = true;
  return any;
}

/// The first node with so many CPUs left; empty: none.
std::string ControllerBench::node_with(int cpu) const {
  std::map<std::string, int> left;
  for (const std::string& text : cluster_.objects(kube::kNodes)) {
    const json node = json::parse(text);
    if (node.value("/spec/unschedulable"_json_pointer, false)) continue;
    left[node["metadata"]["name"]] = node["status"]["allocatable"]["cpu"].get<int>();
  }
  for (const std::string& text : cluster_.objects(kube::kPods)) {
    const json pod = json::parse(text);
    const std::string phase = pod.value("/status/phase"_json_pointer, "Pending");
    const std::string node = pod["spec"].value("nodeName", "");
    if (phase != "Succeeded" && phase != "Failed") left[node] -= cpu_of(pod);
  }
  for (const auto& [name, cpus] : left) {
    if (!name.empty() && cpus >= cpu) return name;
  }
  return "";
}

void ControllerBench::bind_placeholder(const json& pod) {
  const std::string node = node_with(cpu_of(pod));
  const std::string name = pod["metadata"]["name"];
  if (node.empty()) return;
  cluster_.poke(kube::kPods, "default", name,
                json{{"spec", {{"nodeName", node}}}, {"status", {{"phase", "Running"}}}}.dump());
}

bool ControllerBench::bind_in_group(const json& pod) {
  for (const GroupApi& api : kGroupApis) {
    const std::string group = pod.value(json::json_pointer(api.of_pod), "");
    if (group.empty()) continue;
    int members = 0;
    for (const std::string& text : cluster_.objects(kube::kPods))
      members += json::parse(text).value(json::json_pointer(api.of_pod), "") == group ? 1 : 0;
    for (const std::string& text : cluster_.objects(api.groups)) {
      const json object = json::parse(text);
      if (object["metadata"]["name"] != group || groups_wait ||
          object.at(json::json_pointer(api.least)) > members)
        continue;
      const std::string node = node_with(cpu_of(pod));
      if (node.empty()) break;
      const std::string name = pod["metadata"]["name"];
      cluster_.poke(kube::kPods, "default", name, json{{"spec", {{"nodeName", node}}}}.dump());
      if (!pods_wait) start(name);
    }
    return true;
  }
  return false;
}

void ControllerBench::system() {
  std::map<std::string, int> used;
  for (const std::string& text : cluster_.objects(kube::kPods)) {
    const json pod = json::parse(text);
    const std::string ns = pod["metadata"]["namespace"];
    const std::string name = pod["metadata"]["name"];
    const std::string phase = pod.value("/status/phase"_json_pointer, "Pending");
    if (pod["metadata"].contains("deletionTimestamp")) {
      if (!pods_linger) cluster_.erase(kube::kPods, ns, name);
      continue;
    }
    if (phase != "Succeeded" && phase != "Failed") ++used[ns];
    if (!pod["spec"].value("schedulingGates", json::array()).empty() || phase != "Pending")
      continue;
    if (pod["metadata"]["labels"].contains("paceline.dev/placeholder-for")) {
      bind_placeholder(pod);
      continue;
    }
    if (bind_in_group(pod)) continue;
    const json node = pod["spec"].at(
        "/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0/matchFields/0/values/0"_json_pointer);
    cluster_.poke(kube::kPods, ns, name, json{{"spec", {{"nodeName", node}}}}.dump());
    if (!pods_wait) start(name);
  }
  if (quota_lags) return;
  for (const std::string& text : cluster_.objects(kube::kResourceQuotas)) {
    const json quota = json::parse(text);
    const std::string ns = quota["metadata"]["namespace"];
    cluster_.poke(
        kube::kResourceQuotas, ns, quota["metadata"]["name"].get<std::string>(),
        json{{"status",
              {{"hard", quota["spec"]["hard"]}, {"used", {{"pods", std::to_string(used[ns])}}}}}}
            .dump());
  }
}

void ControllerBench::start(const std::string& pod) {
  const json running =
      json::array({{{"name", "trainer"}, {"state", {{"running", json::object()}}}}});
  const json status = {{"phase", "Running"}, {"podIP", "10.0.0.1"}, {"containerStatuses", running}};
  cluster_.poke(kube::kPods, "default", pod, json{{"status", status}}.dump());
}

void ControllerBench::settle() {
  for (int i = 0; i < 50; ++i) {
    const std::uint64_t before = cluster_.resource_version();
    system();
    while (work()) {
    }
    cluster_.collect_garbage();
    if (cluster_.resource_version() == before) return;
  }
  throw std::runtime_error("does not come to rest");
}

void ControllerBench::advance(std::chrono::nanoseconds by) {
  clock_.advance(by);
  settle();
}

void ControllerBench::finish(const std::string& name) {
  for (const json& pod : pods(name)) {
    const json message = {{"version", 1}, {"verdict", "Succeeded"}};
    const json ended = {{"terminated", {{"exitCode", 0}, {"message", message.dump()}}}};
    cluster_.poke(
        kube::kPods, "default", pod["metadata"]["name"].get<std::string>(),
        json{{"status",
              {{"phase", "Succeeded"},
               {"containerStatuses", json::array({{{"name", "trainer"}, {"state", ended}}})}}}}
            .dump());
  }
  settle();
}

json ControllerBench::job(const std::string& name) const {
  const auto found = api_->get(kube::kTrainingJobs, "default", name);
  return found ? json::parse(*found) : json();
}

json ControllerBench::node(const std::string& name) const {
  const auto found = api_->get(kube::kNodes, "", name);
  return found ? json::parse(*found) : json();
}

json ControllerBench::condition(const std::string& name, const std::string& type) const {
  for (const json& condition : job(name).value("/status/conditions"_json_pointer, json::array())) {
    if (condition["type"] == type) return condition;
  }
  return {};
}

std::vector<json> ControllerBench::pods(const std::string& name) const {
  return pods_with("paceline.dev/job", name);
}

std::vector<json> ControllerBench::placeholders(const std::string& name) const {
  return pods_with("paceline.dev/placeholder-for", name);
}

std::vector<json> ControllerBench::pods_with(const char* label, const std::string& value) const {
  std::vector<json> list;
  for (const std::string& text : cluster_.objects(kube::kPods)) {
    json pod = json::parse(text);
    const json labels = pod.value("/metadata/labels"_json_pointer, json::object());
    if (labels.value(label, "") == value) list.push_back(std::move(pod));
  }
  return list;
}

}  // namespace paceline::apply
