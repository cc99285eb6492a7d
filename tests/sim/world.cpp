// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/world.hpp"

#include "operator/api/parse.hpp"
#include "operator/worker_pool.hpp"

namespace paceline::sim {

using nlohmann::json;

/// The API as the operator sees it: every write may be the process's last, or go wrong.
class CrashApi final : public kube::Api {
 public:
  CrashApi(std::shared_ptr<kube::Api> inner, std::mt19937_64& random, const Rates& rates)
      : inner_(std::move(inner)), random_(random), rates_(rates) {}

  int countdown = 0;  // to the armed write
  bool crash_after = false;

  Result<std::string> get(const kube::Resource& r, const std::string& ns, const std::string& name,
                          const std::stop_token& stop) override {
    return inner_->get(r, ns, name, stop);
  }
  Result<std::string> list(const kube::Resource& r, const std::string& ns, const kube::ListOptions& o,
                           const std::stop_token& stop) override {
    return inner_->list(r, ns, o, stop);
  }
  Result<std::string> create(const kube::Resource& r, const std::string& ns, const std::string& body,
                             const kube::WriteOptions& o, const std::stop_token& stop) override {
    return write(o.dry_run, [&] { return inner_->create(r, ns, body, o, stop); });
  }
  Result<std::string> update(const kube::Resource& r, const std::string& ns, const std::string& name,
                             const std::string& body, const kube::WriteOptions& o,
                             const std::stop_token& stop) override {
    return write(o.dry_run, [&] { return inner_->update(r, ns, name, body, o, stop); });
  }
  Result<std::string> patch(const kube::Resource& r, const std::string& ns, const std::string& name,
                            const std::string& body, const kube::PatchOptions& o,
                            const std::stop_token& stop) override {
    return write(o.dry_run, [&] { return inner_->patch(r, ns, name, body, o, stop); });
  }
  Result<std::string> remove(const kube::Resource& r, const std::string& ns, const std::string& name,
                             const kube::DeleteOptions& o, const std::stop_token& stop) override {
    return write(o.dry_run, [&] { return inner_->remove(r, ns, name, o, stop); });
  }
  Status watch(const kube::Resource& r, const std::string& ns, const kube::WatchOptions& o, const kube::WatchHandler& h,
               const std::stop_token& stop) override {
    return inner_->watch(r, ns, o, h, stop);
  }
  Result<std::string> get_raw(const std::string& path, const std::stop_token& stop) override {
    return inner_->get_raw(path, stop);
  }

 private:
  bool chance(double p) { return p > 0 && std::uniform_real_distribution<>(0, 1)(random_) < p; }

  Result<std::string> write(bool dry_run, const auto& call) {
    if (dry_run) return call();
    const bool due = countdown > 0 && --countdown == 0;
    if (due && !crash_after) throw Crash{};
    if (chance(rates_.crash / 2)) throw Crash{};
    if (chance(rates_.fail)) return fail(Code::kUnavailable, Origin::kKube, "simulated: not now", true);
    auto answer = call();
    if ((due && crash_after) || chance(rates_.crash / 2)) throw Crash{};
    if (chance(rates_.lost)) return fail(Code::kTimeout, Origin::kKube, "simulated: the answer was lost", true);
    return answer;
  }

  std::shared_ptr<kube::Api> inner_;
  std::mt19937_64& random_;
  const Rates& rates_;
};

struct World::Operator {
  Operator(World& world)
      : queue(world.clock_),
        controller({*world.crashing_,
                    world.clock_,
                    stores,
                    executor,
                    [this](const std::string& key) { queue.add(key); },
                    [] { return std::string("token"); },
                    {},
                    {}},
                   {}),
        feeds{{world.cluster_, kube::kNodes, stores.nodes},
              {world.cluster_, kube::kPods, stores.pods},
              {world.cluster_, kube::kResourceQuotas, stores.quotas},
              {world.cluster_, kube::kPriorityClasses, stores.priorities},
              {world.cluster_, kube::kTrainingJobs, stores.jobs}} {
    controller.subscribe();
    for (auto& feed : feeds) feed.relist();
  }
  apply::Stores stores;
  kube::WorkQueue queue;
  apply::InlineExecutor executor;
  apply::Controller controller;
  std::vector<kube::FakeFeed> feeds;
};

World::World(std::uint64_t seed, int nodes, int cpu_per_node)
    : cluster_(clock_), plain_(kube::make_fake_api(cluster_)), random_(seed), nodes_(nodes) {
  crashing_ = std::make_unique<CrashApi>(plain_, random_, rates_);
  for (int i = 0; i < nodes; ++i) {
    const std::string name = "n" + std::to_string(i);
    const json node = {{"apiVersion", "v1"}, {"kind", "Node"}, {"metadata", {{"name", name}}}};
    if (!plain_->create(kube::kNodes, "", node.dump())) throw std::runtime_error("cannot create a node");
    const json status = {
        {"status",
         {{"allocatable", {{"cpu", std::to_string(cpu_per_node)}, {"memory", "64Gi"}, {"pods", "110"}}},
          {"conditions",
           json::array({{{"type", "Ready"}, {"status", "True"}, {"lastTransitionTime", "2026-01-01T00:00:00Z"}}})}}}};
    cluster_.poke(kube::kNodes, "", name, status.dump());
  }
  restart_operator();
}

World::~World() = default;

void World::restart_operator() {
  operator_.reset();
  operator_ = std::make_unique<Operator>(*this);
}

void World::arm(int write, bool after) {
  crashing_->countdown = write;
  crashing_->crash_after = after;
}

bool World::armed() const { return crashing_->countdown > 0; }

void World::add_job(const std::string& name, int replicas, int cpu_per_pod, int max_restarts) {
  const json job = {
      {"apiVersion", "paceline.dev/v1alpha1"},
      {"kind", "TrainingJob"},
      {"metadata", {{"name", name}, {"namespace", "default"}}},
      {"spec",
       {{"framework", {{"type", "Custom"}, {"processesPerReplica", 1}}},
        {"failurePolicy", {{"maxRestarts", max_restarts}, {"forceDeleteAfter", "20s"}}},
        {"roles",
         json::array(
             {{{"name", "w"},
               {"replicas", replicas},
               {"template",
                {{"spec",
                  {{"containers",
                    json::array({{{"name", "trainer"},
                                  {"image", "i"},
                                  {"command", {"train"}},
                                  {"resources", {{"requests", {{"cpu", std::to_string(cpu_per_pod)}}}}}}})}}}}}}})}}}};
  if (const auto made = plain_->create(kube::kTrainingJobs, "default", job.dump()); !made)
    throw std::runtime_error(made.error().message);
}

json World::job(const std::string& name) const {
  const auto found = plain_->get(kube::kTrainingJobs, "default", name);
  return found ? json::parse(*found) : json();
}

std::string World::phase(const std::string& name) const { return job(name).value("/status/phase"_json_pointer, ""); }

std::vector<std::shared_ptr<const json>> World::pods() const {
  std::vector<std::shared_ptr<const json>> list;
  std::map<std::string, std::shared_ptr<const json>> parsed;
  for (const std::string& text : cluster_.objects(kube::kPods)) {
    const auto known = parsed_.find(text);
    list.push_back(known != parsed_.end() ? known->second : std::make_shared<const json>(json::parse(text)));
    parsed.emplace(text, list.back());
  }
  parsed_ = std::move(parsed);
  return list;
}

bool World::run_one_key() {
  const auto key = operator_->queue.try_get();
  if (!key) return false;
  try {
    work_once(operator_->queue, operator_->controller, *key);
  } catch (const Crash&) {
    restart_operator();
  }
  return true;
}

std::size_t World::deliver(std::size_t limit) {
  std::size_t delivered = 0;
  for (auto& feed : operator_->feeds) delivered += feed.deliver(limit);
  return delivered;
}

/// Binds what is not gated to the node that its affinity names.
void World::scheduler() {
  for (const auto& entry : pods()) {
    const json& pod = *entry;
    const json& spec = pod["spec"];
    if (spec.contains("nodeName") || !spec.value("schedulingGates", json::array()).empty() ||
        pod["metadata"].contains("deletionTimestamp"))
      continue;
    const json node = spec.at(
        "/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0/matchFields/0/values/0"_json_pointer);
    cluster_.poke(kube::kPods, "default", pod["metadata"]["name"].get<std::string>(),
                  json{{"spec", {{"nodeName", node}}}}.dump());
  }
}

void World::kubelets(bool everything) {
  std::map<std::string, bool> ready;
  for (const std::string& text : cluster_.objects(kube::kNodes)) {
    const json node = json::parse(text);
    ready[node["metadata"]["name"]] = node["status"]["conditions"][0]["status"] == "True";
  }
  std::map<std::string, std::vector<std::shared_ptr<const json>>> gangs;
  for (const auto& entry : pods()) {
    const json& pod = *entry;
    const std::string name = pod["metadata"]["name"];
    const std::string node = pod["spec"].value("nodeName", "");
    if (!everything && chance(0.5)) continue;
    if (node.empty() || !ready[node]) continue;
    if (pod["metadata"].contains("deletionTimestamp")) {
      cluster_.erase(kube::kPods, "default", name);
      continue;
    }
    const std::string phase = pod.value("/status/phase"_json_pointer, "Pending");
    if (phase == "Pending" || phase.empty()) {
      const json status = {
          {"status",
           {{"phase", "Running"},
            {"podIP", "10.0.0.1"},
            {"containerStatuses", json::array({{{"name", "trainer"}, {"state", {{"running", json::object()}}}}})}}}};
      cluster_.poke(kube::kPods, "default", name, status.dump());
    } else if (phase == "Running") {
      gangs[pod["metadata"]["labels"]["paceline.dev/job"]].push_back(entry);
    }
  }
  // A gang that is whole may finish, all ranks together as the launchers decide it.
  for (const auto& [name, members] : gangs) {
    const json owner = job(name);
    if (owner.is_null() || static_cast<int>(members.size()) != owner["spec"]["roles"][0]["replicas"].get<int>() ||
        (!everything && !chance(0.1)))
      continue;
    for (const auto& entry : members) {
      const json& pod = *entry;
      const json message = {{"version", 1}, {"verdict", "Succeeded"}, {"attempt", 0}, {"restarts", 0}};
      const json status = {
          {"status",
           {{"phase", "Succeeded"},
            {"containerStatuses",
             json::array({{{"name", "trainer"},
                           {"state", {{"terminated", {{"exitCode", 0}, {"message", message.dump()}}}}}}})}}}};
      cluster_.poke(kube::kPods, "default", pod["metadata"]["name"].get<std::string>(), status.dump());
    }
  }
}

void World::step(const Rates& rates) {
  rates_ = rates;
  switch (pick(6)) {
    case 0:
    case 1: operator_->feeds[pick(operator_->feeds.size())].deliver(1 + pick(4)); break;
    case 2: run_one_key(); break;
    case 3: scheduler(); break;
    case 4: kubelets(false); break;
    default: clock_.advance(std::chrono::milliseconds(1 + static_cast<int>(pick(3000)))); break;
  }
  const auto all = pods();
  if (!all.empty() && chance(rates.delete_pod)) {
    const json& pod = *all[pick(all.size())];
    (void)plain_->remove(kube::kPods, "default", pod["metadata"]["name"].get<std::string>());
  }
  if (!all.empty() && chance(rates.kill_pod)) {
    const json& pod = *all[pick(all.size())];
    if (pod.value("/status/phase"_json_pointer, "") == "Running") {
      const json status = {
          {"status",
           {{"phase", "Failed"},
            {"containerStatuses",
             json::array({{{"name", "trainer"},
                           {"state", {{"terminated", {{"exitCode", 137}, {"reason", "OOMKilled"}}}}}}})}}}};
      cluster_.poke(kube::kPods, "default", pod["metadata"]["name"].get<std::string>(), status.dump());
    }
  }
  if (chance(rates.lose_node)) {
    const std::string name = "n" + std::to_string(pick(static_cast<std::size_t>(nodes_)));
    const bool up = chance(0.6);
    const json status = {{"status",
                          {{"conditions", json::array({{{"type", "Ready"},
                                                        {"status", up ? "True" : "Unknown"},
                                                        {"lastTransitionTime", api::format_time(clock_.wall())}}})}}}};
    cluster_.poke(kube::kNodes, "", name, status.dump());
  }
  if (chance(rates.spec_change)) {
    const auto jobs = cluster_.objects(kube::kTrainingJobs);
    if (!jobs.empty()) {
      const json job = json::parse(jobs[pick(jobs.size())]);
      const json patch = {{"spec", {{"suspend", chance(0.5)}}}};
      (void)plain_->patch(kube::kTrainingJobs, "default", job["metadata"]["name"].get<std::string>(), patch.dump());
    }
  }
}

void World::drain_once() {
  rates_ = {};
  for (int i = 0; i < 200; ++i) {
    const bool moved = deliver(1000) > 0;
    if (!run_one_key() && !moved) break;
  }
}

bool World::settle(int rounds) {
  rates_ = {};
  for (int i = 0; i < nodes_; ++i) {
    const json status = {{"status",
                          {{"conditions", json::array({{{"type", "Ready"},
                                                        {"status", "True"},
                                                        {"lastTransitionTime", api::format_time(clock_.wall())}}})}}}};
    cluster_.poke(kube::kNodes, "", "n" + std::to_string(i), status.dump());
  }
  for (const std::string& text : cluster_.objects(kube::kTrainingJobs)) {
    (void)plain_->patch(kube::kTrainingJobs, "default", json::parse(text)["metadata"]["name"].get<std::string>(),
                        R"({"spec":{"suspend":false}})");
  }
  int still = 0;
  for (int i = 0; i < rounds; ++i) {
    const std::uint64_t before = cluster_.resource_version();
    drain_once();
    scheduler();
    kubelets(true);
    drain_once();
    clock_.advance(std::chrono::seconds(5));
    still = cluster_.resource_version() == before ? still + 1 : 0;
    if (still == 20) return true;  // back-off, time-outs and deadlines have passed without a write
  }
  return false;
}

std::optional<std::string> World::check() {
  if (checked_version_ == cluster_.resource_version()) return std::nullopt;
  checked_version_ = cluster_.resource_version();
  std::map<std::string, int> live;
  std::map<std::string, bool> ungated;
  for (const auto& entry : pods()) {
    const json& pod = *entry;
    const json& labels = pod["metadata"]["labels"];
    const std::string uid = labels["paceline.dev/job-uid"];
    const std::string phase = pod.value("/status/phase"_json_pointer, "");
    if (phase != "Succeeded" && phase != "Failed") {
      const std::string slot = uid + "/" + labels["paceline.dev/role"].get<std::string>() + "/" +
                               labels["paceline.dev/replica-index"].get<std::string>();
      if (++live[slot] > 1)
        return "two live pods of " + slot + ", one of them " + pod["metadata"]["name"].get<std::string>();
    }
    if (pod["spec"].value("schedulingGates", json::array()).empty()) ungated[uid] = true;
  }
  for (const std::string& text : cluster_.objects(kube::kTrainingJobs)) {
    const json job = json::parse(text);
    const std::string uid = job["metadata"]["uid"];
    const std::string name = job["metadata"]["name"];
    const json status = job.value("status", json::object());
    json placed;
    for (const json& condition : status.value("conditions", json::array())) {
      if (condition["type"] == "Placed") placed = condition;
    }
    if (status.value("roles", json::array()).empty()) {
      for (const auto& [slot, count] : live) {
        if (slot.starts_with(uid)) return name + " was never placed and has a pod";
      }
    }
    if (ungated[uid] && !placed.is_null() && placed["status"] == "True" && placed["reason"] == "Creating" &&
        status.value("attempt", 0) == 0) {
      return name + ": a gate opened before the set was complete";
    }
    if (status.value("restarts", 0) > job.value("/spec/failurePolicy/maxRestarts"_json_pointer, 3))
      return name + " spent more restarts than its budget";
    const json& before = seen_[uid];
    if (before.is_object()) {
      if (status.value("attempt", 0) < before.value("attempt", 0)) return name + ": attempt fell";
      if (status.value("restarts", 0) < before.value("restarts", 0)) return name + ": restarts fell";
      const std::string was = before.value("phase", "");
      if ((was == "Succeeded" || was == "Failed") && status.value("phase", "") != was)
        return name + ": left phase " + was;
    }
    seen_[uid] = status;
  }
  return std::nullopt;
}

}  // namespace paceline::sim
