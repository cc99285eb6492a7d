// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "common/contract/accelerators.hpp"
#include "common/contract/env.hpp"
#include "operator/api/acceleration.hpp"
#include "operator/api/containers.hpp"
#include "operator/api/parse.hpp"
#include "operator/api/validate.hpp"
#include "operator/render/environment.hpp"

namespace paceline {
namespace {

nlohmann::json minimal() {
  return nlohmann::json::parse(R"({
    "apiVersion": "paceline.dev/v1alpha1", "kind": "TrainingJob",
    "metadata": {"name": "digits", "namespace": "research", "uid": "u-1"},
    "spec": {"framework": {"type": "PyTorch", "processesPerReplica": 2},
             "roles": [{"name": "worker", "replicas": 2, "template": {"spec": {"containers": [
               {"name": "trainer", "image": "i", "command": ["python3"], "args": ["train.py"]}]}}}]}})");
}

/// The only error of the document, as text; empty if it parses.
std::string error_of(const nlohmann::json& document) {
  const auto job = api::parse_training_job(document);
  return job ? "" : api::to_error(job.error()).message;
}

TEST(Parse, FillsInDefaults) {
  const auto job = api::parse_training_job(minimal());
  ASSERT_TRUE(job.has_value());
  EXPECT_EQ(job->spec.failure_policy.max_restarts, 3);
  EXPECT_EQ(job->spec.failure_policy.grace_period, std::chrono::seconds(30));
  EXPECT_EQ(job->spec.scheduling.gang_timeout, std::chrono::minutes(2));
  EXPECT_EQ(job->spec.managed_by, "paceline.dev/operator");
  EXPECT_FALSE(job->spec.active_deadline.has_value());
  EXPECT_EQ(api::queue_of(*job), "research");
  EXPECT_EQ(api::world_size(job->spec), 4);
}

TEST(Parse, ReadsEveryField) {
  auto document = minimal();
  auto& spec = document["spec"];
  spec["framework"] = {
      {"type", "Custom"}, {"processesPerReplica", "Auto"}, {"launcher", "Passthrough"}};
  spec["scheduling"] = {{"queue", "q"},
                        {"priorityClassName", "high"},
                        {"gangTimeout", "90s"},
                        {"exclusiveNodes", true}};
  spec["failurePolicy"] = {
      {"maxRestarts", 0}, {"backoff", "5s"}, {"gracePeriod", "1m"}, {"forceDeleteAfter", "2m"}};
  spec["acceleration"] = {{"profileRef", "quick"},
                          {"mode", "Manual"},
                          {"numerics", "Bitwise"},
                          {"loader", "Auto"},
                          {"optimizer", "Disabled"}};
  spec["network"] = {{"gpuDirect", "Preferred"}};
  spec["successPolicy"] = "RankZero";
  spec["suspend"] = true;
  spec["activeDeadline"] = "24h";
  spec["ttlAfterFinished"] = "1h";
  spec["cleanPodPolicy"] = "None";
  spec["managedBy"] = "kueue.x-k8s.io/multikueue";
  const auto job = api::parse_training_job(document);
  ASSERT_TRUE(job.has_value()) << error_of(document);
  EXPECT_EQ(job->spec.framework.type, api::FrameworkType::kCustom);
  EXPECT_FALSE(job->spec.framework.processes_per_replica.has_value());
  EXPECT_EQ(job->spec.framework.launcher, api::FrameworkLauncher::kPassthrough);
  EXPECT_EQ(job->spec.scheduling.priority_class_name, "high");
  EXPECT_EQ(job->spec.scheduling.gang_timeout, std::chrono::seconds(90));
  EXPECT_TRUE(job->spec.scheduling.exclusive_nodes);
  EXPECT_EQ(job->spec.failure_policy.max_restarts, 0);
  EXPECT_EQ(job->spec.failure_policy.backoff, std::chrono::seconds(5));
  EXPECT_EQ(job->spec.failure_policy.force_delete_after, std::chrono::minutes(2));
  EXPECT_EQ(job->spec.runtime_profile, "quick");
  ASSERT_TRUE(job->spec.acceleration);
  EXPECT_EQ(job->spec.acceleration->mode, api::AccelerationMode::kManual);
  EXPECT_EQ(job->spec.acceleration->numerics, api::Numerics::kBitwise);
  EXPECT_EQ(job->spec.acceleration->features[api::Feature::kLoader], "Auto");
  EXPECT_EQ(job->spec.acceleration->features[api::Feature::kOptimizer], "Disabled");
  EXPECT_EQ(job->spec.network.gpu_direct, api::GpuDirect::kPreferred);
  EXPECT_EQ(job->spec.success_policy, api::SuccessPolicy::kRankZero);
  EXPECT_TRUE(job->spec.suspend);
  EXPECT_EQ(job->spec.active_deadline, std::chrono::hours(24));
  EXPECT_EQ(job->spec.ttl_after_finished, std::chrono::hours(1));
  EXPECT_EQ(job->spec.clean_pod_policy, api::CleanPodPolicy::kNone);
  EXPECT_EQ(api::queue_of(*job), "q");
}

TEST(Parse, NamesFieldValueAndRemedy) {
  struct Case {
    const char* pointer;
    nlohmann::json value;
    const char* expected;
  };
  const Case cases[] = {
      {"/spec/roles/0/replicas", 0,
       "spec.roles[0].replicas: 0 is out of range; write a whole number from 1 to 10000"},
      {"/spec/roles/0/replicas", "2",
       "spec.roles[0].replicas: \"2\" is not a whole number; write a whole number from 1 to 10000"},
      {"/spec/roles/0/replicas", 18446744073709551615ULL, "is out of range"},
      {"/spec/roles/0/name", "Worker", "spec.roles[0].name: \"Worker\" cannot name a role"},
      {"/spec/roles/0/replica", 2,
       "spec.roles[0].replica: is an unknown field; remove it, or write one of name, replicas, "
       "template"},
      {"/spec/roles/0/template/spec/containers/0/command", "python3",
       "spec.roles[0].template.spec.containers[0].command: \"python3\" is not a list"},
      {"/spec/roles/0/template/metadata",
       {{"name", "x"}},
       "spec.roles[0].template.metadata.name: is an unknown field"},
      {"/spec/framework/type", "Pytorch",
       "spec.framework.type: \"Pytorch\" is not known; write one of PyTorch, Custom"},
      {"/spec/framework/processesPerReplica", 65,
       "is out of range; write a whole number from 1 to 64"},
      {"/spec/framework/processesPerReplica", "auto", "write a whole number from 1 to 64, or Auto"},
      {"/spec/activeDeadline", "1 day",
       "spec.activeDeadline: \"1 day\" is not a duration; write a duration such as 30s"},
      {"/spec/suspend", "true", "spec.suspend: \"true\" is not a boolean"},
      {"/spec/acceleration",
       {{"mode", false}},
       "spec.acceleration.mode: false is not known; write one of"},
      {"/spec/acceleration",
       {{"mode", "Off"}},
       "spec.acceleration.mode: \"Off\" is not known; write one of Auto, Manual, Disabled"},
      {"/spec/acceleration",
       {{"mode", "Disabled"}, {"loader", "Auto"}},
       "spec.acceleration.loader: \"Auto\" contradicts mode: Disabled; remove it, or write mode: "
       "Manual"},
      {"/spec/network",
       {{"gpuDirect", "Off"}},
       "spec.network.gpuDirect: \"Off\" is not known; write one of Required, Preferred, Disabled"},
      {"/spec/network", {{"transport", "RDMA"}}, "spec.network.transport: is an unknown field"},
      {"/spec/elastic", {{"role", "w"}}, "spec.elastic: is an unknown field"},
      {"/metadata/name", "1digits", "metadata.name: \"1digits\" cannot name a job"},
      {"/kind", "PyTorchJob", "kind: \"PyTorchJob\" is not known; write TrainingJob"},
  };
  for (const Case& test : cases) {
    auto document = minimal();
    document[nlohmann::json::json_pointer(test.pointer)] = test.value;
    EXPECT_NE(error_of(document).find(test.expected), std::string::npos)
        << test.pointer << ": " << error_of(document);
  }
}

TEST(Parse, TwoRolesOfOneName) {
  auto document = minimal();
  document["spec"]["roles"].push_back(document["spec"]["roles"][0]);
  EXPECT_NE(error_of(document).find("spec.roles[1].name: \"worker\" is used by two roles"),
            std::string::npos);
}

TEST(Parse, ReportsAllProblemsAtOnce) {
  auto document = minimal();
  document["spec"].erase("framework");
  document["spec"]["roles"][0].erase("replicas");
  const auto job = api::parse_training_job(document);
  ASSERT_FALSE(job.has_value());
  EXPECT_EQ(job.error().size(), 2U);
}

TEST(Parse, SurvivesAnyShape) {
  // Replaces every node of the document by every kind of value: the result is an error, never a
  // crash or an exception.
  const nlohmann::json flat = minimal().flatten();
  const nlohmann::json kinds[] = {
      nullptr, true, 7, -1, 1.5, "text", nlohmann::json::array(), nlohmann::json::object()};
  for (const auto& [pointer, unused] : flat.items()) {
    for (std::string path = pointer; !path.empty(); path.resize(path.rfind('/'))) {
      for (const auto& kind : kinds) {
        auto document = minimal();
        document[nlohmann::json::json_pointer(path)] = kind;
        const auto job = api::parse_training_job(document);
        if (job) api::validate_for_cluster(*job);
      }
    }
  }
  EXPECT_FALSE(error_of(nlohmann::json::array()).empty());
}

TEST(Quantity, Forms) {
  EXPECT_EQ(api::parse_quantity_milli("250m"), 250);
  EXPECT_EQ(api::parse_quantity_milli("2"), 2000);
  EXPECT_EQ(api::parse_quantity_milli(2), 2000);
  EXPECT_EQ(api::parse_quantity_milli("0.5"), 500);
  EXPECT_EQ(api::parse_quantity_milli("1Gi"), 1073741824000);
  EXPECT_EQ(api::parse_quantity_milli("128M"), 128000000000);
  EXPECT_EQ(api::parse_quantity_milli("1e3"), 1000000);
  EXPECT_EQ(api::parse_quantity_milli("1E"), 9'200'000'000'000'000'000 < INT64_MAX
                                                 ? std::optional<std::int64_t>(INT64_MAX)
                                                 : std::nullopt);
  EXPECT_FALSE(api::parse_quantity_milli("lots").has_value());
  EXPECT_FALSE(api::parse_quantity_milli("1GiB").has_value());
}

TEST(Validate, MissingCommand) {
  auto document = minimal();
  document["spec"]["roles"][0]["template"]["spec"]["containers"][0].erase("command");
  const auto errors = api::validate_program(*api::parse_training_job(document));
  ASSERT_EQ(errors.size(), 1U);
  EXPECT_EQ(errors[0].path, "spec.roles[0].template.spec.containers[0].command");
  EXPECT_NE(errors[0].remedy.find("command: ["), std::string::npos);
}

TEST(Validate, WhatPlacementDoesNotModelIsRefusedByName) {
  const std::pair<const char*, nlohmann::json> cases[] = {
      {"nodeName", "n1"},
      {"restartPolicy", "OnFailure"},
      {"hostNetwork", true},
      {"priorityClassName", "high"},
      {"resourceClaims", {{{"name", "c"}}}},
      {"topologySpreadConstraints", {{{"maxSkew", 1}, {"whenUnsatisfiable", "DoNotSchedule"}}}},
      {"affinity",
       {{"podAntiAffinity",
         {{"requiredDuringSchedulingIgnoredDuringExecution", nlohmann::json::array({1})}}}}},
      {"volumes", {{{"name", "v"}, {"ephemeral", nlohmann::json::object()}}}},
  };
  for (const auto& [field, value] : cases) {
    auto document = minimal();
    document["spec"]["roles"][0]["template"]["spec"][field] = value;
    const auto errors = api::validate_for_cluster(*api::parse_training_job(document));
    ASSERT_EQ(errors.size(), 1U) << field;
    EXPECT_NE(errors[0].path.find(field), std::string::npos) << errors[0].path;
  }
  EXPECT_TRUE(api::validate_for_cluster(*api::parse_training_job(minimal())).empty());
}

TEST(Containers, TrainerByNameElseTheOnlyOne) {
  auto document = minimal();
  auto& containers = document["spec"]["roles"][0]["template"]["spec"]["containers"];
  containers[0]["name"] = "main";
  EXPECT_EQ(api::trainer_index(api::parse_training_job(document)->spec.roles[0]), 0);
  containers.push_back({{"name", "sidecar"}});
  EXPECT_EQ(api::trainer_index(api::parse_training_job(document)->spec.roles[0]), -1);
  EXPECT_EQ(api::validate_program(*api::parse_training_job(document)).size(), 1U);
  containers[1]["name"] = "trainer";
  EXPECT_EQ(api::trainer_index(api::parse_training_job(document)->spec.roles[0]), 1);
}

TEST(Containers, AutoCountsAccelerators) {
  auto document = minimal();
  document["spec"]["framework"]["processesPerReplica"] = "Auto";
  EXPECT_EQ(api::world_size(api::parse_training_job(document)->spec), 2);
  document["spec"]["roles"][0]["template"]["spec"]["containers"][0]["resources"] = {
      {"limits", {{"nvidia.com/gpu", 8}, {"cpu", "64"}}}};
  EXPECT_EQ(api::world_size(api::parse_training_job(document)->spec), 16);
}

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
  const Case cases[] = {
      {nullptr, none, {}},
      {nlohmann::json::object(),
       none,
       {{"NUMERICS", "Reordered"},
        {"LOADER", "Auto"},
        {"OPTIMIZER", "Auto"},
        {"COMMUNICATION", "Auto"}}},
      {{{"optimizer", "Disabled"}, {"communication", "Disabled"}, {"numerics", "Bitwise"}},
       none,
       {{"NUMERICS", "Bitwise"}, {"LOADER", "Auto"}}},
      {{{"mode", "Manual"}}, none, {}},
      {{{"mode", "Manual"}, {"optimizer", "Auto"}},
       none,
       {{"NUMERICS", "Reordered"}, {"OPTIMIZER", "Auto"}}},
      {{{"mode", "Disabled"}}, none, {}},
      {nlohmann::json::object(),
       {{{"name", "PACELINE_LOADER"}, {"value", "Disabled"}}, {{"value", "unnamed"}}},
       {{"NUMERICS", "Reordered"}, {"OPTIMIZER", "Auto"}, {"COMMUNICATION", "Auto"}}},
      {{{"mode", "Manual"}, {"numerics", "Lossy"}, {"compression", "TopK:ratio=0.02"}},
       none,
       {{"NUMERICS", "Lossy"},
        {"COMMUNICATION", "Auto"},
        {"COMMUNICATION_COMPRESSION", "TopK:ratio=0.02"}}},
      {{{"mode", "Manual"}, {"numerics", "Lossy"}, {"compression", "Int8"}},
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

std::string shown(const std::optional<api::Acceleration>& acceleration) {
  if (!acceleration) return "nothing";
  const auto& features = acceleration->features;
  const auto switched = [&](api::Feature feature, const char* name) {
    return features[feature] == "Auto" ? std::string(" ") + name : "";
  };
  const auto named = [&](api::Feature feature) {
    return features[feature] == "Disabled" ? "" : " " + features[feature];
  };
  return acceleration->profile + " " + std::string(api::to_string(acceleration->numerics)) +
         switched(api::Feature::kLoader, "loader") +
         switched(api::Feature::kOptimizer, "optimizer") +
         switched(api::Feature::kCommunication, "communication") +
         named(api::Feature::kCompression) + named(api::Feature::kPrecision) +
         (features[api::Feature::kCudaGraph] == "Auto" ? "" : " no graphs");
}

TEST(RuntimeProfile, SaysWhatTheJobLeavesUnset) {
  struct Case {
    nlohmann::json profile;  // null: there is none
    nlohmann::json job;      // null: the job says nothing
    std::string expected;
  };
  const nlohmann::json empty = nlohmann::json::object();
  const nlohmann::json lossy = {{"mode", "Manual"}, {"numerics", "Lossy"}, {"compression", "Int8"}};
  const nlohmann::json precise = {{"mode", "Manual"}, {"numerics", "Lossy"}, {"precision", "O2"}};
  const Case cases[] = {
      {nullptr, nullptr, "nothing"},
      {nullptr, empty, " Reordered loader optimizer communication"},
      {empty, nullptr, "p Reordered loader optimizer communication"},
      {{{"mode", "Disabled"}}, nullptr, "nothing"},
      {{{"mode", "Disabled"}}, empty, "nothing"},
      {{{"mode", "Disabled"}}, {{"loader", "Auto"}}, "p Reordered loader"},
      {{{"mode", "Disabled"}}, {{"mode", "Auto"}}, "p Reordered loader optimizer communication"},
      {{{"numerics", "Bitwise"}, {"optimizer", "Disabled"}},
       nullptr,
       "p Bitwise loader communication"},
      {{{"numerics", "Bitwise"}, {"optimizer", "Disabled"}},
       {{"numerics", "Reordered"}},
       "p Reordered loader communication"},
      {{{"loader", "Auto"}, {"optimizer", "Auto"}}, {{"mode", "Disabled"}}, "nothing"},
      {{{"mode", "Manual"}, {"loader", "Auto"}}, {{"loader", "Disabled"}}, "nothing"},
      {{{"mode", "Manual"}, {"loader", "Auto"}},
       {{"optimizer", "Auto"}},
       "p Reordered loader optimizer"},
      // Compression: never unless it is named, in its class alone, and with what carries it.
      {nullptr, {{"numerics", "Lossy"}}, " Lossy loader optimizer communication"},
      {nullptr, lossy, " Lossy communication Int8"},
      {{{"communication", "Disabled"}}, lossy, "p Lossy communication Int8"},
      {lossy, nullptr, "p Lossy communication Int8"},
      {lossy, {{"loader", "Auto"}}, "p Lossy loader communication Int8"},
      {lossy, {{"compression", "Disabled"}}, "nothing"},
      {lossy, {{"communication", "Disabled"}}, "nothing"},
      {lossy, {{"numerics", "Reordered"}, {"optimizer", "Auto"}}, "p Reordered optimizer"},
      {lossy, {{"numerics", "Lossy"}, {"compression", "FP16"}}, "p Lossy communication FP16"},
      {{{"mode", "Disabled"}}, lossy, "p Lossy communication Int8"},
      // Precision: likewise never unless it is named, and in its class alone.
      {nullptr, precise, " Lossy O2"},
      {precise, nullptr, "p Lossy O2"},
      {precise, {{"precision", "Disabled"}}, "nothing"},
      {precise, {{"numerics", "Lossy"}, {"precision", "TF32"}}, "p Lossy TF32"},
      {precise, {{"numerics", "Reordered"}, {"loader", "Auto"}}, "p Reordered loader"},
      {precise, {{"numerics", "Bitwise"}}, "nothing"},
      // Graphs: on unless they are turned off.
      {nullptr, {{"mode", "Manual"}, {"cudaGraph", "Disabled"}}, " Reordered no graphs"},
      {{{"cudaGraph", "Disabled"}},
       {{"numerics", "Bitwise"}, {"mode", "Manual"}},
       "p Bitwise no graphs"},
      {{{"cudaGraph", "Disabled"}, {"mode", "Manual"}}, {{"cudaGraph", "Auto"}}, "nothing"},
      {{{"cudaGraph", "Disabled"}}, {{"mode", "Disabled"}}, "nothing"},
  };
  for (const Case& test : cases) {
    auto document = minimal();
    if (!test.job.is_null()) document["spec"]["acceleration"] = test.job;
    const auto job = api::parse_training_job(document);
    ASSERT_TRUE(job.has_value()) << error_of(document);
    std::expected<api::RuntimeProfile, api::FieldErrors> profile;
    if (!test.profile.is_null())
      profile = api::parse_runtime_profile(
          {{"metadata", {{"name", "p"}}}, {"spec", {{"acceleration", test.profile}}}});
    ASSERT_TRUE(profile.has_value()) << test.profile;
    EXPECT_EQ(
        shown(api::resolve(job->spec.acceleration, test.profile.is_null() ? nullptr : &*profile)),
        test.expected)
        << test.profile << test.job;
  }
}

TEST(Compression, HasOneSpelling) {
  const auto& rule = contract::kFeatures.at(static_cast<std::size_t>(api::Feature::kCompression));
  for (const char* text :
       {"Disabled", "FP16", "BF16:start=2", "Int8:start=100", "TopK", "TopK:ratio=0.01",
        "TopK:ratio=0.000001", "TopK:start=7", "TopK:ratio=0.5,start=10", "PowerSGD",
        "PowerSGD:rank=4", "PowerSGD:start=1000", "PowerSGD:rank=1,start=999999999"})
    EXPECT_TRUE(api::is_allowed(rule, text)) << text;
  for (const char* text : {"",
                           "disabled",
                           "fp16",
                           "FP16:",
                           "FP16:start",
                           "FP16:start=",
                           "FP16:start=1",
                           "FP16:start=02",
                           "FP16:start=2,",
                           "FP16:start=-2",
                           "FP16:ratio=0.1",
                           "Int8:rank=1",
                           "TopK:ratio=1",
                           "TopK:ratio=0.",
                           "TopK:ratio=0.0",
                           "TopK:ratio=.1",
                           "TopK:ratio=0.10",
                           "TopK:ratio=0.0000001",
                           "TopK:start=2,ratio=0.1",
                           "TopK:ratio=0.1,",
                           "TopK:ratio=0.1,ratio=0.1",
                           "PowerSGD:rank=0",
                           "PowerSGD:rank=1,rank=1",
                           "PowerSGD:ratio=0.1",
                           "PowerSGD:start=1",
                           "PowerSGD:start=1000000000",
                           "OneBit",
                           " FP16",
                           "FP16 ",
                           "FP16\n"})
    EXPECT_FALSE(api::is_allowed(rule, text)) << text;
}

TEST(Compression, RefusedWhereItContradicts) {
  const auto wrong = [](const nlohmann::json& acceleration) {
    auto document = minimal();
    document["spec"]["acceleration"] = acceleration;
    return error_of(document);
  };
  EXPECT_THAT(
      wrong({{"compression", "Int8"}}),
      testing::HasSubstr(
          "spec.acceleration.compression: \"Int8\" loses precision, which only numerics: Lossy "
          "allows; write numerics: Lossy beside it"));
  EXPECT_THAT(wrong({{"compression", "zip"}, {"numerics", "Lossy"}}),
              testing::HasSubstr("\"zip\" is no way to compress; write Disabled, FP16"));
  EXPECT_THAT(wrong({{"compression", "FP16"}, {"numerics", "Lossy"}, {"mode", "Disabled"}}),
              testing::HasSubstr("contradicts mode: Disabled"));
  EXPECT_THAT(
      wrong({{"compression", "FP16"}, {"numerics", "Lossy"}, {"communication", "Disabled"}}),
      testing::HasSubstr("contradicts communication: Disabled"));
  EXPECT_THAT(wrong({{"compression", 8}}), testing::HasSubstr("compression: 8 is not a string"));
  EXPECT_EQ(wrong({{"compression", "Disabled"}, {"mode", "Disabled"}}), "");
}

TEST(Precision, RefusedWhereItContradicts) {
  const auto wrong = [](const nlohmann::json& acceleration) {
    auto document = minimal();
    document["spec"]["acceleration"] = acceleration;
    return error_of(document);
  };
  EXPECT_THAT(wrong({{"precision", "O1"}}),
              testing::HasSubstr(
                  "spec.acceleration.precision: \"O1\" loses precision, which only numerics: Lossy "
                  "allows; write numerics: Lossy beside it"));
  EXPECT_THAT(wrong({{"precision", "TF32"}, {"numerics", "Reordered"}}),
              testing::HasSubstr("loses precision"));
  EXPECT_THAT(wrong({{"precision", "O2"}, {"numerics", "Lossy"}, {"mode", "Disabled"}}),
              testing::HasSubstr("contradicts mode: Disabled"));
  EXPECT_THAT(wrong({{"precision", "O3"}, {"numerics", "Lossy"}}),
              testing::HasSubstr("Disabled, TF32, O1, O2"));
  EXPECT_THAT(wrong({{"precision", true}}),
              testing::HasSubstr("spec.acceleration.precision: true"));
  EXPECT_THAT(wrong({{"cudaGraph", "Auto"}, {"mode", "Disabled"}}),
              testing::HasSubstr("contradicts mode: Disabled"));
  EXPECT_THAT(wrong({{"cudaGraph", "On"}}),
              testing::HasSubstr("spec.acceleration.cudaGraph: \"On\""));
  EXPECT_EQ(wrong({{"precision", "Disabled"}, {"cudaGraph", "Disabled"}, {"mode", "Disabled"}}),
            "");
}

TEST(RuntimeProfile, BadOneNamesTheField) {
  const auto wrong = [](const nlohmann::json& document) {
    const auto profile = api::parse_runtime_profile(document);
    return profile ? std::string("fine") : api::to_error(profile.error()).message;
  };
  const nlohmann::json named = {{"name", "p"}};
  EXPECT_THAT(wrong({{"metadata", named}, {"spec", {{"acceleration", {{"loader", "On"}}}}}}),
              testing::HasSubstr(
                  "spec.acceleration.loader: \"On\" is not known; write one of Auto, Disabled"));
  EXPECT_THAT(wrong({{"metadata", named}, {"spec", {{"acceleration", {{"profileRef", "q"}}}}}}),
              testing::HasSubstr("spec.acceleration.profileRef"));
  EXPECT_THAT(wrong({{"metadata", named}, {"spec", {{"numerics", "Bitwise"}}}}),
              testing::HasSubstr("spec.numerics"));
  EXPECT_THAT(wrong({{"metadata", {{"name", 7}}}}), testing::HasSubstr("metadata.name"));
  EXPECT_THAT(wrong("text"), testing::HasSubstr("object"));
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

TEST(Validate, RequiredGpuDirectWantsAnAccelerator) {
  auto document = minimal();
  document["spec"]["network"] = {{"gpuDirect", "Required"}};
  const auto errors = [&] {
    return api::to_error(api::validate_program(*api::parse_training_job(document))).message;
  };
  EXPECT_NE(errors().find("spec.network.gpuDirect: Required asks for what no role can have"),
            std::string::npos)
      << errors();
  EXPECT_NE(errors().find("nvidia.com/gpu"), std::string::npos) << errors();
  document["spec"]["roles"][0]["template"]["spec"]["containers"][0]["resources"] = {
      {"limits", {{"nvidia.com/gpu", 1}}}};
  EXPECT_EQ(errors().find("gpuDirect"), std::string::npos) << errors();
}

}  // namespace
}  // namespace paceline
