// SPDX-License-Identifier: Apache-2.0
// The variables that launchers and ranks read.
#include "operator/render/environment.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "common/contract/accelerators.hpp"
#include "common/contract/env.hpp"
#include "operator/api/parse.hpp"
#include "tests/unit/operator/api/job_document.hpp"

namespace paceline {
namespace {

TEST(Environment, EveryReplica) {
  auto document = minimal();
  auto& roles = document["spec"]["roles"];
  roles.insert(roles.begin(), roles[0]);
  roles[0]["name"] = "chief";
  roles[0]["replicas"] = 1;
  roles[1]["template"]["spec"]["containers"][0]["resources"] = {{"limits", {{"cpu", "2500m"}}}};
  const auto job = *api::parse_training_job(document);
  const auto replicas = api::replicas_of(job.spec);
  ASSERT_EQ(replicas.size(), 3U);
  render::Endpoints endpoints;
  endpoints.rendezvous_address = "10.0.0.1:29400";
  endpoints.incarnation = 1;
  endpoints.attempt = 4;
  const auto list = render::replica_environment(job, replicas[2], endpoints);
  const std::map<std::string, std::string> environment(list.begin(), list.end());
  EXPECT_EQ(environment.size(), list.size());
  EXPECT_EQ(environment.at("PACELINE_ROLE"), "worker");
  EXPECT_EQ(environment.at("PACELINE_REPLICA_INDEX"), "1");
  EXPECT_EQ(environment.at("PACELINE_NODE_RANK"), "2");
  EXPECT_EQ(environment.at("PACELINE_NODE_COUNT"), "3");
  EXPECT_EQ(environment.at("PACELINE_PROCESSES_PER_REPLICA"), "2");
  EXPECT_EQ(environment.at("PACELINE_CPU_LIMIT"), "2");
  EXPECT_EQ(environment.at("PACELINE_ATTEMPT"), "4");
  EXPECT_EQ(environment.at("PACELINE_INCARNATION"), "1");
  EXPECT_EQ(environment.at("PACELINE_GRACE_PERIOD"), "30s");
  EXPECT_EQ(environment.count("PACELINE_TOKEN"), 0U);
  for (const auto& [name, value] : environment) {
    const bool known = std::any_of(env::kAll.begin(), env::kAll.end(),
                                   [&](const env::Variable& v) { return v.name == name; });
    EXPECT_TRUE(known) << name;
  }
}

TEST(Environment, WhatIsAcceleratedIsTheJobsAndThenTheTemplatesToSay) {
  struct Case {
    nlohmann::json acceleration;  // null: the job says nothing
    nlohmann::json env;           // of the template
    std::map<std::string, std::string> expected;
  };
  const nlohmann::json none = nlohmann::json::array();
  const std::map<std::string, std::string> automatic = {
      {"NUMERICS", "Reordered"}, {"LOADER", "Auto"},        {"LOADER_WORKERS", "Auto"},
      {"OPTIMIZER", "Auto"},     {"COMMUNICATION", "Auto"}, {"COMPILE", "Auto"},
      {"OPERATORS", "Auto"}};
  const Case cases[] = {
      {nullptr, none, automatic},
      {nlohmann::json::object(), none, automatic},
      {{{"optimizer", "Disabled"}, {"communication", "Disabled"}, {"numerics", "Bitwise"}},
       none,
       {{"NUMERICS", "Bitwise"},
        {"LOADER", "Auto"},
        {"LOADER_WORKERS", "Auto"},
        {"COMPILE", "Auto"},
        {"OPERATORS", "Auto"}}},
      {{{"mode", "Manual"}}, none, {}},
      {{{"mode", "Manual"}, {"optimizer", "Auto"}},
       none,
       {{"NUMERICS", "Reordered"}, {"OPTIMIZER", "Auto"}}},
      {{{"mode", "Disabled"}}, none, {}},
      {nlohmann::json::object(),
       {{{"name", "PACELINE_LOADER"}, {"value", "Disabled"}}, {{"value", "unnamed"}}},
       {{"NUMERICS", "Reordered"},
        {"LOADER_WORKERS", "Auto"},
        {"OPTIMIZER", "Auto"},
        {"COMMUNICATION", "Auto"},
        {"COMPILE", "Auto"},
        {"OPERATORS", "Auto"}}},
      {{{"mode", "Manual"},
        {"numerics", "Lossy"},
        {"compression", {{"topK", {{"ratio", "0.02"}}}}}},
       none,
       {{"NUMERICS", "Lossy"},
        {"COMMUNICATION", "Auto"},
        {"COMMUNICATION_COMPRESSION", "TopK:ratio=0.02"}}},
      {{{"mode", "Manual"},
        {"numerics", "Lossy"},
        {"compression", {{"int8", nlohmann::json::object()}}}},
       {{{"name", "PACELINE_COMMUNICATION_COMPRESSION"}, {"value", "Disabled"}}},
       {{"NUMERICS", "Lossy"}, {"COMMUNICATION", "Auto"}}},
      {{{"mode", "Manual"}, {"numerics", "Lossy"}, {"precision", "O1"}, {"cudaGraph", "Disabled"}},
       none,
       {{"NUMERICS", "Lossy"}, {"PRECISION", "O1"}, {"CUDA_GRAPH", "Disabled"}}},
      {{{"mode", "Manual"}, {"numerics", "Lossy"}, {"precision", "TF32"}, {"cudaGraph", "Auto"}},
       {{{"name", "PACELINE_PRECISION"}, {"value", "Disabled"}}},
       {{"NUMERICS", "Lossy"}}},
  };
  for (const Case& test : cases) {
    auto document = minimal();
    if (!test.acceleration.is_null()) document["spec"]["acceleration"] = test.acceleration;
    document["spec"]["roles"][0]["template"]["spec"]["containers"][0]["env"] = test.env;
    const auto job = api::parse_training_job(document);
    ASSERT_TRUE(job.has_value()) << error_of(document);
    std::map<std::string, std::string> switches;
    render::Endpoints endpoints;
    endpoints.acceleration = api::resolve(job->spec.acceleration, nullptr);
    for (const auto& [name, value] :
         render::replica_environment(*job, api::replicas_of(job->spec)[0], endpoints)) {
      if (env::is_users(name)) switches[name.substr(std::string("PACELINE_").size())] = value;
    }
    EXPECT_EQ(switches, test.expected) << test.acceleration << test.env;
  }
}

TEST(Environment, GpuDirectIsToldToThoseWhoHaveAccelerators) {
  const auto told = [](const char* choice, bool accelerators,
                       const char* name = "nvidia.com/gpu") -> std::string {
    auto document = minimal();
    document["spec"]["network"] = {{"gpuDirect", choice}};
    if (accelerators)
      document["spec"]["roles"][0]["template"]["spec"]["containers"][0]["resources"] = {
          {"limits", {{name, 1}}}};
    const auto job = api::parse_training_job(document);
    if (!job) return error_of(document);
    for (const auto& [name, value] :
         render::replica_environment(*job, api::replicas_of(job->spec)[0], {})) {
      if (name == env::kGpuDirect.name) return value;
    }
    return "";
  };
  EXPECT_EQ(told("Required", true), "Required");
  EXPECT_EQ(told("Preferred", true), "Preferred");
  // As the agents name the devices of other vendors.
  for (const auto& resource : contract::kAcceleratorResources)
    EXPECT_EQ(told("Required", true, std::string(resource).c_str()), "Required") << resource;
  EXPECT_EQ(told("Preferred", true, "nvidia.com/mig-1g.10gb"), "Preferred");
  EXPECT_EQ(told("Preferred", true, "nvidia.com/hostdev"), "");
  EXPECT_EQ(told("Preferred", false), "");
  EXPECT_EQ(told("Disabled", true), "Disabled");
  EXPECT_EQ(told("Disabled", false), "Disabled");
}

}  // namespace
}  // namespace paceline
