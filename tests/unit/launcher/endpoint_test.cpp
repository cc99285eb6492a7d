// SPDX-License-Identifier: Apache-2.0
#include "launcher/endpoint.hpp"

#include <gtest/gtest.h>

namespace paceline::launcher {
namespace {

struct EndpointTest : ::testing::Test {
  EndpointTest() {
    config.job_namespace = "ns";
    config.job_name = "job";
    config.token = "secret";
    state.config = &config;
    state.collector = &collector;
    state.whole_job = true;
  }

  summary::HttpAnswer get(const std::string& path, const std::string& authorization) const {
    return answer_request(state, {"GET", path, authorization, ""});
  }
  std::string metrics() const { return get("/metrics", "").body; }

  static std::string line(const std::string& name, const std::string& value) {
    return "\n" + name + "{namespace=\"ns\",job=\"job\"} " + value + "\n";
  }

  ManualClock clock;
  telemetry::Collector collector{{"ns", "job", "worker", "node-a"}, clock};
  Config config;
  EndpointState state;
};

TEST_F(EndpointTest, MetricsOfTheJobMoveWithIt) {
  EXPECT_NE(metrics().find(line("paceline_job_restarts_total", "0")), std::string::npos)
      << metrics();
  EXPECT_NE(metrics().find(line("paceline_job_replicas_gathered", "0")), std::string::npos);
  EXPECT_EQ(metrics().find("paceline_step_skew_ratio"), std::string::npos) << "absent is not zero";
  state.state.restarts = 2;
  state.state.gathered = 3;
  state.summary.skew = 1.5;
  EXPECT_NE(metrics().find(line("paceline_job_restarts_total", "2")), std::string::npos);
  EXPECT_NE(metrics().find(line("paceline_job_replicas_gathered", "3")), std::string::npos);
  EXPECT_NE(metrics().find(line("paceline_step_skew_ratio", "1.5")), std::string::npos);
}

TEST_F(EndpointTest, GainsThatWereMeasuredAreMetrics) {
  EXPECT_EQ(metrics().find("paceline_job_effect"), std::string::npos);
  state.state.effects = {{"compile", true, 0.25, "kept"},
                         {"loader", true, std::nullopt, "not measured"},
                         {"optimizer", false, -0.004, "rolled back"}};
  const std::string text = metrics();
  const std::string labels = R"(paceline_job_effect_gain_ratio{namespace="ns",job="job",feature=)";
  EXPECT_NE(text.find("\n" + labels + "\"compile\",kept=\"true\"} 0.25\n"), std::string::npos)
      << text;
  EXPECT_NE(text.find("\n" + labels + "\"optimizer\",kept=\"false\"} -0.004\n"), std::string::npos);
  EXPECT_EQ(text.find("loader"), std::string::npos) << "absent is not zero";
}

TEST_F(EndpointTest, FindingsAreMetrics) {
  EXPECT_EQ(metrics().find("paceline_job_finding"), std::string::npos);
  state.state.findings = {{.kind = diagnosis::Kind::kHang, .rank = 3, .node = "node-b"},
                          {.kind = diagnosis::Kind::kBottleneck, .subject = "data"}};
  const std::string labels = R"(paceline_job_finding{namespace="ns",job="job",kind=)";
  EXPECT_NE(metrics().find(labels + R"("hang",subject="",rank="3",node="node-b"} 1)"),
            std::string::npos)
      << metrics();
  EXPECT_NE(metrics().find(labels + R"("bottleneck",subject="data",rank="",node=""} 1)"),
            std::string::npos);
}

TEST_F(EndpointTest, OnlyRankZerosLauncherSpeaksForTheJob) {
  state.whole_job = false;
  state.summary.skew = 1.5;
  EXPECT_EQ(metrics().find("paceline_job_"), std::string::npos);
  EXPECT_EQ(metrics().find("paceline_step_skew_ratio"), std::string::npos);
  collector.begin_attempt(0, 1, 2, 1);
  EXPECT_NE(metrics().find(
                "paceline_profiler_state{namespace=\"ns\",job=\"job\",role=\"worker\",rank=\"2\""),
            std::string::npos);
}

TEST_F(EndpointTest, WhatTheNodesAgentServesIsNotServedASecondTime) {
  collector.begin_attempt(0, 0, 0, 1);
  EXPECT_NE(metrics().find("rank=\"0\""), std::string::npos);
  state.collector = nullptr;
  EXPECT_EQ(metrics().find("rank=\"0\""), std::string::npos);
  EXPECT_NE(metrics().find(line("paceline_job_replicas_gathered", "0")), std::string::npos);
}

TEST_F(EndpointTest, OnlyTheSummaryWantsTheToken) {
  EXPECT_EQ(get("/healthz", "").status, 200);
  EXPECT_EQ(get("/metrics", "").status, 200);
  EXPECT_EQ(get("/v1/summary", "").status, 401);
  EXPECT_EQ(get("/v1/summary", "Bearer secre").status, 401);
  EXPECT_EQ(get("/v1/summary", "Bearer secrex").status, 401);
  EXPECT_EQ(get("/v1/summary", "Bearer secret").status, 200);
  const std::map<int, std::string> stacks{{3, "at train.py"}};
  state.stacks = &stacks;
  EXPECT_EQ(get("/v1/stacks", "").status, 401);
  EXPECT_NE(get("/v1/stacks", "Bearer secret").body.find("at train.py"), std::string::npos);
  EXPECT_EQ(get("/v1/other", "Bearer secret").status, 404);
  for (const char* path : {"/healthz", "/v1/summary", "/v1/stacks", "/v1/other"})
    EXPECT_TRUE(answer_without_state(config, nullptr, {"GET", path, "", ""})) << path;
  for (const char* path : {"/metrics", "/v1/summary", "/v1/stacks"})
    EXPECT_FALSE(answer_without_state(config, nullptr, {"GET", path, "Bearer secret", ""})) << path;
  EXPECT_EQ(answer_request(state, {"PUT", "/metrics", "", "x"}).status, 405);
}

TEST_F(EndpointTest, WarningsReachRankZerosLauncherOnly) {
  const auto post = [&](const std::string& body, const std::string& token = "secret") {
    return answer_request(state, {"POST", "/v1/warnings", "Bearer " + token, body});
  };
  const std::string names = R"({"nodes": ["node-a", "node-b"]})";
  EXPECT_EQ(post(names).status, 404);
  std::vector<std::string> warned;
  state.warn = [&](const std::vector<std::string>& nodes) { warned = nodes; };
  EXPECT_EQ(post(names, "secrex").status, 401);
  EXPECT_EQ(get("/v1/warnings", "Bearer secret").status, 405);
  for (const std::string& wrong :
       {std::string("{"), std::string("{}"), std::string(R"({"nodes": [1]})"),
        std::string(R"({"nodes": ["node-a"], "tainted": "node-a"})"),
        R"({"nodes": [")" + std::string(254, 'n') + R"("]})"}) {
    EXPECT_EQ(post(wrong).status, 400) << wrong;
    EXPECT_TRUE(warned.empty()) << wrong;
  }
  EXPECT_NE(post("{}").body.find("nodes"), std::string::npos);
  EXPECT_EQ(post(names).status, 200);
  EXPECT_EQ(warned, (std::vector<std::string>{"node-a", "node-b"}));
  EXPECT_EQ(post(R"({"nodes": ["node-a", "node-b"], "tainted": ["node-b"]})").status, 200);
  EXPECT_EQ(warned, (std::vector<std::string>{"node-a", "node-b (tainted)"})) << "another warning";
  EXPECT_EQ(answer_request(state, {"POST", "/v1/summary", "Bearer secret", ""}).status, 405);
}

}  // namespace
}  // namespace paceline::launcher
