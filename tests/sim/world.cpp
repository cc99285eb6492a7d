// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/world.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "common/base/timestamp.hpp"
#include "common/kube/api/kueue.hpp"
#include "common/kube/control/work_queue.hpp"
#include "operator/apply/controller.hpp"
#include "operator/apply/facts/job_facts.hpp"
#include "operator/worker_pool.hpp"

namespace paceline::sim {

using nlohmann::json;

struct World::Operator {
  explicit Operator(World& world)
      : queue(world.clock_),
        controller({*world.api_,
                    world.clock_,
                    stores,
                    executor,
                    [this](const std::string& key) { queue.add(key); },
                    [](const std::string& uid) { return Result<std::string>(uid); },
                    [&world](const apply::Launcher& launcher) {
                      return world.launchers_.ask(launcher.ip, launcher.warned);
                    },
                    {}},
                   {}),
        streams{Stream{world.journals_[0], stores.nodes, world.chaos_.defect},
                {world.journals_[1], stores.pods, world.chaos_.defect},
                {world.journals_[2], stores.quotas, world.chaos_.defect},
                {world.journals_[3], stores.priorities, world.chaos_.defect},
                {world.journals_[4], stores.profiles, world.chaos_.defect},
                {world.journals_[5], stores.jobs, world.chaos_.defect}} {
    if (world.has_kueue_) {
      streams.push_back({world.kueue_journals_[0], stores.workloads, world.chaos_.defect});
      streams.push_back({world.kueue_journals_[1], stores.local_queues, world.chaos_.defect});
    }
    controller.subscribe();
    const std::uint64_t version = world.cluster_.resource_version();
    for (Stream& stream : streams) stream.relist(version);
    // They never change.
    Stream(world.kueue_journals_[2], stores.flavors, world.chaos_.defect).relist(version);
    Stream(world.kueue_journals_[3], stores.topologies, world.chaos_.defect).relist(version);
  }
  apply::Stores stores;
  kube::WorkQueue queue;
  apply::InlineExecutor executor;
  apply::Controller controller;
  std::vector<Stream> streams;
};

World::World(std::uint64_t seed, int nodes, int cpu_per_node, Defect defect)
    : cluster_(clock_),
      plain_(kube::make_fake_api(cluster_)),
      chaos_{std::mt19937_64(seed)},
      journals_{Journal{kube::kNodes},    {kube::kPods},
                {kube::kResourceQuotas},  {kube::kPriorityClasses},
                {kube::kRuntimeProfiles}, {kube::kTrainingJobs}},
      kueue_journals_{Journal{kube::kKueueWorkloads},
                      {kube::kLocalQueues},
                      {kube::kResourceFlavors},
                      {kube::kTopologies}},
      launchers_(cluster_, clock_, chaos_),
      kueue_(cluster_, chaos_),
      cpu_per_node_(cpu_per_node) {
  trace_ = std::getenv("PACELINE_SIM_TRACE") != nullptr;
  chaos_.defect = defect;
  chaos_.meanwhile = [this] { user_or_fate(); };
  api_ = make_faulty_api(plain_, chaos_);
  cluster_.set_observer([this](const kube::FakeCluster::Sight& sight) { observe(sight); });
  cluster_.set_admission(
      [this](const kube::Resource& resource, json& object) { admit(resource, object); });
  while (nodes_made_ < nodes) add_node();
  turn_profile();
  new_leader();
}

World::~World() = default;

void World::add_node() { make_node(nodes_made_++); }

void World::make_node(int number) {
  const std::string name = "n" + std::to_string(number);
  const json labels = {
      {has_kueue_ ? kRackLabel : kLeafLabel, std::to_string(number / kNodesOfLeaf)}};
  const json node = {
      {"apiVersion", "v1"}, {"kind", "Node"}, {"metadata", {{"name", name}, {"labels", labels}}}};
  if (!plain_->create(kube::kNodes, "", node.dump()))
    throw std::runtime_error("cannot create a node");
  // Agents on two of three nodes offer a few slots, so that gangs with slots and gangs that copy
  // the runtime exist side by side.
  json room = {{"cpu", std::to_string(cpu_per_node_)}, {"memory", "64Gi"}, {"pods", "110"}};
  if (number % 3 != 2) room["paceline.dev/runtime"] = "2";
  cluster_.poke(kube::kNodes, "", name, json{{"status", {{"allocatable", room}}}}.dump());
  set_ready(name, true);
}

/// Adds one node, if a placeholder has found none.
void World::autoscale() {
  launchers_.schedule();
  const bool asked = std::ranges::any_of(facts().pods, [](const auto& entry) {
    const PodFacts& pod = entry.second;
    return pod.placeholder && pod.node.empty() && !pod.deleting && !pod.terminal();
  });
  if (asked && nodes_made_ < most_nodes_) add_node();
}

void World::observe(const kube::FakeCluster::Sight& sight) {
  chaos_.laws.on_change(sight);
  if (trace_) {
    const json* status = sight.object.contains("status") ? &sight.object["status"] : nullptr;
    const json& meta = sight.object["metadata"];
    std::printf("%s v%llu %s %s %s%s %s %s\n", format_time(clock_.wall()).c_str(),
                static_cast<unsigned long long>(sight.resource_version),
                sight.type == kube::WatchEventType::kDeleted ? "gone"
                : sight.before != nullptr                    ? "now"
                                                             : "new",
                std::string(sight.resource.plural).c_str(),
                meta["name"].get_ref<const std::string&>().c_str(),
                meta.contains("deletionTimestamp") ? " (deleting)" : "",
                sight.object.value("/spec/nodeName"_json_pointer, "").c_str(),
                status != nullptr ? status->dump().substr(0, 1500).c_str() : "");
  }
  const auto keep = [&](Journal& journal) {
    if (journal.resource.plural == sight.resource.plural)
      journal.add(sight, sight.object["metadata"]["name"].get_ref<const std::string&>());
  };
  std::ranges::for_each(journals_, keep);
  std::ranges::for_each(kueue_journals_, keep);
}

void World::set_rates(const Rates& rates) {
  chaos_.rates = rates;
  chaos_.laws.expect_room(rates.second_leader == 0);
  chaos_.laws.expect_knowledge(rates.fresh);
  chaos_.quota_is_known = rates.fresh;
}

void World::arm(int write, bool after) {
  chaos_.countdown = write;
  chaos_.crash_after = after;
}

void World::add_job(const JobShape& shape) {
  const std::string job = documents_[shape.name] = document_of(shape).dump();
  if (const auto made = plain_->create(kube::kTrainingJobs, "default", job); !made)
    throw std::runtime_error(made.error().message);
}

void World::add_quota(int pods) {
  const json quota = {{"apiVersion", "v1"},
                      {"kind", "ResourceQuota"},
                      {"metadata", {{"name", "team"}, {"namespace", "default"}}},
                      {"spec", {{"hard", {{"pods", std::to_string(pods)}}}}}};
  if (!plain_->create(kube::kResourceQuotas, "default", quota.dump()))
    throw std::runtime_error("cannot create a quota");
  cluster_.poke(kube::kResourceQuotas, "default", "team",
                json{{"status", {{"hard", {{"pods", std::to_string(pods)}}}}}}.dump());
  has_quota_ = true;
  quota_pods_ = pods;
  count_quota();
}

void World::add_kueue(int pods) {
  kueue_.start(*plain_, pods);
  has_kueue_ = true;
  for (int i = 0; i < nodes_made_; ++i) {
    const json labels = {{kLeafLabel, nullptr}, {kRackLabel, std::to_string(i / kNodesOfLeaf)}};
    cluster_.poke(kube::kNodes, "", "n" + std::to_string(i),
                  json{{"metadata", {{"labels", labels}}}}.dump());
  }
  operators_.clear();
  new_leader();  // one that watches Kueue's objects
}

void World::add_bystander(const std::string& job) {
  const json labels = {{"paceline.dev/job", job},
                       {"paceline.dev/job-uid", facts().jobs.at(job).uid}};
  const json pod = {
      {"apiVersion", "v1"},
      {"kind", "Pod"},
      {"metadata", {{"name", "bystander"}, {"namespace", "default"}, {"labels", labels}}},
      {"spec", {{"containers", json::array({{{"name", "c"}, {"image", "i"}}})}}}};
  if (!plain_->create(kube::kPods, "default", pod.dump()))
    throw std::runtime_error("cannot create a pod");
}

/// What admission adds to the pods of jobs.
void World::admit(const kube::Resource& resource, json& object) const {
  if (resource.plural != kube::kPods.plural || !object["metadata"].contains("ownerReferences"))
    return;
  if (adds_overhead_) object["spec"]["overhead"] = {{"cpu", "1"}};
  // By its name, since dry runs must not draw.
  const std::string name = object["metadata"].value("name", "");
  if (std::accumulate(name.begin(), name.end(), 0) * 37 % 100 < chaos_.rates.keep * 100)
    object["metadata"]["finalizers"] = json::array({"example.com/keeps-it"});
}

std::string World::phase(const std::string& job) const {
  const auto found = facts().jobs.find(job);
  return found == facts().jobs.end() ? "" : found->second.phase;
}

json World::status(const std::string& job) const {
  const auto found = plain_->get(kube::kTrainingJobs, "default", job);
  return found ? json::parse(*found).value("status", json()) : json();
}

void World::new_leader() {
  if (chaos_.defect == Defect::kStartsOver) {
    for (const auto& [name, job] : Facts(facts()).jobs)
      cluster_.poke(kube::kTrainingJobs, "default", name, R"({"status":null})");
  }
  chaos_.laws.on_new_operator();
  operators_.push_back(std::make_unique<Operator>(*this));
}

void World::reconcile(std::size_t which, const std::string& key) {
  try {
    work_once(operators_[which]->queue, operators_[which]->controller, key);
  } catch (const Crash&) {
    const bool led = which + 1 == operators_.size();
    operators_.erase(operators_.begin() + static_cast<std::ptrdiff_t>(which));
    if (led) new_leader();
  }
}

bool World::run_one_key(std::size_t which) {
  const auto key = operators_[which]->queue.try_get();
  if (key) reconcile(which, *key);
  return key.has_value();
}

std::size_t World::deliver(std::size_t which, std::size_t limit) {
  std::size_t delivered = 0;
  for (Stream& stream : operators_[which]->streams) delivered += stream.deliver(limit);
  return delivered;
}

void World::count_quota() {
  if (!has_quota_) return;
  int used = 0;
  for (const auto& [name, pod] : facts().pods) used += pod.terminal() ? 0 : 1;
  if (used == std::exchange(quota_used_, used)) return;
  cluster_.poke(kube::kResourceQuotas, "default", "team",
                R"({"status":{"used":{"pods":")" + std::to_string(used) + "\"}}}");
}

void World::collect_garbage() {
  const bool orphans =
      std::any_of(facts().pods.begin(), facts().pods.end(), [this](const auto& entry) {
        return !entry.second.owner.empty() && facts().job_of(entry.second) == nullptr;
      });
  if (orphans || recreated_ || has_kueue_ || !facts().pod_groups.empty())
    cluster_.collect_garbage();
  end_foreground_deletions();
  collect_lost_pods();
}

void World::edit_while_away() {
  const std::string name = some_job();
  const auto found = plain_->get(kube::kTrainingJobs, "default", name);
  if (!found) return;
  operators_.clear();
  json roles = json::parse(*found)["spec"]["roles"];
  ++edits_;
  for (json& role : roles)
    role["template"]["spec"]["containers"][0]["image"] = "i" + std::to_string(edits_);
  for (const json& spec :
       {json{{"suspend", true}}, json{{"roles", roles}}, json{{"suspend", false}}})
    (void)plain_->patch(kube::kTrainingJobs, "default", name, json{{"spec", spec}}.dump());
  new_leader();
}

void World::disturb_watch() {
  auto& streams = operators_[chaos_.pick(operators_.size())]->streams;
  Stream& stream = streams[chaos_.pick(streams.size())];
  if (chaos_.chance(chaos_.rates.relist)) stream.relist(cluster_.resource_version());
  if (chaos_.chance(chaos_.rates.bookmark)) stream.bookmark(cluster_.resource_version());
  if (chaos_.chance(chaos_.rates.repeat)) {
    if (chaos_.chance(0.5)) {
      stream.repeat();
    } else {
      stream.go_back(1 + chaos_.pick(4));
    }
  }
}

/// For worlds whose caches never lag.
void World::refresh() {
  count_quota();
  for (std::size_t i = 0; i < operators_.size(); ++i) deliver(i, 1000);
}

void World::step() {
  const Rates& rates = chaos_.rates;
  const std::size_t which = chaos_.pick(operators_.size());
  switch (chaos_.pick(7)) {
    case 0:
    case 1: {
      auto& streams = operators_[which]->streams;
      streams[chaos_.pick(streams.size())].deliver(1 + chaos_.pick(4));
      break;
    }
    case 2:
    case 3:
      run_one_key(which);
      if (which < operators_.size()) operators_[which]->controller.summaries().poll_one();
      break;
    case 4:
      launchers_.schedule();
      kueue_.act();
      break;
    case 5: launchers_.run_pods(false); break;
    default:
      clock_.advance(std::chrono::milliseconds(1 + static_cast<int>(chaos_.pick(3000))));
      count_quota();
      collect_garbage();
      break;
  }
  if (chaos_.chance(rates.grow)) autoscale();
  user_or_fate();
  if (!chaos_.late.empty() && chaos_.chance(0.03)) carry_out_late();
  turn_rights();
  change_nodes();
  interfere();
  if (!facts().jobs.empty() && chaos_.chance(rates.edit_away)) edit_while_away();
  disturb_watch();
  if (chaos_.chance(rates.restart)) {
    operators_.pop_back();
    new_leader();
  }
  if (operators_.size() > 1 && chaos_.chance(0.05)) operators_.erase(operators_.begin());
  if (operators_.size() < 2 && chaos_.chance(rates.second_leader)) new_leader();
  if (rates.fresh) refresh();
}

void World::drain() {
  constexpr int kEnough = 500;
  int turns = 0;
  for (bool moved = true; moved && turns < kEnough; ++turns) {
    count_quota();
    moved = false;
    for (std::size_t i = 0; i < operators_.size(); ++i) {
      moved = deliver(i, 1000) > 0 || moved;
      moved = run_one_key(i) || moved;
      moved = operators_[i]->controller.summaries().poll_one() || moved;
    }
  }
  if (turns == kEnough) report(Law::kComesToRest, "reconciles without end while nothing happens");
}

bool World::settle(int rounds) {
  chaos_.rates = {};
  operators_.erase(operators_.begin(), operators_.end() - 1);
  for (const auto& [name, node] : Facts(facts()).nodes) {
    if (!node.ready) set_ready(name, true);
  }
  for (const auto& [name, job] : Facts(facts()).jobs)
    (void)plain_->patch(kube::kTrainingJobs, "default", name, R"({"spec":{"suspend":false}})");
  if (has_quota_) set_limit(quota_pods_);
  drain();
  check_rights();
  check_warnings();
  chaos_.laws.set_at_peace(true);
  check_missing_images();
  launchers_.push_images();
  // First with the taints and foreign pods that are there, then without, so that every job fits.
  if (is_obstructed() && !rest(rounds)) return false;
  for (const auto& [name, node] : Facts(facts()).nodes) {
    if (node.closed()) unmark(name);
  }
  for (const auto& [name, pod] : Facts(facts()).pods) {
    if (name.starts_with("foreign")) cluster_.erase(kube::kPods, "default", name);
  }
  restore_nodes();
  remove_orphans();
  const bool rests = rest(rounds);
  chaos_.laws.set_at_peace(false);
  return rests;
}

/// Everybody does what is due, and five seconds pass.
void World::round() {
  if (!chaos_.late.empty() && chaos_.chance(0.5)) carry_out_late();
  kueue_.act();
  drain();
  autoscale();
  launchers_.schedule();
  launchers_.run_pods(true);
  drain();
  collect_garbage();
  clock_.advance(std::chrono::seconds(5));
}

/// A gang that trains is told of a cordoned node within a minute.
void World::check_warnings() {
  constexpr int kStepsOfAMinute = 13;
  const auto cordoned = [](const auto& entry) { return entry.second.cordoned; };
  if (std::ranges::none_of(facts().nodes, cordoned)) return;
  for (int i = 0; i < kStepsOfAMinute && !broken(); ++i) {
    clock_.advance(std::chrono::seconds(5));
    drain();
  }
  for (const auto& [name, pod] : Facts(facts()).pods) {
    const JobFacts* job = facts().job_of(pod);
    const auto node = facts().nodes.find(pod.node);
    if (job == nullptr || !job->running || node == facts().nodes.end() || !node->second.cordoned ||
        pod.placeholder || pod.ended() || pod.deleting || !launchers_.trains(job->uid))
      continue;
    if (!chaos_.laws.was_told(job->uid, pod.node))
      report(Law::kWarnsInTime,
             job->name + " trains and was not told that " + pod.node + " is cordoned");
  }
}

/// The last refusal that was told, or the status, names the verb and the kind.
bool World::says_what_is_forbidden() const {
  for (const auto& [name, job] : facts().jobs) {
    if (status(name).dump().contains("is forbidden")) return true;
    const auto told = operators_.back()->controller.facts("default/" + name);
    if (told && told->failure && told->failure->message.contains("is forbidden")) return true;
  }
  return false;
}

/// A pod whose image cannot be pulled is named by its job within a minute.
void World::check_missing_images() {
  constexpr int kRoundsOfAMinute = 12;
  const auto waits = [](const auto& entry) { return entry.second.lacks_image; };
  if (!launchers_.lack_images() || std::ranges::none_of(facts().pods, waits)) return;
  for (int i = 0; i < kRoundsOfAMinute && !broken(); ++i) round();
  for (const auto& [name, pod] : facts().pods) {
    const JobFacts* job = facts().job_of(pod);
    if (!pod.lacks_image || pod.deleting || job == nullptr || job->finished()) continue;
    // A replacement that no node takes is told first: an image would not help the gang.
    if (job->message.find("no node takes") != std::string::npos) continue;
    if (job->message.find(kMissingImage) == std::string::npos)
      report(Law::kNamesMissingImages,
             name + " has had no image for a minute, and " + job->name + " says: " + job->message);
  }
}

bool World::rest(int rounds) {
  // Long enough for back-off, time-outs and deadlines, also for those that a clock jump delayed.
  const int enough = 20 + (clock_jumped_ ? 100 : 0);
  // A job whose nodes do not come says so once, ten minutes after it has asked for them.
  constexpr int kRoundsOfPatience = 130;
  int still = 0;
  const auto limit = [&] {
    return rounds + enough + (facts().any_placeholder() ? kRoundsOfPatience : 0);
  };
  for (int i = 0; i < limit() && !broken(); ++i) {
    const std::uint64_t before = cluster_.resource_version();
    const std::uint64_t writes = chaos_.writes;
    round();
    const bool quiet = cluster_.resource_version() == before && chaos_.writes == writes;
    still = quiet && chaos_.late.empty() ? still + 1 : 0;
    if (still == enough) return true;
  }
  return false;
}

bool World::clear() {
  for (const auto& [name, job] : Facts(facts()).jobs) {
    if (!plain_->remove(kube::kTrainingJobs, "default", name)) return false;
  }
  launchers_.let_go(true);
  cluster_.collect_garbage();
  if (!settle(kRounds)) return false;
  return std::all_of(facts().pods.begin(), facts().pods.end(),
                     [](const auto& entry) { return entry.first == "bystander"; });
}

}  // namespace paceline::sim
