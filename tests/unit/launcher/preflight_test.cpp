// SPDX-License-Identifier: Apache-2.0
// How the launcher reads paceline-probe: its answer, another program's answer, silence, and a
// missing program.
#include "launcher/preflight.hpp"

#include <gtest/gtest.h>

#include <future>
#include <string>
#include <thread>

namespace paceline::launcher {
namespace {

ProbeCommand script(const std::string& text) {
  return {{"/bin/sh", "-c", text}, {"PATH=/usr/bin:/bin"}, std::chrono::seconds(60)};
}

bool says(const PodReadiness& readiness, const std::string& text) {
  return readiness.evidence.find(text) != std::string::npos;
}

TEST(Preflight, TakesTheProbesAnswer) {
  const auto ready = ask_probe(script("echo '{\"version\":1,\"ready\":true}'"), {});
  EXPECT_EQ(ready, (PodReadiness{true, "", "", "", {}}));
  const auto not_ready = ask_probe(
      script("echo '{\"version\":1,\"ready\":false,\"check\":\"memlock\",\"evidence\":\"64 "
             "KiB\",\"remedy\":\"raise\"}'"),
      {});
  EXPECT_EQ(not_ready, (PodReadiness{false, "memlock", "64 KiB", "raise", {}}));
  EXPECT_EQ(describe(not_ready), "memlock fails: 64 KiB; remedy: raise");
  const auto open =
      read_readiness(R"({"version":1,"ready":null,"check":"dmabuf","evidence":"no CUDA"})");
  EXPECT_EQ(open, (PodReadiness{std::nullopt, "dmabuf", "no CUDA", "", {}}));
  EXPECT_EQ(describe(open), "dmabuf cannot be told: no CUDA");
}

TEST(Preflight, KeepsWhatTheNodesTableWants) {
  const auto told = read_readiness(R"({"version":1,"ready":true,"findings":[
      {"check":"memlock","subject":"","status":"pass","evidence":"no limit"}, 7, {"check":5}]})");
  ASSERT_EQ(told.findings.size(), 2U);
  EXPECT_EQ(told.findings[0], (telemetry::SlotFinding{"memlock", "", "pass", "no limit"}));
  EXPECT_EQ(told.findings[1], telemetry::SlotFinding{}) << "which the agent refuses";
  EXPECT_TRUE(read_readiness(R"({"version":1,"ready":true,"findings":"many"})").findings.empty());
  std::string many = R"({"version":1,"ready":true,"findings":[{})";
  for (int i = 0; i < 100; ++i) many += ",{}";
  EXPECT_EQ(read_readiness(many + "]}").findings.size(), 32U);
}

TEST(Preflight, AnotherProgramsAnswerIsNoProof) {
  for (const char* answer :
       {"", "yes", "[]", "{}", "{\"ready\":true}", "{\"version\":2,\"ready\":true}",
        "{\"version\":1}", "{\"version\":\"1\",\"ready\":true}"}) {
    const auto readiness = read_readiness(answer);
    EXPECT_FALSE(readiness.ready.has_value()) << answer;
    EXPECT_TRUE(says(readiness, "no answer that is understood")) << answer;
  }
  EXPECT_FALSE(read_readiness("{\"version\":1,\"ready\":\"true\"}").ready.has_value());
  // Endless output is kept up to a bound, and the launcher still waits for its end.
  EXPECT_TRUE(
      says(ask_probe(script("head -c 3000000 /dev/zero >&2; head -c 3000000 /dev/zero"), {}),
           "no answer that is understood"));
  EXPECT_TRUE(says(ask_probe(script("kill -9 $$"), {}), "no answer that is understood"));
}

TEST(Preflight, OneThatCannotStartIsNoProof) {
  const auto absent =
      ask_probe({{"/nowhere/paceline-probe", "--pod-verdict"}, {}, std::chrono::seconds(60)}, {});
  EXPECT_FALSE(absent.ready.has_value());
  EXPECT_TRUE(says(absent, "cannot start \"/nowhere/paceline-probe\": No such file"))
      << absent.evidence;
  EXPECT_TRUE(says(absent, "glibc 2.28 or later")) << absent.evidence;
  EXPECT_FALSE(says(absent, "check `command`")) << absent.evidence;
}

TEST(Preflight, OneThatHangsIsEndedAtTheLimit) {
  auto command = script("echo '{\"version\":1,\"ready\":true}'; exec sleep 1000");
  command.limit = std::chrono::seconds(2);
  const auto readiness = ask_probe(command, {});
  EXPECT_FALSE(readiness.ready.has_value());
  EXPECT_TRUE(says(readiness, "no answer within 2.00s")) << readiness.evidence;
}

TEST(Preflight, AStopEndsItToo) {
  std::promise<PodReadiness> answer;
  std::jthread thread([&](const std::stop_token& stop) {
    answer.set_value(ask_probe(script("exec sleep 1000"), stop));
  });
  thread.request_stop();
  EXPECT_TRUE(says(answer.get_future().get(), "was stopped"));
}

}  // namespace
}  // namespace paceline::launcher
