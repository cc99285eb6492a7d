// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "operator/plan/job/outcome.hpp"
#include "operator/plan/placement/quota.hpp"
#include "operator/plan/queue/scheduler.hpp"
#include "operator/status/phase.hpp"

namespace paceline::plan {
namespace {

observe::NodeView node(const std::string& name, int cpu) {
  observe::NodeView view;
  view.meta.name = name;
  view.ready = true;
  view.allocatable.cpu = cpu * 1000;
  view.allocatable.memory = 1LL << 50;
  view.allocatable.pods = 110000;
  return view;
}

struct Fleet {
  explicit Fleet(std::vector<observe::NodeView> views) : nodes(std::move(views)) {
    for (const auto& view : nodes) input.rooms.push_back({&view, view.allocatable});
  }
  void queue(const std::string& name, int pods, int cpu, int priority = 0, int age_seconds = 0,
             const std::string& ns = "default") {
    QueuedGang gang{name,
                    name,
                    ns,
                    ns,
                    priority,
                    WallTime(std::chrono::seconds(1000 - age_seconds)),
                    {need(pods, cpu)}};
    input.now = WallTime(std::chrono::seconds(1000));
    input.queued.push_back(std::move(gang));
  }
  void run(const std::string& name, const std::string& where, int cpu, int priority = 0) {
    RunningGang gang{name, name, "default", priority, {}, false, {{where, need(1, cpu).each}}};
    for (Room& room : input.rooms) {
      if (room.node->meta.name == where) room.free.subtract(need(1, cpu).each);
    }
    input.running.push_back(std::move(gang));
  }
  static Need need(int pods, int cpu) {
    Need need{"worker", {}, {}, pods};
    need.each.cpu = cpu * 1000;
    need.each.pods = 1000;
    return need;
  }
  std::vector<observe::NodeView> nodes;
  SchedulerInput input;
};

TEST(Scheduler, AGangHasSlotsWhereAllOfItHasThemAndElseCopies) {
  const auto offers = [](observe::NodeView view, int slots) {
    view.allocatable.set("paceline.dev/runtime", slots * 1000);
    return view;
  };
  Fleet fleet({node("a", 4), offers(node("b", 4), 2), offers(node("c", 4), 1)});
  fleet.queue("pair", 2, 1);
  auto output = schedule(fleet.input);
  EXPECT_EQ(output.placements.at("pair"), (std::vector<std::string>{"b", "b"}));
  EXPECT_TRUE(output.slotted.contains("pair"));
  // Three pods of three CPUs need three nodes, one of which offers no slot. The gang does not wait
  // for slots.
  Fleet wide({node("a", 4), offers(node("b", 4), 2), offers(node("c", 4), 1)});
  wide.queue("wide", 3, 3);
  output = schedule(wide.input);
  EXPECT_EQ(output.placements.at("wide").size(), 3U);
  EXPECT_TRUE(output.slotted.empty());
  // The next gang cannot use what the first one took.
  Fleet many({offers(node("b", 8), 2)});
  many.queue("first", 2, 1, 0, 2);
  many.queue("second", 2, 1, 0, 1);
  output = schedule(many.input);
  EXPECT_EQ(output.placements.size(), 2U);
  EXPECT_EQ(output.slotted, std::set<std::string>{"first"});
  // A quota on slots does not hold back a gang that can do without slots.
  observe::QuotaView quota;
  quota.hard = {{"requests.paceline.dev/runtime", 1000}};
  quota.used = {{"requests.paceline.dev/runtime", 0}};
  Fleet bounded({offers(node("b", 8), 2)});
  bounded.input.quotas["default"] = {quota};
  bounded.queue("pair", 2, 1);
  output = schedule(bounded.input);
  EXPECT_EQ(output.placements.size(), 1U);
  EXPECT_TRUE(output.slotted.empty());
  // Nor does a gang whose last pods found launchers of two releases.
  Fleet mixed({offers(node("b", 4), 2)});
  mixed.queue("pair", 2, 1);
  mixed.input.queued.front().copies = true;
  EXPECT_TRUE(schedule(mixed.input).slotted.empty());
}

TEST(Scheduler, AnExceptionAboutOneGangIsItsAnswerAndNoOthers) {
  Fleet fleet({node("a", 4)});
  fleet.queue("broken", -1, 1, 0, 5);  // so many pods fit into no list
  fleet.input.queued.front().by_other = true;
  fleet.queue("next", 2, 1);
  const auto output = schedule(fleet.input);
  EXPECT_EQ(output.waiting.at("broken").reason, kInternalError);
  EXPECT_FALSE(output.placements.contains("broken"));
  EXPECT_EQ(output.placements.at("next").size(), 2U);
}

TEST(Scheduler, WholeGangOrNothing) {
  Fleet fleet({node("a", 4), node("b", 4)});
  fleet.queue("fits", 2, 3);
  auto output = schedule(fleet.input);
  EXPECT_EQ(output.placements.at("fits"), (std::vector<std::string>{"a", "b"}));
  fleet.run("other", "a", 2);
  output = schedule(fleet.input);
  EXPECT_TRUE(output.placements.empty());
  EXPECT_EQ(output.waiting.at("fits").reason, "WaitingForRoom");
  EXPECT_EQ(output.waiting.at("fits").message,
            "worker: 1 of 2 pods fit on 2 nodes; 1 not enough cpu");
}

TEST(Scheduler, NeighboursInRankShareNodes) {
  Fleet fleet({node("a", 4), node("b", 8), node("c", 2)});
  fleet.queue("gang", 6, 2);
  EXPECT_EQ(schedule(fleet.input).placements.at("gang"),
            (std::vector<std::string>{"b", "b", "b", "b", "a", "a"}));
}

TEST(Scheduler, PriorityThenShareThenAge) {
  Fleet fleet({node("a", 4)});
  fleet.queue("young-high", 1, 4, 10, 1);
  fleet.queue("old-low", 1, 4, 0, 100);
  EXPECT_TRUE(schedule(fleet.input).placements.contains("young-high"));
  Fleet shares({node("a", 4), node("b", 4)});
  shares.run("busy", "a", 4);
  shares.queue("old-same-queue", 1, 4, 0, 100);
  shares.queue("young-other-queue", 1, 4, 0, 1, "other");
  EXPECT_TRUE(schedule(shares.input).placements.contains("young-other-queue"));
}

TEST(Scheduler, OnlyAcceleratorsWeighAsAccelerators) {
  const auto weight = [](std::initializer_list<std::pair<const char*, int>> resources) {
    observe::Resources amount;
    for (const auto& [name, units] : resources) amount.set(name, units * 1000);
    return share_weight(amount);
  };
  EXPECT_EQ(weight({{"nvidia.com/gpu", 2}}), 32);
  EXPECT_EQ(weight({{"nvidia.com/gpu", 2}, {"rdma/hca", 2}, {"paceline.dev/runtime", 1}}), 32);
  EXPECT_EQ(weight({{"google.com/tpu", 1}}), 16);
}

TEST(Scheduler, BackfillCannotDelayTheHead) {
  Fleet fleet({node("a", 4), node("b", 8)});
  fleet.run("long", "b", 6);
  fleet.queue("head", 1, 8, 1);     // needs all of b, once `long` has ended
  fleet.queue("on-b", 1, 2, 0, 9);  // would fit on b now, but then b would not be free for `head`
  fleet.queue("on-a", 2, 2, 0, 1);
  const auto output = schedule(fleet.input);
  EXPECT_FALSE(output.placements.contains("head"));
  for (const auto& [id, places] : output.placements) {
    for (const auto& place : places) EXPECT_EQ(place, "a") << id;
  }
  EXPECT_FALSE(output.placements.empty());
}

TEST(Scheduler, PreemptsWholeGangsOfLowerPriorityOnly) {
  Fleet fleet({node("a", 4), node("b", 4)});
  fleet.run("low", "a", 4, 1);
  fleet.run("same", "b", 4, 5);
  fleet.queue("high", 1, 4, 5);
  const auto output = schedule(fleet.input);
  EXPECT_EQ(output.preempt, (std::map<std::string, std::string>{{"low", "high"}}));
  EXPECT_EQ(output.waiting.at("high").reason, "Preempting");
}

TEST(Scheduler, PreemptsNoMoreGangsThanTheRoomNeeds) {
  Fleet fleet({node("a", 4), node("b", 4), node("c", 4)});
  fleet.run("one", "a", 4, 1);
  fleet.run("two", "b", 4, 1);
  fleet.run("three", "c", 4, 1);
  fleet.queue("high", 1, 4, 5);
  EXPECT_EQ(schedule(fleet.input).preempt.size(), 1U);
}

/// What holds the bar of 100 ms for 500 gangs on 10,000 nodes: bench/placement takes the time.
TEST(Scheduler, ALongQueueSearchesTheNodesOnceForEachShapeOfGang) {
  constexpr int kGangs = 500;
  constexpr int kShapes = 50;
  constexpr int kRunning = 100;
  std::vector<observe::NodeView> nodes;
  for (int i = 0; i < kRunning; ++i) nodes.push_back(node("n" + std::to_string(i), 4));
  Fleet fleet(std::move(nodes));
  for (int i = 0; i < kRunning; ++i)
    fleet.run("r" + std::to_string(i), "n" + std::to_string(i), 4, i % 2);
  for (int i = 0; i < kGangs; ++i)
    fleet.queue("q" + std::to_string(i), kRunning - i % kShapes, 4, 1, i);
  PassNotes notes;
  const auto output = schedule(fleet.input, &notes);
  EXPECT_EQ(output.waiting.size(), static_cast<std::size_t>(kGangs));
  // Each shape once as the cluster is and once as if nothing ran, and a few for the first gang,
  // which looks for others to preempt.
  EXPECT_GE(notes.searches, 2U * kShapes);
  EXPECT_LE(notes.searches, 2U * kShapes + 4U);
}

TEST(Scheduler, NodesWithFaultyGpusAreTakenLast) {
  Fleet fleet({node("a", 8), node("b", 4), node("c", 4)});
  observe::FabricView faulty;
  faulty.gpu_healthy = observe::Verdict::kFalse;
  fleet.input.rooms[0].fabric = &faulty;
  fleet.queue("trains", 4, 2);
  EXPECT_EQ(schedule(fleet.input).placements.at("trains"),
            (std::vector<std::string>{"a", "a", "a", "a"}))
      << "nothing of GPUs matters to it";
  fleet.input.queued[0].needs[0].accelerators = true;
  EXPECT_EQ(schedule(fleet.input).placements.at("trains"),
            (std::vector<std::string>{"b", "b", "c", "c"}));
  fleet.input.queued[0].needs[0].count = 5;
  EXPECT_EQ(schedule(fleet.input).placements.at("trains"),
            (std::vector<std::string>{"b", "b", "c", "c", "a"}));
}

TEST(Scheduler, AGangThatSpansNodesTakesThoseWithBadLinksLast) {
  Fleet fleet({node("a", 4), node("b", 4), node("c", 4), node("d", 4), node("e", 8)});
  const auto measured = [](std::int64_t mbps) {
    observe::FabricView fabric;
    fabric.link_mbps = mbps;
    return fabric;
  };
  const auto slow = measured(4000);
  const auto good = measured(10000);
  const auto boasts = measured(INT64_MAX);
  fleet.input.rooms[0].fabric = &slow;
  fleet.input.rooms[1].fabric = &good;
  fleet.queue("wide", 5, 4);
  EXPECT_EQ(schedule(fleet.input).placements.at("wide"),
            (std::vector<std::string>{"e", "e", "a", "b", "c"}))
      << "one other is no measure";
  fleet.input.rooms[2].fabric = &good;
  EXPECT_EQ(schedule(fleet.input).placements.at("wide"),
            (std::vector<std::string>{"e", "e", "b", "c", "d"}))
      << "room goes first, and what nobody measured is not bad";
  fleet.input.queued[0].needs[0].count = 6;
  EXPECT_EQ(schedule(fleet.input).placements.at("wide"),
            (std::vector<std::string>{"e", "e", "b", "c", "d", "a"}));
  fleet.input.queued[0].needs[0].count = 1;
  EXPECT_EQ(schedule(fleet.input).placements.at("wide"), (std::vector<std::string>{"a"}))
      << "spans nothing";

  Fleet boasting({node("a", 4), node("b", 4), node("c", 4)});
  boasting.input.rooms[0].fabric = &good;
  boasting.input.rooms[1].fabric = &good;
  boasting.input.rooms[2].fabric = &boasts;
  boasting.queue("wide", 2, 4);
  EXPECT_EQ(schedule(boasting.input).placements.at("wide"), (std::vector<std::string>{"a", "b"}))
      << "one node that boasts does not make the others bad";
}

TEST(Projections, OfMeasuredLinksTheMedianCounts) {
  const auto mbps = [](const char* links) {
    return observe::project_fabric(std::string(R"({"status":{"links":)") + links + "}}")->link_mbps;
  };
  EXPECT_EQ(mbps("[]"), 0);
  EXPECT_EQ(mbps("7"), 0);
  EXPECT_EQ(
      mbps(
          R"([{"peer":"a","bandwidthMbps":900},{"peer":"b","bandwidthMbps":10},{"peer":"c","bandwidthMbps":800}])"),
      800);
}

TEST(Scheduler, RequiredGpuDirectTakesOnlyNodesThatAreReady) {
  Fleet fleet({node("a", 8), node("b", 8), node("c", 8), node("d", 8)});
  const auto view = [](observe::Verdict ready, const char* reason) {
    observe::FabricView fabric;
    fabric.gpu_direct = ready;
    fabric.gpu_direct_reason = reason;
    return fabric;
  };
  const auto broken = view(observe::Verdict::kFalse, "acs");
  const auto unproved = view(observe::Verdict::kUnknown, "NotProved");
  const auto ready = view(observe::Verdict::kTrue, "Registered");
  fleet.input.rooms[0].fabric = &broken;
  fleet.input.rooms[1].fabric = &unproved;
  for (Room& room : fleet.input.rooms) room.agent_alive = true;
  fleet.queue("picky", 1, 2);
  fleet.input.queued[0].needs[0].constraints.gpu_direct = true;
  auto output = schedule(fleet.input);
  EXPECT_TRUE(output.placements.empty());
  EXPECT_EQ(output.waiting.at("picky").reason, "GpuDirectNotReady");
  EXPECT_EQ(output.waiting.at("picky").message,
            "spec.network.gpuDirect is Required: worker: 0 of 1 pods fit on 4 nodes; 1 not "
            "GpuDirectReady (NotProved), 1 "
            "not GpuDirectReady (acs), 2 without a living agent's word on GPUDirect; `kubectl get "
            "nodefabrics -o wide` shows "
            "why");
  // It holds back no resources from others.
  fleet.queue("easy", 4, 8);
  EXPECT_EQ(schedule(fleet.input).placements.at("easy"),
            (std::vector<std::string>{"a", "b", "c", "d"}));
  fleet.input.queued.pop_back();
  fleet.input.rooms[2].fabric = &ready;
  EXPECT_EQ(schedule(fleet.input).placements.at("picky"), std::vector<std::string>{"c"});
  // The report of a dead agent no longer counts.
  fleet.input.rooms[2].agent_alive = false;
  EXPECT_EQ(schedule(fleet.input).waiting.at("picky").reason, "GpuDirectNotReady");
  fleet.input.rooms[2].agent_alive = true;
  // A node on which this job has failed is not used either; other jobs may use it.
  fleet.input.queued[0].needs[0].constraints.excluded = {"c"};
  const Waiting kept_off = schedule(fleet.input).waiting.at("picky");
  EXPECT_EQ(kept_off.reason, "GpuDirectNotReady");
  EXPECT_NE(kept_off.message.find("1 where this job failed"), std::string::npos)
      << kept_off.message;
  fleet.input.queued[0].needs[0].constraints.excluded.clear();
  // If the only ready node is full, the gang waits for it and says so.
  fleet.run("other", "c", 7);
  EXPECT_EQ(schedule(fleet.input).waiting.at("picky").reason, "WaitingForRoom");
  // A gang that can never fit is reported as too large.
  fleet.input.queued[0].needs[0].each.cpu = 9000;
  EXPECT_EQ(schedule(fleet.input).waiting.at("picky").reason, "TooLarge");
}

TEST(Scheduler, QuotaKeepsBackTheGangAndItsNamespace) {
  Fleet fleet({node("a", 64)});
  observe::QuotaView quota;
  quota.meta.name = "three";
  quota.hard = {{"pods", 3000}};
  quota.used = {{"pods", 0}};
  fleet.input.quotas["default"].push_back(quota);
  fleet.queue("one", 2, 1, 0, 10);
  fleet.queue("two", 2, 1, 0, 5);
  const auto output = schedule(fleet.input);
  EXPECT_TRUE(output.placements.contains("one"));
  EXPECT_EQ(output.waiting.at("two").reason, "QuotaExceeded");
  EXPECT_EQ(output.waiting.at("two").message, "quota three: pods: 2 needed, 1 of 3 left");
}

TEST(Constraints, TaintsSelectorsAndAffinity) {
  auto view = node("a", 4);
  view.labels.emplace_back("gpu", "h200");
  view.labels.emplace_back("zone", "z1");
  const auto why = [&](const char* spec) {
    return refusal(read_constraints(nlohmann::json::parse(spec)), view);
  };
  EXPECT_EQ(why(R"({"nodeSelector":{"gpu":"h200"}})"), "");
  EXPECT_EQ(why(R"({"nodeSelector":{"gpu":"a100"}})"), "node selector");
  const char* affinity =
      R"({"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[
      {"matchExpressions":[{"key":"zone","operator":"In","values":["z2"]}]},{"matchExpressions":[{"key":"gpu","operator":"Exists"}]}]}}}})";
  EXPECT_EQ(why(affinity), "");
  view.taints = {{"dedicated", "ml", "NoSchedule"}};
  EXPECT_EQ(why("{}"), "taint dedicated");
  EXPECT_EQ(why(R"({"tolerations":[{"key":"dedicated","value":"ml","effect":"NoSchedule"}]})"), "");
  view.unschedulable = true;
  EXPECT_EQ(why("{}"), "cordoned");
}

observe::PodView ended(int code, const std::string& reason, const std::string& message) {
  observe::PodView pod;
  pod.meta.name = "p";
  pod.phase = observe::PodPhase::kFailed;
  pod.gang = std::make_unique<observe::GangMember>();
  pod.gang->trainer = observe::TrainerState::kTerminated;
  pod.gang->exit_code = code;
  pod.gang->reason = reason;
  pod.gang->termination_message = message;
  return pod;
}

TEST(Judgement, LauncherFirstThenExitCode) {
  EXPECT_EQ(judge(nullptr).outcome, Outcome::kAbsent);
  auto pod = ended(137, "OOMKilled", "");
  EXPECT_EQ(judge(&pod).outcome, Outcome::kKilled);
  EXPECT_EQ(judge(&pod).kind, "OOMKilled");
  pod = ended(64, "Error", R"({"version":1,"verdict":"Failed","culprit":{"rank":3,"exitCode":1}})");
  EXPECT_EQ(judge(&pod).outcome, Outcome::kJobFailed);
  EXPECT_EQ(judge(&pod).report->culprit["rank"], 3);
  pod = ended(143, "Error", R"({"version":1,"verdict":"Terminated"})");
  EXPECT_EQ(judge(&pod).outcome, Outcome::kLost);
  pod = ended(65, "Error", R"({"version":1,"verdict":"BadContract","message":"remove --nnodes"})");
  EXPECT_EQ(judge(&pod).outcome, Outcome::kBadContract);
  pod =
      ended(67, "Error", R"({"version":1,"verdict":"PreflightFailed","message":"memlock fails"})");
  EXPECT_EQ(judge(&pod).outcome, Outcome::kUnfit);
  EXPECT_EQ(judge(&pod).kind, "PreflightFailed");
  EXPECT_EQ(judge(&pod).message, "memlock fails");
  pod = ended(68, "Error", R"({"version":1,"verdict":"ReplaceNode","message":"rank 1 hung"})");
  EXPECT_EQ(judge(&pod).outcome, Outcome::kLost);
  EXPECT_EQ(judge(&pod).kind, "ReplaceNode");
  pod = ended(67, "Error", "not json");
  EXPECT_EQ(judge(&pod).message, "pod p lacks what the job requires of it");
  pod = ended(66, "Error", "not json");
  EXPECT_EQ(judge(&pod).kind, "RendezvousTimeout");
}

TEST(Phase, OneFunctionOfTheConditions) {
  api::JobStatus status;
  const auto phase = [&] {
    status::compute_phase(status);
    return status.phase;
  };
  EXPECT_EQ(phase(), "Queued");
  status::set_condition(status, status::kPlaced, true, "Creating", "", {});
  EXPECT_EQ(phase(), "Starting");
  status::set_condition(status, status::kRunning, true, "PodsRunning", "", {});
  EXPECT_EQ(phase(), "Running");
  status::set_condition(status, status::kRestarting, true, "OOMKilled", "", {});
  EXPECT_EQ(phase(), "Restarting");
  status::set_condition(status, status::kFailed, true, "RanksFailed", "rank 3", {});
  EXPECT_EQ(phase(), "Failed");
  EXPECT_EQ(status.message, "rank 3");
  status::set_condition(status, status::kFailed, false, "Other", "", {});
  EXPECT_TRUE(status.is_true(status::kFailed)) << "terminal conditions never revert";
}

TEST(Phase, AMessageInAnotherEncodingCanBeWritten) {
  api::JobStatus status;
  status::set_condition(status, status::kPlaced, false, "CreateRefused", "refus\xe9", {});
  EXPECT_EQ(status.find(status::kPlaced)->message, "refus?");
  EXPECT_NO_THROW((void)api::write_status(status).dump());
}

}  // namespace
}  // namespace paceline::plan
