// SPDX-License-Identifier: Apache-2.0
// Behaviour of plan, scheduler and writes together.
#include <gtest/gtest.h>

#include <algorithm>

#include "common/base/timestamp.hpp"
#include "tests/unit/operator/controller_bench.hpp"

namespace paceline::apply {
namespace {

using nlohmann::json;
using std::chrono::minutes;

TEST(Controller, ASuspendedJobGivesItsQuotaAndItsPlaceToTheNext) {
  ControllerBench bench;
  bench.add_node("n0", 2);
  bench.create(kube::kResourceQuotas, "default",
               {{"metadata", {{"name", "q"}}}, {"spec", {{"hard", {{"pods", "3"}}}}}});
  bench.settle();
  bench.add_job("first");
  bench.settle();
  bench.add_job("second");
  bench.settle();
  ASSERT_EQ(bench.job("first")["status"]["phase"], "Running");
  ASSERT_EQ(bench.job("second")["status"]["reason"], "QuotaExceeded")
      << bench.job("second")["status"].dump(1);
  EXPECT_EQ(bench.condition("first", "QuotaReserved")["status"], "True");

  bench.patch_job("first", {{"spec", {{"suspend", true}}}});
  bench.settle();
  EXPECT_EQ(bench.job("first")["status"]["phase"], "Suspended");
  EXPECT_EQ(bench.condition("first", "QuotaReserved")["status"], "False");
  EXPECT_TRUE(bench.pods("first").empty());
  EXPECT_EQ(bench.job("second")["status"]["phase"], "Running")
      << bench.job("second")["status"].dump(1);

  bench.patch_job("first", {{"spec", {{"suspend", false}}}});
  bench.settle();
  EXPECT_EQ(bench.job("first")["status"]["phase"], "Queued");
  bench.finish("second");
  bench.settle();
  EXPECT_EQ(bench.job("first")["status"]["phase"], "Running")
      << bench.job("first")["status"].dump(1);
  EXPECT_EQ(bench.job("first")["status"]["attempt"], 1);
}

/// Answers to writes of status are lost, and with `blind` the reads that look for them fail.
void expect_phases_told_once(bool blind) {
  ControllerBench bench;
  bench.add_node("n0", 2);
  bench.add_job("j");
  int lost = 0;
  int blinded = 0;
  bench.cluster().set_faults([&](const http::Request& request) -> std::optional<kube::Fault> {
    const bool status =
        request.method == "PATCH" && request.target.find("/status") != std::string::npos;
    if (status && ++lost > 0) return kube::Fault{.drop_after_apply = true};
    const bool look =
        request.method == "GET" && request.target.find("/trainingjobs/j") != std::string::npos;
    if (look && blind && ++blinded % 2 == 1) return kube::Fault{.status = 500};
    return std::nullopt;
  });
  bench.settle();
  bench.finish("j");
  bench.settle();
  bench.cluster().set_faults({});
  EXPECT_EQ(bench.job("j")["status"]["phase"], "Succeeded");
  EXPECT_GE(lost, 3);
  EXPECT_EQ(blinded > 2, blind);
  ASSERT_FALSE(bench.phases.empty());
  EXPECT_EQ(bench.phases.back(), "Succeeded");
  EXPECT_TRUE(std::ranges::adjacent_find(bench.phases) == bench.phases.end());
}

TEST(Controller, APhaseIsToldOnceAlsoIfTheAnswerToItsWriteWasLost) {
  expect_phases_told_once(false);
  expect_phases_told_once(true);
}

/// A role without a right, or a webhook that fails: reads go on.
void expect_few_writes_of_a_status_that_fails(int answer, bool placed) {
  ControllerBench bench;
  bench.add_node("n0", 2);
  bench.add_node("n1", 2);
  bench.add_job("j");
  if (placed) bench.settle();
  int tries = 0;
  bench.cluster().set_faults([&](const http::Request& request) -> std::optional<kube::Fault> {
    const bool status = request.method == "PATCH" &&
                        request.target.find("/trainingjobs/j/status") != std::string::npos;
    constexpr int kEndless = 1000;
    if (!status || ++tries > kEndless) return std::nullopt;
    return kube::Fault{.status = answer};
  });
  // Its replacement gets a place, too, which must be written first.
  if (placed) bench.cluster().erase(kube::kPods, "default", "j-w-1-0");
  for (int second = 0; second < 60; ++second) bench.advance(std::chrono::seconds(1));
  EXPECT_GE(tries, 2) << answer;
  EXPECT_LE(tries, placed ? 70 : 20) << answer << ": asks without a pause";
  bench.cluster().set_faults({});
  for (int minute = 0; minute < 3; ++minute) bench.advance(minutes(1));
  EXPECT_EQ(bench.job("j")["status"]["phase"], "Running") << bench.job("j")["status"].dump(1);
  EXPECT_EQ(bench.pods("j").size(), 2U);
}

TEST(Controller, AStatusThatCannotBeWrittenIsTriedEverLessOften) {
  for (const int answer : {403, 422, 500, 504}) {
    expect_few_writes_of_a_status_that_fails(answer, false);
    expect_few_writes_of_a_status_that_fails(answer, true);
  }
}

TEST(Controller, AJobWhoseStatusIsRefusedHoldsNoRoom) {
  ControllerBench bench;
  bench.add_node("n0", 2);
  bench.cluster().set_faults([](const http::Request& request) -> std::optional<kube::Fault> {
    if (request.method != "PATCH" || request.target.find("/j/status") == std::string::npos)
      return std::nullopt;
    return kube::Fault{.status = 403};
  });
  bench.add_job("j");
  bench.advance(std::chrono::seconds(1));
  bench.add_job("other");
  for (int second = 0; second < 90; ++second) bench.advance(std::chrono::seconds(1));
  EXPECT_EQ(bench.job("other")["status"]["phase"], "Running")
      << bench.job("other")["status"].dump(1);
}

TEST(Controller, AFinishedJobGoesWhenItsTimeHasComeThoughTheOperatorIsAnother) {
  ControllerBench bench;
  bench.add_node("n0", 2);
  bench.add_job("j", {{"ttlAfterFinished", "10m"}, {"cleanPodPolicy", "None"}});
  bench.settle();
  bench.finish("j");
  ASSERT_EQ(bench.job("j")["status"]["phase"], "Succeeded");
  bench.restart_operator();
  bench.advance(minutes(9));
  EXPECT_FALSE(bench.job("j").is_null());
  EXPECT_EQ(bench.pods("j").size(), 2U);
  bench.advance(minutes(1));
  EXPECT_TRUE(bench.job("j").is_null());
  EXPECT_TRUE(bench.pods("j").empty());
}

TEST(Controller, TheDeadlineComesByItself) {
  ControllerBench bench;
  bench.add_node("n0", 2);
  bench.add_job("j", {{"activeDeadline", "10m"}});
  bench.settle();
  bench.restart_operator();
  bench.advance(minutes(9));
  EXPECT_EQ(bench.job("j")["status"]["phase"], "Running");
  bench.advance(minutes(1));
  EXPECT_EQ(bench.job("j")["status"]["reason"], "DeadlineExceeded");
  EXPECT_TRUE(bench.pods("j").empty());
}

TEST(Controller, ALostPodIsOneAttemptThoughTheLauncherCountsItToo) {
  const auto says = [](const char* phase, int attempt) {
    return json{{"version", 1}, {"phase", phase}, {"attempt", attempt}, {"restarts", 0}}.dump();
  };
  const auto attempt_of = [](const json& pod) { return setting_of(pod, "ATTEMPT"); };
  for (const char* seen_before :
       {"nothing", "the count", "the count, by an operator that is no more"}) {
    ControllerBench bench;
    bench.add_node("n0", 2);
    bench.add_job("j");
    bench.settle();
    bench.summary = says("Restarting", 1);  // its member has left
    if (std::string_view(seen_before) != "nothing") {
      bench.advance(std::chrono::seconds(20));
      ASSERT_EQ(bench.job("j")["status"]["attempt"], 1);
    }
    if (std::string_view(seen_before).ends_with("no more")) bench.restart_operator();
    bench.cluster().erase(kube::kPods, "default", "j-w-1-0");
    bench.settle();
    ASSERT_EQ(bench.pods("j").size(), 2U) << seen_before;
    EXPECT_EQ(bench.job("j")["status"]["attempt"], 1) << seen_before;
    EXPECT_EQ(attempt_of(bench.pods("j")[1]), "1") << seen_before;

    bench.summary = says("Running", 1);
    bench.advance(std::chrono::seconds(20));
    bench.summary.clear();  // the launcher dies with its pod
    bench.cluster().erase(kube::kPods, "default", "j-w-0-0");
    bench.settle();
    EXPECT_EQ(bench.job("j")["status"]["attempt"], 2) << seen_before;
    EXPECT_EQ(bench.job("j")["status"]["restarts"], 0) << seen_before;
  }
}

TEST(Controller, AWorkerThatIsReplacedAloneGetsTheCountOfItsGang) {
  ControllerBench bench;
  bench.add_node("n0", 4);
  const auto role = [](const char* name, const char* kind) {
    const json container = {{"name", "trainer"}, {"image", "i"}, {"command", {"train"}}};
    return json{{"name", name},
                {"kind", kind},
                {"replicas", 1},
                {"template", {{"spec", {{"containers", json::array({container})}}}}}};
  };
  bench.add_job("j",
                {{"roles", json::array({role("ps", "ParameterServer"), role("w", "Worker")})}});
  bench.settle();
  ASSERT_EQ(bench.job("j")["status"]["phase"], "Running") << bench.job("j")["status"].dump(1);
  const json known = {{"version", 1}, {"phase", "Running"}, {"attempt", 0}, {"restarts", 2}};
  bench.advance(std::chrono::seconds(20));
  bench.summary = known.dump();  // the worker's ranks failed since the last read
  bench.cluster().erase(kube::kPods, "default", "j-w-0-0");
  bench.settle();
  ASSERT_EQ(bench.pods("j").size(), 2U);
  EXPECT_EQ(setting_of(bench.pods("j")[1], "RESTARTS"), "2");
}

TEST(Controller, AJobThatRequiresGpuDirectWaitsForANodeThatHasIt) {
  ControllerBench bench;
  bench.add_node("n0", 4);
  bench.add_node("n1", 4);
  const auto says = [](const char* status, const char* reason) {
    const json condition = {{"type", "GpuDirectReady"}, {"status", status}, {"reason", reason}};
    return json{{"status", {{"conditions", json::array({condition})}}}};
  };
  for (const char* name : {"n0", "n1"})
    bench.cluster().poke(kube::kNodes, "", name,
                         R"({"status":{"allocatable":{"nvidia.com/gpu":"4"}}})");
  json role = {{"name", "w"},
               {"replicas", 2},
               {"template",
                {{"spec",
                  {{"containers",
                    json::array({{{"name", "trainer"},
                                  {"image", "i"},
                                  {"command", {"train"}},
                                  {"resources", {{"limits", {{"nvidia.com/gpu", 1}}}}}}})}}}}}};
  bench.add_job("j", {{"roles", json::array({role})}, {"network", {{"gpuDirect", "Required"}}}});
  bench.settle();
  EXPECT_EQ(bench.job("j")["status"]["reason"], "GpuDirectNotReady")
      << bench.job("j")["status"].dump(1);
  EXPECT_TRUE(bench.pods("j").empty());

  json fabric = says("Unknown", "NotProved");
  fabric["metadata"] = {{"name", "n1"}};
  bench.create(kube::kNodeFabrics, "", fabric);
  bench.settle();
  const std::string told = bench.condition("j", "Placed")["message"];
  EXPECT_NE(told.find("2 without a living agent's word"), std::string::npos) << told;

  const auto renew = [&] {
    return json{
        {"metadata", {{"name", "paceline-agent-n1"}}},
        {"spec", {{"leaseDurationSeconds", 40}, {"renewTime", format_micro_time(bench.now())}}}};
  };
  bench.create(kube::kLeases, "paceline-agents", renew());
  bench.advance(std::chrono::seconds(15));
  bench.settle();
  const std::string heard = bench.condition("j", "Placed")["message"];
  EXPECT_NE(heard.find("1 not GpuDirectReady (NotProved), 1 without a living agent's word"),
            std::string::npos)
      << heard;

  // After two Lease durations the agent counts as dead, whatever the NodeFabric says.
  bench.advance(std::chrono::seconds(80));
  bench.cluster().poke(kube::kNodeFabrics, "", "n1", says("True", "Registered").dump());
  bench.settle();
  EXPECT_EQ(bench.job("j")["status"]["reason"], "GpuDirectNotReady");
  bench.cluster().poke(kube::kLeases, "paceline-agents", "paceline-agent-n1", renew().dump());
  bench.advance(std::chrono::seconds(15));

  bench.settle();
  EXPECT_EQ(bench.job("j")["status"]["phase"], "Running") << bench.job("j")["status"].dump(1);
  ASSERT_EQ(bench.pods("j").size(), 2U);
  for (const json& pod : bench.pods("j")) EXPECT_EQ(pod["spec"]["nodeName"], "n1");
}

TEST(Controller, AGangSaysWhereItsRuntimeComesFromAndStaysWithThat) {
  ControllerBench bench;
  for (const char* name : {"n0", "n1"}) {
    bench.add_node(name, 8);
    bench.cluster().poke(kube::kNodes, "", name,
                         R"({"status":{"allocatable":{"paceline.dev/runtime":"1"}}})");
  }
  const auto shows = [&](const std::string& job, const char* runtime, bool slot) {
    EXPECT_EQ(bench.job(job)["status"]["placement"]["runtime"], runtime)
        << bench.job(job)["status"].dump(1);
    EXPECT_EQ(bench.pods(job).size(), 2U);
    for (const json& pod : bench.pods(job)) {
      EXPECT_EQ(pod.dump().find("paceline.dev/runtime") != std::string::npos, slot) << pod.dump(1);
      EXPECT_EQ(pod["spec"].contains("initContainers"), !slot) << pod.dump(1);
    }
  };
  bench.add_job("first");
  bench.settle();
  shows("first", "Slot", true);
  bench.add_job("second");
  bench.settle();
  shows("second", "Copy", false);

  // A replacement is like the rest of its gang, also if another operator makes it.
  bench.restart_operator();
  bench.cluster().erase(kube::kPods, "default",
                        bench.pods("first")[1]["metadata"]["name"].get<std::string>());
  bench.settle();
  bench.advance(std::chrono::seconds(20));
  shows("first", "Slot", true);

  // The next placement chooses again: by then the agents are gone.
  for (const char* name : {"n0", "n1"})
    bench.cluster().poke(kube::kNodes, "", name,
                         R"({"status":{"allocatable":{"paceline.dev/runtime":"0"}}})");
  bench.add_job("third");
  bench.settle();
  shows("third", "Copy", false);
}

TEST(Controller, AFinishedJobGoesAlthoughItsPodsCannotBeDeleted) {
  ControllerBench bench;
  bench.add_node("n0", 4);
  bench.add_job("j", {{"cleanPodPolicy", "All"}, {"ttlAfterFinished", "1m"}});
  bench.settle();
  bench.cluster().set_faults([](const http::Request& request) -> std::optional<kube::Fault> {
    if (request.method != "DELETE" || !request.target.contains("/pods/")) return std::nullopt;
    return kube::Fault{.status = 500, .message = "a webhook does not answer"};
  });
  bench.finish("j");
  ASSERT_EQ(bench.job("j")["status"]["phase"], "Succeeded");
  bench.advance(minutes(2));
  EXPECT_TRUE(bench.job("j").is_null());
}

TEST(Controller, TellsWhatOtherProgramsSayInAnyLanguage) {
  ControllerBench bench;
  bench.pods_wait = true;
  bench.add_node("n0", 2);
  bench.add_job("j");
  bench.settle();
  for (const char* first : {"", "a"}) {
    // A character of two bytes is where the message is cut, in one of both.
    std::string message = first;
    for (int i = 0; i < 400; ++i) message += "\u00e9";
    const json waiting = {{"reason", "ImagePullBackOff"}, {"message", message}};
    const json trainer = {{"name", "trainer"}, {"state", {{"waiting", waiting}}}};
    bench.cluster().poke(
        kube::kPods, "default", "j-w-0-0",
        json{{"status", {{"phase", "Pending"}, {"containerStatuses", json::array({trainer})}}}}
            .dump());
    bench.advance(std::chrono::seconds(2));
    const std::string told = bench.job("j")["status"].value("message", "");
    EXPECT_NE(told.find(std::string(": ") + first + "\u00e9\u00e9"), std::string::npos) << told;
    EXPECT_EQ(bench.controller().counters().internal_errors, 0U);
  }
}

TEST(Controller, SilentLaunchersBlockNoWorkerAndAreAskedLessOften) {
  ControllerBench bench;
  bench.add_node("n0", 4);
  bench.add_job("silent");
  bench.settle();
  ASSERT_EQ(bench.job("silent")["status"]["phase"], "Running");
  for (int i = 0; i < 600; ++i) bench.advance(std::chrono::seconds(1));
  EXPECT_FALSE(bench.blocked_worker);
  EXPECT_GE(bench.summary_reads, 10);
  EXPECT_LE(bench.summary_reads, 20) << "ten minutes";

  const std::uint64_t writes = bench.writes();
  bench.advance(std::chrono::minutes(10));
  EXPECT_EQ(bench.writes(), writes);
}

/// All pods of the job end and are gone before the operator looks again.
void end_with_checkpoint(ControllerBench& bench, const std::string& job, int step) {
  const json message = {{"version", 1},
                        {"verdict", "Terminated"},
                        {"checkpoint", {{"lastStep", step}, {"attempt", 0}}}};
  const json ended = {{"terminated", {{"exitCode", 143}, {"message", message.dump()}}}};
  const json status = {
      {"phase", "Failed"},
      {"containerStatuses", json::array({{{"name", "trainer"}, {"state", ended}}})}};
  for (const json& pod : bench.pods(job)) {
    const std::string name = pod["metadata"]["name"];
    bench.cluster().poke(kube::kPods, "default", name, json{{"status", status}}.dump());
    bench.cluster().erase(kube::kPods, "default", name);
  }
}

TEST(Controller, AStepThatAPodTellsOfJustBeforeItIsGoneIsShown) {
  ControllerBench bench;
  bench.add_node("n0", 2);
  bench.add_job("j");
  bench.settle();
  ASSERT_EQ(bench.pods("j").size(), 2U);
  end_with_checkpoint(bench, "j", 40);
  bench.settle();
  const json status = bench.job("j")["status"];
  EXPECT_EQ(status.value("/checkpoint/lastStep"_json_pointer, 0), 40) << status.dump(1);
}

TEST(Controller, AStepThatRankZeroTellsOfWhileItsPodEndsIsShown) {
  ControllerBench bench;
  bench.add_node("n0", 2);
  bench.summary = R"({"version": 1, "phase": "Running", "gathered": 2, "expected": 2})";
  bench.add_job("j");
  bench.settle();
  ASSERT_EQ(bench.job("j")["status"]["phase"], "Running");
  bench.pods_linger = true;
  for (const json& pod : bench.pods("j"))
    bench.cluster().poke(kube::kPods, "default", pod["metadata"]["name"].get<std::string>(),
                         R"({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})");
  bench.settle();
  bench.summary = R"({"version": 1, "phase": "Running", "gathered": 2, "expected": 2,
                      "checkpoint": {"lastStep": 40, "attempt": 0}})";
  bench.advance(std::chrono::seconds(20));
  const json status = bench.job("j")["status"];
  EXPECT_EQ(status.value("/checkpoint/lastStep"_json_pointer, 0), 40) << status.dump(1);
}

TEST(Controller, AStepThatASuspendedJobSavedAtIsShown) {
  ControllerBench bench;
  bench.add_node("n0", 2);
  bench.add_job("j");
  bench.settle();
  bench.pods_linger = true;
  bench.patch_job("j", {{"spec", {{"suspend", true}}}});
  bench.settle();
  ASSERT_EQ(bench.pods("j").size(), 2U) << "the ranks save";
  end_with_checkpoint(bench, "j", 40);
  bench.settle();
  const json status = bench.job("j")["status"];
  EXPECT_EQ(status["phase"], "Suspended");
  EXPECT_EQ(status.value("/checkpoint/lastStep"_json_pointer, 0), 40) << status.dump(1);
}

}  // namespace
}  // namespace paceline::apply
