// SPDX-License-Identifier: Apache-2.0
#include "launcher/config.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "common/contract/pod_defaults.hpp"
#include "launcher/rank_plan.hpp"

namespace paceline::launcher {
namespace {

frameworks::Environment whole() {
  return {{"PACELINE_JOB_UID", "u"},
          {"PACELINE_NODE_RANK", "1"},
          {"PACELINE_NODE_COUNT", "2"},
          {"PACELINE_POD_IP", "10.0.0.2"},
          {"PACELINE_TOKEN", "t"},
          {"PACELINE_RENDEZVOUS_ADDRESS", "10.96.0.7:29400"},
          {"PACELINE_STATE_DIR", "/run/p"},
          {"PACELINE_PROCESSES_PER_REPLICA", "2"},
          {"PACELINE_GRACE_PERIOD", "1m30s"},
          {"PACELINE_SUCCESS_POLICY", "RankZero"}};
}

std::string error_with(const std::string& name, const std::string& value) {
  auto environment = whole();
  environment[name] = value;
  const auto config = read_config(environment);
  return config ? "" : config.error().message;
}

TEST(Config, ReadsWhatTheOperatorWrites) {
  const auto config = read_config(whole());
  ASSERT_TRUE(config.has_value()) << config.error().message;
  EXPECT_EQ(config->rendezvous.host, "10.96.0.7");
  EXPECT_EQ(config->rendezvous.port, 29400);
  EXPECT_EQ(config->grace, std::chrono::seconds(90));
  EXPECT_TRUE(config->rank_zero_decides);
  EXPECT_EQ(config->master_port, -1);
}

TEST(Config, APodInTheNetworkOfItsNodeHasAHundredPortsThere) {
  EXPECT_EQ(read_config(whole())->port_base, 0);
  auto environment = whole();
  environment["PACELINE_PORT_BASE"] = "16300";
  EXPECT_EQ(read_config(environment)->port_base, 16300);
  EXPECT_NE(error_with("PACELINE_PORT_BASE", "65500").find("from 1 to 65436"), std::string::npos);
}

TEST(Config, TakesTheSettingsOfThePodAsVariables) {
  const auto all = with_settings(
      {{"PACELINE_SETTINGS", R"({"NODE_RANK":"1","JOB_NAME":"digits","LOADER":"Auto"})"},
       {"PACELINE_LOADER", "Disabled"},
       {"HOME", "/root"}});
  ASSERT_TRUE(all.has_value()) << all.error().message;
  frameworks::Environment expected = {{"PACELINE_NODE_RANK", "1"},
                                      {"PACELINE_JOB_NAME", "digits"},
                                      {"PACELINE_LOADER", "Auto"},
                                      {"HOME", "/root"}};
  for (const contract::PodDefault& known : contract::kPodDefaults)
    expected["PACELINE_" + std::string(known.name)] = known.value;
  EXPECT_EQ(*all, expected) << "they replace what the image says";
  EXPECT_EQ(with_settings(whole()).value(), whole()) << "as paceline run sets them";
}

TEST(Config, WhatTheSettingsLeaveOutHasTheValueOfThePod) {
  const auto all = with_settings({{"PACELINE_SETTINGS", R"({"RESTARTS":"2"})"},
                                  {"PACELINE_RESTARTS", "7"},
                                  {"PACELINE_GRACE_PERIOD", "1s"}});
  ASSERT_TRUE(all.has_value()) << all.error().message;
  EXPECT_EQ(all->at("PACELINE_RESTARTS"), "2");
  EXPECT_EQ(all->at("PACELINE_GRACE_PERIOD"), "30s") << "the image does not decide";
}

TEST(Config, RefusesSettingsThatAreNoObjectOfTexts) {
  for (const char* text : {"", "x", "[]", "7", R"({"NODE_RANK":1})", R"({"":"x"})",
                           R"({"node":"x"})", R"({"A=B":"x"})", R"({"A":{}})"}) {
    const auto all = with_settings({{"PACELINE_SETTINGS", text}});
    ASSERT_FALSE(all.has_value()) << text;
    EXPECT_NE(all.error().message.find("PACELINE_SETTINGS is not a JSON object of texts"),
              std::string::npos);
  }
}

TEST(Config, NamesVariableValueAndRemedy) {
  EXPECT_NE(error_with("PACELINE_NODE_RANK", "2")
                .find("PACELINE_NODE_RANK=2: is not a whole number from 0 to 1"),
            std::string::npos);
  EXPECT_NE(error_with("PACELINE_NODE_COUNT", "two").find("PACELINE_NODE_COUNT=two"),
            std::string::npos);
  EXPECT_NE(error_with("PACELINE_TOKEN", "").find("PACELINE_TOKEN is missing"), std::string::npos);
  EXPECT_NE(error_with("PACELINE_RENDEZVOUS_ADDRESS", "svc.cluster:29400").find("10.0.0.7:29400"),
            std::string::npos)
      << "no names: a static program has no resolver";
  EXPECT_NE(error_with("PACELINE_GRACE_PERIOD", "30").find("PACELINE_GRACE_PERIOD=30"),
            std::string::npos);
  EXPECT_NE(error_with("PACELINE_SUCCESS_POLICY", "Any").find("AllRanks"), std::string::npos);
  EXPECT_NE(error_with("PACELINE_GPU_DIRECT", "Off")
                .find("Off: is none of Required, Preferred, Disabled"),
            std::string::npos);
  EXPECT_NE(error_with("PACELINE_NODE_RANK", "0").find("PACELINE_RENDEZVOUS_LISTEN is missing"),
            std::string::npos);
}

TEST(Config, AddressesAreNumeric) {
  EXPECT_EQ(net::parse_address("[fd00::7]:1")->host, "fd00::7");
  for (const char* wrong : {"", ":1", "1.2.3.4", "1.2.3.4:", "1.2.3.4:65536", "1.2.3.4:1x",
                            "fd00::7:1", "[1.2.3.4]:1"}) {
    EXPECT_FALSE(net::parse_address(wrong).has_value()) << wrong;
  }
}

TEST(RankPlan, EveryRankHasItsPlace) {
  auto config = *read_config(whole());
  config.cpu_limit = 6;
  rendezvous::Node first{0, "chief", 0, 0, "a", "10.0.0.1", "n", 3, 0};
  rendezvous::Node second{1, "worker", 0, 0, "b", "10.0.0.2", "n", 2, 0};
  RankPlan plan;
  plan.argv = {"prog"};
  plan.allowed_cpus = {0, 1, 2, 3, 4, 5, 6, 7};
  plan.numa_nodes = {{0, 1, 2, 3}, {4, 5, 6, 7}};
  const auto planned =
      plan_ranks(plan, config, rendezvous::make_rank_table(4, 29504, {first, second}), 1);
  ASSERT_EQ(planned.ranks.size(), 2U);
  const auto has = [&](std::size_t rank, const std::string& entry) {
    const auto& environment = planned.ranks[rank].request.environment;
    return std::find(environment.begin(), environment.end(), entry) != environment.end();
  };
  EXPECT_TRUE(has(0, "RANK=3") && has(1, "RANK=4"));
  EXPECT_TRUE(has(1, "LOCAL_RANK=1") && has(1, "WORLD_SIZE=5") && has(1, "OMP_NUM_THREADS=3"));
  EXPECT_EQ(planned.ranks[0].request.cpus, (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(planned.ranks[1].request.cpus, (std::vector<int>{4, 5, 6, 7}));
}

}  // namespace
}  // namespace paceline::launcher
