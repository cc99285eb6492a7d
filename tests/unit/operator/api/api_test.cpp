// SPDX-License-Identifier: Apache-2.0
// What a job file may say, and what is wrong with one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "operator/api/parse.hpp"
#include "operator/api/template/containers.hpp"
#include "operator/api/validate.hpp"
#include "tests/unit/operator/api/job_document.hpp"

namespace paceline {
namespace {

TEST(Parse, FillsInDefaults) {
  const auto job = api::parse_training_job(minimal());
  ASSERT_TRUE(job.has_value());
  EXPECT_EQ(job->spec.failure_policy.max_restarts, 3);
  EXPECT_EQ(job->spec.failure_policy.grace_period, std::chrono::seconds(30));
  EXPECT_EQ(job->spec.scheduling.gang_timeout, std::chrono::minutes(2));
  EXPECT_EQ(job->spec.preferred_timeout, std::chrono::minutes(5));
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
  spec["scheduling"] = {
      {"queue", "q"}, {"priorityClassName", "high"}, {"gangTimeout", "90s"}, {"podsPerNode", 2}};
  spec["failurePolicy"] = {
      {"maxRestarts", 0}, {"backoff", "5s"}, {"gracePeriod", "1m"}, {"forceDeleteAfter", "2m"}};
  spec["acceleration"] = {{"runtimeProfileName", "quick"},
                          {"mode", "Manual"},
                          {"numerics", "Bitwise"},
                          {"loader", "Auto"},
                          {"optimizer", "Disabled"}};
  spec["network"] = {{"gpuDirect", "Preferred"}};
  spec["topology"] = {{"required", "Zone"}, {"preferred", "Leaf"}, {"preferredTimeout", "10m"}};
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
  EXPECT_EQ(job->spec.scheduling.pods_per_node, 2);
  EXPECT_EQ(job->spec.failure_policy.max_restarts, 0);
  EXPECT_EQ(job->spec.failure_policy.backoff, std::chrono::seconds(5));
  EXPECT_EQ(job->spec.failure_policy.force_delete_after, std::chrono::minutes(2));
  EXPECT_EQ(job->spec.runtime_profile, "quick");
  EXPECT_EQ(job->spec.acceleration.mode, api::AccelerationMode::kManual);
  EXPECT_EQ(job->spec.acceleration.numerics, api::Numerics::kBitwise);
  EXPECT_EQ(job->spec.acceleration.features[api::Feature::kLoader], "Auto");
  EXPECT_EQ(job->spec.acceleration.features[api::Feature::kOptimizer], "Disabled");
  EXPECT_EQ(job->spec.network.gpu_direct, api::GpuDirect::kPreferred);
  EXPECT_EQ(job->spec.required_topology, api::TopologyLevel::kZone);
  EXPECT_EQ(job->spec.preferred_topology, api::TopologyLevel::kLeaf);
  EXPECT_EQ(job->spec.preferred_timeout, std::chrono::minutes(10));
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
       "kind, "
       "processes, startAfter, template"},
      {"/spec/roles/0/template/spec/containers/0/command", "python3",
       "spec.roles[0].template.spec.containers[0].command: \"python3\" is not a list"},
      {"/spec/roles/0/template/metadata",
       {{"name", "x"}},
       "spec.roles[0].template.metadata.name: is an unknown field"},
      {"/spec/framework/type", "Pytorch",
       "spec.framework.type: \"Pytorch\" is not known; write one of PyTorch, TensorFlow, "
       "PaddlePaddle, MindSpore, MPI, Horovod, DeepSpeed, JAX, BytePS, XGBoost, Custom"},
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
      {"/spec/topology",
       {{"required", "Leaf"}, {"preferred", "Spine"}},
       "spec.topology.preferred: \"Spine\" is not closer than required; write a level closer"},
      {"/spec/topology",
       {{"preferredTimeout", "5m"}},
       "spec.topology.preferredTimeout: \"5m\" limits a wait that no field asks for; write "
       "preferred: Leaf beside it, or remove it"},
      {"/spec/topology",
       {{"preferred", "Leaf"}, {"preferredTimeout", "0s"}},
       "spec.topology.preferredTimeout: \"0s\" is too short; write at least 1s"},
      {"/spec/network", {{"transport", "RDMA"}}, "spec.network.transport: is an unknown field"},
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
      {"priorityClassName", "high"},
      {"topologySpreadConstraints", {{{"maxSkew", 1}, {"whenUnsatisfiable", "DoNotSchedule"}}}},
      {"affinity",
       {{"podAntiAffinity",
         {{"requiredDuringSchedulingIgnoredDuringExecution", nlohmann::json::array({1})}}}}},
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

/// The paths that are refused in a job of which each pod constrains its node and its neighbours.
std::vector<std::string> refused_of_crowded_pod(const char* backend) {
  auto document = minimal();
  document["spec"]["scheduling"] = {{"backend", backend}, {"queue", "q"}};
  nlohmann::json& pod = document["spec"]["roles"][0]["template"]["spec"];
  const nlohmann::json required = {
      {"requiredDuringSchedulingIgnoredDuringExecution", nlohmann::json::array({1})}};
  pod["affinity"] = {{"podAffinity", required}, {"podAntiAffinity", required}};
  pod["topologySpreadConstraints"] = {{{"maxSkew", 1}, {"whenUnsatisfiable", "DoNotSchedule"}}};
  pod["containers"][0]["ports"] = {{{"containerPort", 80}, {"hostPort", 80}}};
  std::vector<std::string> paths;
  for (const auto& error : api::validate_for_cluster(*api::parse_training_job(document)))
    paths.push_back(error.path.substr(std::string("spec.roles[0].template.spec.").size()));
  return paths;
}

TEST(Validate, AnotherSchedulerDecidesOnWhatPlacementDoesNotModel) {
  EXPECT_EQ(refused_of_crowded_pod("Native"),
            (std::vector<std::string>{
                "affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution",
                "affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution",
                "topologySpreadConstraints[0]", "containers[0].ports[0].hostPort"}));
  for (const char* backend : {"Volcano", "Coscheduling", "PodGroup", "KAI"})
    EXPECT_EQ(refused_of_crowded_pod(backend), std::vector<std::string>()) << backend;
}

TEST(Validate, AnotherSchedulerStillRefusesWhatPacelineOwns) {
  const std::pair<const char*, nlohmann::json> cases[] = {{"nodeName", "n1"},
                                                          {"hostNetwork", true},
                                                          {"restartPolicy", "OnFailure"},
                                                          {"priorityClassName", "high"}};
  for (const auto& [field, value] : cases) {
    auto document = minimal();
    document["spec"]["scheduling"] = {{"backend", "Volcano"}};
    document["spec"]["roles"][0]["template"]["spec"][field] = value;
    const auto errors = api::validate_for_cluster(*api::parse_training_job(document));
    ASSERT_EQ(errors.size(), 1U) << field;
    EXPECT_TRUE(errors[0].path.ends_with(field)) << errors[0].path;
  }
}

/// The errors of a job whose pods are in the network of their nodes.
api::FieldErrors errors_in_host_network(const nlohmann::json& change) {
  auto document = minimal();
  document["spec"]["roles"][0]["template"]["spec"]["hostNetwork"] = true;
  return api::validate_for_cluster(*api::parse_training_job(document.patch(change)));
}

TEST(Validate, PodsMayBeInTheNetworkOfTheirNodeWithPortsFromPaceline) {
  EXPECT_TRUE(errors_in_host_network(nlohmann::json::array()).empty());
  const auto chosen = errors_in_host_network(nlohmann::json::parse(
      R"([{"op": "add", "path": "/spec/scheduling", "value": {"backend": "Coscheduling"}}])"));
  ASSERT_EQ(chosen.size(), 1U);
  EXPECT_EQ(chosen[0].path, "spec.roles[0].template.spec.hostNetwork");
  EXPECT_NE(chosen[0].remedy.find("backend: Native"), std::string::npos) << chosen[0].remedy;
  const auto listed = errors_in_host_network(nlohmann::json::parse(R"([{"op": "add",
      "path": "/spec/roles/0/template/spec/containers/0/ports",
      "value": [{"containerPort": 80}]}])"));
  ASSERT_EQ(listed.size(), 1U);
  EXPECT_EQ(listed[0].path, "spec.roles[0].template.spec.containers[0].ports[0].containerPort");
}

TEST(Validate, AWorkerThatIsReplacedAloneKeepsItsPorts) {
  auto servers = minimal();
  servers["spec"]["framework"]["type"] = "PaddlePaddle";
  auto& roles = servers["spec"]["roles"];
  roles.push_back(roles[0]);
  roles[1]["name"] = "server";
  roles[1]["kind"] = "ParameterServer";
  EXPECT_TRUE(api::validate_for_cluster(*api::parse_training_job(servers)).empty());
  roles[0]["template"]["spec"]["hostNetwork"] = true;
  const auto errors = api::validate_for_cluster(*api::parse_training_job(servers));
  ASSERT_EQ(errors.size(), 1U);
  EXPECT_EQ(errors[0].path, "spec.roles[0].template.spec.hostNetwork");
  servers["spec"]["framework"]["type"] = "TensorFlow";
  EXPECT_TRUE(api::validate_for_cluster(*api::parse_training_job(servers)).empty())
      << "all start again, and learn the new ports";
}

TEST(Validate, ClaimsOfDevicesAndVolumesOfAPodsOwnAreTaken) {
  const nlohmann::json claims = {{{"name", "imex"}, {"resourceClaimTemplateName", "channel"}}};
  const nlohmann::json volumes = {
      {{"name", "v"}, {"ephemeral", {{"volumeClaimTemplate", {{"spec", {{"a", 1}}}}}}}}};
  auto document = minimal();
  nlohmann::json& pod = document["spec"]["roles"][0]["template"]["spec"];
  pod["resourceClaims"] = claims;
  pod["volumes"] = volumes;
  pod["containers"][0]["resources"]["claims"] = {{{"name", "imex"}}};
  EXPECT_TRUE(api::validate_for_cluster(*api::parse_training_job(document)).empty());
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
