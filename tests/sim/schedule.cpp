// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/schedule.hpp"

#include <algorithm>
#include <array>

namespace paceline::sim {
namespace {

constexpr int kCpuPerNode = 4;
constexpr int kLargestGang = 3;              // of one role
constexpr int kMostPods = 4;                 // of several roles
constexpr std::uint64_t kWritesPerPod = 40;  // upper bound for coming to rest

class Schedule {
 public:
  Schedule(std::uint64_t seed, const Rates& rates, Defect defect)
      : seed_(seed),
        random_(seed * 7919 + 13),
        nodes_(1 + pick(4)),
        overhead_(pick(4) == 0 ? 1 : 0),
        rates_(rates),
        first_nodes_(rates.grow > 0 ? pick(nodes_ + 1) : nodes_),
        world_(seed, first_nodes_, kCpuPerNode, defect) {}

  std::optional<Broken> run() {
    world_.set_rates(rates_);
    world_.add_autoscaler(nodes_);
    const int jobs = 1 + pick(3);
    const int steps = 40 + pick(160);
    const bool bystander = pick(4) == 0;  // a pod of another owner, which also uses the quota
    if (pick(3) == 0) world_.add_quota(kMostPods + (bystander ? 1 : 0));
    if (overhead_ > 0) world_.add_overhead();
    if (rates_.kueue > 0 && pick(100) < rates_.kueue * 100) {
      world_.add_kueue(kMostPods);
      kueue_queue_ = kKueueQueue;
    }
    for (int i = 0; i < jobs; ++i) shapes_.push_back(shape(i));
    world_.add_job(shapes_[0]);
    if (bystander) world_.add_bystander(shapes_[0].name);
    std::size_t added = 1;
    for (int i = 0; i < steps && !world_.broken(); ++i) {
      if (added < shapes_.size() && pick(20) == 0) world_.add_job(shapes_[added++]);
      world_.step();
      last_step_ = i;
    }
    while (added < shapes_.size()) world_.add_job(shapes_[added++]);
    if (!world_.broken()) rest();
    if (!world_.broken() && !world_.clear())
      world_.report(Law::kNothingLeft, "something is left when every job is deleted");
    if (!world_.broken()) return std::nullopt;
    Broken broken = *world_.broken();
    broken.what = "seed " + std::to_string(seed_) + ", step " + std::to_string(last_step_) + ": " +
                  std::string(name_of(broken.law)) + ": " + broken.what;
    return broken;
  }

 private:
  int pick(int size) { return std::uniform_int_distribution<int>(0, size - 1)(random_); }

  JobShape shape(int number) {
    constexpr std::array kClean{"Running", "Running", "All", "None"};
    JobShape shape{.name = std::string(1, static_cast<char>('a' + number)),
                   .replicas = 1 + pick(kLargestGang),
                   .max_restarts = pick(4)};
    shape.may_grow = rates_.grow > 0;
    shape.replicas = std::min(shape.replicas, nodes_ * (kCpuPerNode / (1 + overhead_)));
    // A job that fits: there is room for at least that many pods of this size.
    do shape.cpu = 1 + pick(kCpuPerNode - overhead_);
    while (nodes_ * (kCpuPerNode / (shape.cpu + overhead_)) < shape.replicas);
    if (pick(5) == 0) shape.wrong_type = 1 + pick(5);
    shape.clean_pod_policy = kClean[static_cast<std::size_t>(pick(4))];
    shape.success_policy = pick(3) == 0 ? "RankZero" : "AllRanks";
    if (pick(6) == 0) shape.ttl = "30s";
    if (pick(100) < rates_.roles * 100) give_roles(shape);
    constexpr std::array kActions{"FailJob", "RestartGang", "ReplaceNode", "Ignore"};
    if (rates_.rules > 0 && pick(100) < rates_.rules * 100)
      shape.oom_action = kActions[static_cast<std::size_t>(pick(4))];
    // Without a draw, so that seeds on record keep their schedules.
    const int in_leaf = std::min(nodes_, kNodesOfLeaf) * (kCpuPerNode / (shape.cpu + overhead_));
    shape.one_leaf =
        (seed_ + static_cast<std::uint64_t>(number)) % 4 == 0 && shape.replicas <= in_leaf;
    shape.prefers_leaf = (seed_ + static_cast<std::uint64_t>(number)) % 4 == 2;
    // Some jobs of such a cluster are not Kueue's.
    if (!kueue_queue_.empty() && pick(4) > 0) shape.kueue_queue = kueue_queue_;
    if (rates_.elastic > 0 && pick(100) < rates_.elastic * 100) make_elastic(shape);
    // Without a draw, for the same reason.
    if ((seed_ + static_cast<std::uint64_t>(number)) % 5 == 2 && rates_.grow == 0 &&
        !shape.one_leaf && shape.fewest == 0)
      shape.backend = number % 2 == 0 ? "Volcano" : "PodGroup";
    if ((seed_ + static_cast<std::uint64_t>(number)) % 7 == 3 && shape.roles.empty() &&
        shape.fewest == 0 && shape.replicas > 2)
      shape.spares = 1 + static_cast<int>(seed_ % 2 == 0 && shape.replicas > 3);
    // Parameter servers must know the ports of a worker that is replaced alone.
    shape.host_network = seed_ % 3 == 0 && shape.backend.empty() &&
                         std::ranges::count(shape.roles, contract::RoleKind::kParameterServer,
                                            &RoleShape::kind) == 0;
    shape.lacks_an_image = rates_.bad_image > 0 && pick(100) < rates_.bad_image * 100;
    return shape;
  }

  /// Lets its workers change in number. It may want more than there is ever room for.
  void make_elastic(JobShape& shape) {
    using enum contract::RoleKind;
    int workers = shape.replicas;
    for (const RoleShape& role : shape.roles)
      workers = role.kind == kWorker ? role.replicas : workers;
    if (!shape.roles.empty() && std::ranges::count(shape.roles, kWorker, &RoleShape::kind) != 1)
      return;
    shape.fewest = 1 + pick(workers);
    shape.most = workers + pick(kLargestGang);
    shape.wanted = shape.fewest + pick(shape.most - shape.fewest + 1);
    // All that Kueue admits must have room.
    if (!shape.kueue_queue.empty()) shape.most = workers;
    shape.wanted = std::min(shape.wanted, shape.most);
  }

  /// Makes it a job of several kinds of roles, if there is room for so many pods.
  void give_roles(JobShape& shape) {
    using enum contract::RoleKind;
    using Roles = std::vector<RoleShape>;
    static const std::array<std::pair<const char*, Roles>, 8> kJobs{{
        {"Custom", Roles{{kParameterServer}, {kWorker, 2}, {kEvaluator}}},
        {"Custom", Roles{{kWorker, 2}, {kEvaluator}}},
        {"Custom", Roles{{kCoordinator}, {kWorker, 1, 2, true}, {kParameterServer}}},
        {"Custom", Roles{{kScheduler}, {kParameterServer}, {kWorker}}},
        {"TensorFlow", Roles{{kCoordinator}, {kWorker}, {kParameterServer}, {kEvaluator}}},
        {"PaddlePaddle", Roles{{kParameterServer}, {kWorker, 2, 0, true}}},
        {"BytePS", Roles{{kScheduler}, {kParameterServer}, {kWorker, 2}}},
        {"MPI", Roles{{kLauncher}, {kWorker, 2}}},
    }};
    const auto& [framework, roles] = kJobs[static_cast<std::size_t>(pick(8))];
    int pods = 0;
    for (const RoleShape& role : roles) pods += role.replicas;
    if (nodes_ * (kCpuPerNode / (shape.cpu + overhead_)) < pods) return;
    shape.framework = framework;
    shape.roles = roles;
    shape.replicas = pods;
  }

  bool may_fail() const {
    // Launchers that give up wait for an image; whoever deletes that pod leaves their end alone.
    const bool gives_up = rates_.bad_image > 0 && rates_.delete_pod > 0;
    return rates_.kill_pod > 0 || rates_.fail_rank > 0 || rates_.evict > 0 || gives_up;
  }

  void rest() {
    const std::uint64_t before = world_.operator_writes();
    if (!world_.settle(kRounds))
      world_.report(Law::kComesToRest, "still writes ten minutes after the last fault");
    std::uint64_t pods = 0;
    for (const JobShape& shape : shapes_)
      pods += static_cast<std::uint64_t>(shape.replicas + shape.most);
    const std::uint64_t writes = world_.operator_writes() - before;
    if (writes > kWritesPerPod * pods) {
      world_.report(Law::kFewWrites, std::to_string(writes) + " writes for " +
                                         std::to_string(pods) + " pods to come to rest");
    }
    for (const auto& [name, pod] : world_.facts().pods) {
      if (pod.stray && !pod.over())
        world_.report(Law::kStraysGo, name + " lives, and was created long after it was asked for");
    }
    for (const auto& [name, pod] : world_.facts().pods) {
      const JobFacts* job = world_.facts().job_of(pod);
      if (job != nullptr && job->nodes.empty() && !pod.over())
        world_.report(Law::kQueuedHoldsNothing, name + " lives and its job has no place");
      if (job != nullptr && job->finished() && !pod.ended())
        world_.report(Law::kNobodyWaits, name + " lives and its job has ended");
    }
    for (const auto& [group, least] : world_.facts().pod_groups) {
      const auto needed = std::ranges::any_of(world_.facts().jobs, [&](const auto& job) {
        return job.second.pod_group == group && !job.second.finished() && !job.second.nodes.empty();
      });
      // It may have come when the gang had ended. It goes with its job.
      if (!needed && !world_.facts().late_groups.contains(group))
        world_.report(Law::kInItsGroup, group + " is left, and no job runs in it");
    }
    for (const JobShape& shape : shapes_) {
      if (world_.was_deleted(shape.name)) continue;
      const auto job = world_.facts().jobs.find(shape.name);
      if (shape.wrong_type > 0) {
        if (world_.status(shape.name)["reason"] != "InvalidSpec")
          world_.report(Law::kEveryJobEnds, shape.name +
                                                " has a field of a wrong type and rests as " +
                                                world_.status(shape.name).dump());
        continue;
      }
      if (job == world_.facts().jobs.end()) {
        if (shape.ttl.empty()) world_.report(Law::kEveryJobEnds, shape.name + " is gone");
        continue;
      }
      // It may need the nodes that it avoids, longer than the simulation waits. So may a replica
      // that fails alone: the others train on, and no gangTimeout queues the job again.
      const bool lacks_a_node =
          job->second.phase == "Queued" ||
          (job->second.replacing && job->second.message.contains("no node takes"));
      if (lacks_a_node && !job->second.excluded.empty()) continue;
      if (job->second.phase != "Succeeded" && !(may_fail() && job->second.phase == "Failed"))
        world_.report(Law::kEveryJobEnds,
                      shape.name + " rests as " + world_.status(shape.name).dump());
    }
  }

  const std::uint64_t seed_;
  std::mt19937_64 random_;
  const int nodes_;     // in the end
  const int overhead_;  // CPUs that admission adds to each pod
  const Rates rates_;
  const int first_nodes_;
  World world_;
  std::vector<JobShape> shapes_;
  std::string kueue_queue_;  // empty: Kueue does not run
  int last_step_ = 0;
};

}  // namespace

std::optional<Broken> run_schedule(std::uint64_t seed, const Rates& rates, Defect defect) {
  return Schedule(seed, rates, defect).run();
}

}  // namespace paceline::sim
