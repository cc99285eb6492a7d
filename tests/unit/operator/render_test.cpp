// SPDX-License-Identifier: Apache-2.0
// Pods as they are sent to the API server.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "common/contract/pod_defaults.hpp"
#include "operator/api/parse.hpp"
#include "operator/render/names.hpp"
#include "operator/render/pod.hpp"

namespace paceline::render {
namespace {

using nlohmann::json;

json document() {
  return json::parse(R"({
    "apiVersion": "paceline.dev/v1alpha1", "kind": "TrainingJob",
    "metadata": {"name": "digits", "namespace": "research", "uid": "u-1"},
    "spec": {"framework": {"type": "PyTorch"},
             "roles": [{"name": "worker", "replicas": 3, "template": {"spec": {
               "dnsPolicy": "None", "dnsConfig": {"nameservers": ["192.0.2.1"]},
               "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                 {"matchExpressions": [{"key": "a", "operator": "Exists"}]}, {"matchExpressions": [{"key": "b", "operator": "Exists"}]}]}}},
               "containers": [{"name": "trainer", "image": "i", "command": ["train"], "env": [{"name": "MINE", "value": "x"}]}]}}}]}})");
}

json pod_of(int index, const std::string& rendezvous_ip, bool gated = true) {
  const auto job = api::parse_training_job(document());
  PodInputs inputs;
  inputs.rendezvous_ip = rendezvous_ip;
  inputs.node = "n7";
  inputs.gated = gated;
  return render_pod(*job, api::replicas_of(job->spec).at(static_cast<std::size_t>(index)), inputs);
}

/// The variables as the launcher sees them: those of the pod, and its settings.
std::map<std::string, json> environment_of(const json& pod) {
  std::map<std::string, json> variables;
  for (const json& variable : pod["spec"]["containers"][0]["env"]) {
    variables[variable["name"]] = variable;
    if (variable["name"] != "PACELINE_SETTINGS") continue;
    const json settings = json::parse(variable["value"].get<std::string>());
    for (const contract::PodDefault& known : contract::kPodDefaults)
      variables["PACELINE_" + std::string(known.name)] = {{"value", known.value}};
    for (const auto& [name, value] : settings.items())
      variables["PACELINE_" + name] = {{"value", value}};
  }
  return variables;
}

TEST(Render, APodIsToldItsSettingsInOneVariable) {
  const json pod = pod_of(1, "10.96.0.17");
  std::vector<std::string> names;
  for (const json& variable : pod["spec"]["containers"][0]["env"])
    names.push_back(variable["name"]);
  EXPECT_EQ(names, (std::vector<std::string>{"PACELINE_SETTINGS", "PACELINE_POD_IP",
                                             "PACELINE_TOKEN", "MINE"}));
  const auto told = environment_of(pod);
  EXPECT_EQ(told.at("PACELINE_NODE_RANK")["value"], "1");
  EXPECT_EQ(told.at("PACELINE_NODE_NAME")["value"], "n7");
  EXPECT_EQ(told.at("PACELINE_POD_NAME")["value"], "digits-worker-1-0");
  EXPECT_LT(pod.dump().size(), 3000U);
}

/// A pod is stored with its settings, so those that nearly every pod shares are left out.
TEST(Render, SettingsWithTheirUsualValueAreLeftOut) {
  const auto job = api::parse_training_job(document());
  PodInputs inputs;
  inputs.startup_timeout = "10m";
  const json pod = render_pod(*job, api::replicas_of(job->spec).at(0), inputs);
  const json settings =
      json::parse(pod["spec"]["containers"][0]["env"][0]["value"].get<std::string>());
  for (const contract::PodDefault& known : contract::kPodDefaults)
    EXPECT_FALSE(settings.contains(std::string(known.name))) << settings.dump(1);
  inputs.restarts = 2;
  const json later = render_pod(*job, api::replicas_of(job->spec).at(0), inputs);
  EXPECT_EQ(environment_of(later).at("PACELINE_RESTARTS")["value"], "2");
}

TEST(Render, RankZeroIsToldSinceWhenTheJobWaits) {
  auto job = api::parse_training_job(document());
  job->metadata.created = WallTime(std::chrono::seconds(60));
  PodInputs inputs;
  inputs.placed = WallTime(std::chrono::seconds(90));
  const auto told = [&](std::size_t replica) {
    return environment_of(render_pod(*job, api::replicas_of(job->spec).at(replica), inputs));
  };
  EXPECT_EQ(told(0).at("PACELINE_JOB_CREATED")["value"], "1970-01-01T00:01:00Z");
  EXPECT_EQ(told(0).at("PACELINE_JOB_PLACED")["value"], "1970-01-01T00:01:30Z");
  EXPECT_EQ(told(1).count("PACELINE_JOB_CREATED"), 0U);
  inputs.goodput = "{}";
  EXPECT_EQ(told(0).count("PACELINE_JOB_PLACED"), 0U) << "its first pods have reported already";
}

TEST(Render, WhatTheTemplateRefersToIsAVariableToo) {
  json with = document();
  json& trainer = with["spec"]["roles"][0]["template"]["spec"]["containers"][0];
  trainer["command"] = {"train", "--out=/data/$(PACELINE_JOB_NAME)"};
  trainer["env"] = json::array({{{"name", "MINE"}, {"value", "$(PACELINE_NODE_RANK)"}}});
  const auto job = api::parse_training_job(with);
  const json pod = render_pod(*job, api::replicas_of(job->spec).at(1), {});
  const json& list = pod["spec"]["containers"][0]["env"];
  std::vector<std::string> names;
  for (const json& variable : list) names.push_back(variable["name"]);
  EXPECT_EQ(names, (std::vector<std::string>{"PACELINE_SETTINGS", "PACELINE_JOB_NAME",
                                             "PACELINE_NODE_RANK", "PACELINE_POD_IP",
                                             "PACELINE_NODE_NAME", "PACELINE_TOKEN", "MINE"}));
  EXPECT_EQ(list[1]["value"], "digits");
}

TEST(Render, NothingThatAPodIsToldNeedsANameServer) {
  for (int index = 0; index < 3; ++index) {
    const json pod = pod_of(index, "10.96.0.17");
    const auto job = api::parse_training_job(document());
    for (const auto& [name, variable] : environment_of(pod)) {
      if (!name.starts_with("PACELINE_") || !variable.contains("value")) continue;
      const std::string value = variable["value"];
      EXPECT_EQ(value.find(rendezvous_service_name(*job)), std::string::npos)
          << name << "=" << value;
      EXPECT_EQ(value.find(".svc"), std::string::npos) << name << "=" << value;
    }
    EXPECT_EQ(environment_of(pod).at("PACELINE_RENDEZVOUS_ADDRESS")["value"], "10.96.0.17:29400");
    EXPECT_EQ(environment_of(pod).at("PACELINE_POD_IP")["valueFrom"]["fieldRef"]["fieldPath"],
              "status.podIP")
        << "what the rank table, and with it MASTER_ADDR, is made of";
    EXPECT_EQ(pod["spec"]["dnsPolicy"], "None");
    EXPECT_EQ(pod["spec"]["dnsConfig"]["nameservers"][0], "192.0.2.1");
  }
}

/// What a pod of a job with parameter servers is told of the names of its workers.
std::string subdomain(const char* framework, const json& pod_spec = json::object(),
                      const char* helper = "ParameterServer") {
  json with = document();
  with["spec"]["framework"]["type"] = framework;
  json& roles = with["spec"]["roles"];
  roles[0]["template"]["spec"].erase("dnsPolicy");
  roles[0]["template"]["spec"].erase("dnsConfig");
  roles.push_back(roles[0]);
  roles[1]["name"] = "helper";
  roles[1]["kind"] = helper;
  roles[1]["template"]["spec"].update(pod_spec);
  const auto job = api::parse_training_job(with);
  const auto told = environment_of(render_pod(*job, api::replicas_of(job->spec).at(0), {}));
  const auto found = told.find("PACELINE_SUBDOMAIN");
  return found == told.end() ? "" : found->second["value"].get<std::string>();
}

TEST(Render, OnlyWorkersThatAreReplacedAloneHaveNames) {
  EXPECT_EQ(subdomain("Custom"), "digits");
  EXPECT_EQ(subdomain("PaddlePaddle"), "digits");
  EXPECT_EQ(subdomain("TensorFlow"), "") << "all start again";
  EXPECT_EQ(subdomain("Custom", json::object(), "Evaluator"), "");
  EXPECT_EQ(environment_of(pod_of(0, "10.0.0.1")).count("PACELINE_SUBDOMAIN"), 0U);
}

TEST(Render, WorkersHaveNoNamesWherePodsDoNotAskTheDnsOfTheCluster) {
  EXPECT_EQ(subdomain("Custom", {{"hostNetwork", true}}), "digits") << "by the policy it gets";
  EXPECT_EQ(subdomain("Custom", {{"hostNetwork", true}, {"dnsPolicy", "ClusterFirst"}}), "");
  EXPECT_EQ(subdomain("Custom", {{"hostNetwork", true}, {"dnsPolicy", "ClusterFirstWithHostNet"}}),
            "digits");
  EXPECT_EQ(subdomain("Custom", {{"dnsPolicy", "ClusterFirst"}}), "digits");
  EXPECT_EQ(subdomain("Custom", {{"dnsPolicy", "Default"}}), "");
  EXPECT_EQ(subdomain("Custom", {{"dnsPolicy", "None"}}), "");
}

/// A pod of a job whose workers are in the network of their nodes.
json host_pod(int index, const json& pod_spec = json::object()) {
  json with = document();
  json& spec = with["spec"]["roles"][0]["template"]["spec"];
  spec.erase("dnsPolicy");
  spec.erase("dnsConfig");
  spec["hostNetwork"] = true;
  spec.update(pod_spec);
  const auto job = api::parse_training_job(with);
  PodInputs inputs;
  inputs.rendezvous_ip = "10.96.0.17";
  inputs.port_base = 16300;
  return render_pod(*job, api::replicas_of(job->spec).at(static_cast<std::size_t>(index)), inputs);
}

TEST(Render, APodInTheNetworkOfItsNodeHasPortsOfItsOwnThere) {
  const json pod = host_pod(1);
  EXPECT_EQ(pod["spec"]["hostNetwork"], true);
  EXPECT_EQ(pod["spec"]["containers"][0]["ports"], json::parse(R"([
      {"name": "paceline-meet", "containerPort": 16300, "hostPort": 16300},
      {"name": "paceline-http", "containerPort": 16301, "hostPort": 16301}])"));
  const auto told = environment_of(pod);
  EXPECT_EQ(told.at("PACELINE_PORT_BASE")["value"], "16300");
  EXPECT_EQ(told.at("PACELINE_RENDEZVOUS_LISTEN")["value"], "[::]:16300");
  EXPECT_EQ(told.at("PACELINE_HTTP_LISTEN")["value"], "[::]:16301");
  EXPECT_EQ(pod["spec"]["dnsPolicy"], "ClusterFirstWithHostNet");
  EXPECT_EQ(host_pod(1, {{"dnsPolicy", "Default"}})["spec"]["dnsPolicy"], "Default");
}

TEST(Render, OneServiceLeadsToRankZeroInEitherNetwork) {
  const json service = render_rendezvous_service(*api::parse_training_job(document()));
  std::map<std::string, json> targets;  // by the Service's port
  for (const json& port : service["spec"]["ports"])
    targets["10.96.0.17:" + std::to_string(port["port"].get<int>())] = port["targetPort"];
  const auto target_of = [&](const json& pod) {
    return targets.at(environment_of(pod).at("PACELINE_RENDEZVOUS_ADDRESS")["value"]);
  };
  EXPECT_EQ(target_of(pod_of(1, "10.96.0.17")), 29400);
  EXPECT_EQ(target_of(host_pod(1)), host_pod(0)["spec"]["containers"][0]["ports"][0]["name"]);
}

TEST(Render, OnlyRanksOfTheRolesThatAskForItAreInTheNetworkOfTheirNode) {
  json with = document();
  json& roles = with["spec"]["roles"];
  roles.push_back(roles[0]);
  roles[1]["name"] = "fast";
  roles[1]["template"]["spec"]["hostNetwork"] = true;
  const auto job = api::parse_training_job(with);
  PodInputs inputs;
  inputs.rendezvous_ip = "10.96.0.17";
  const auto replicas = api::replicas_of(job->spec);
  const json plain = render_pod(*job, replicas.front(), inputs);
  const json fast = render_pod(*job, replicas.back(), inputs);
  EXPECT_FALSE(plain["spec"]["containers"][0].contains("ports"));
  EXPECT_EQ(environment_of(plain).count("PACELINE_PORT_BASE"), 0U);
  EXPECT_EQ(environment_of(fast).count("PACELINE_PORT_BASE"), 1U);
  for (const json& pod : {plain, fast})
    EXPECT_EQ(environment_of(pod).at("PACELINE_RENDEZVOUS_ADDRESS")["value"], "10.96.0.17:29400");
}

TEST(Render, AnIPv6ServiceAddressIsBracketed) {
  EXPECT_EQ(environment_of(pod_of(0, "fd00::1")).at("PACELINE_RENDEZVOUS_ADDRESS")["value"],
            "[fd00::1]:29400");
}

TEST(Render, ALauncherListensOnAddressesOfBothFamilies) {
  const auto variables = environment_of(pod_of(0, "fd00::1"));
  EXPECT_EQ(variables.at("PACELINE_RENDEZVOUS_LISTEN")["value"], "[::]:29400");
  EXPECT_EQ(variables.at("PACELINE_HTTP_LISTEN")["value"], "[::]:29401");
}

TEST(Render, AFieldOfTheTemplateThatIsNullIsAbsent) {
  json spec = document();
  json& pod = spec["spec"]["roles"][0]["template"]["spec"];
  pod["terminationGracePeriodSeconds"] = nullptr;
  pod["enableServiceLinks"] = nullptr;
  const auto job = api::parse_training_job(spec);
  ASSERT_TRUE(job) << api::to_error(job.error()).message;
  const json made = render_pod(*job, api::replicas_of(job->spec).at(0), {});
  EXPECT_EQ(made["spec"]["terminationGracePeriodSeconds"],
            pod_of(0, "10.96.0.17")["spec"]["terminationGracePeriodSeconds"]);
  EXPECT_EQ(made["spec"]["enableServiceLinks"], false);
}

TEST(Render, RendezvousIsAServiceOfRankZeroThatIsThereBeforeThePodIsReady) {
  const json service = render_rendezvous_service(*api::parse_training_job(document()));
  EXPECT_NE(service["spec"].value("clusterIP", ""), "None") << "an address, not a name";
  EXPECT_EQ(service["spec"]["publishNotReadyAddresses"], true);
  const json pod = pod_of(0, "10.0.0.1");
  const json& labels = pod["metadata"]["labels"];
  for (const auto& [key, value] : service["spec"]["selector"].items())
    EXPECT_EQ(labels[key], value) << key;
  EXPECT_NE(pod_of(1, "10.0.0.1")["metadata"]["labels"]["paceline.dev/node-rank"],
            service["spec"]["selector"]["paceline.dev/node-rank"]);
}

TEST(Render, EveryAlternativeOfTheAffinityIsPinned) {
  const json pod = pod_of(2, "10.0.0.1");
  const json& terms = pod["spec"]["affinity"]["nodeAffinity"]
                         ["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
  ASSERT_EQ(terms.size(), 2U);
  for (const json& term : terms) {
    EXPECT_EQ(term["matchFields"],
              json::parse(R"([{"key":"metadata.name","operator":"In","values":["n7"]}])"));
    EXPECT_EQ(term["matchExpressions"].size(), 1U);
  }
  EXPECT_EQ(pod["spec"]["schedulingGates"], json::parse(R"([{"name":"paceline.dev/gang"}])"));
  EXPECT_FALSE(pod_of(2, "10.0.0.1", false)["spec"].contains("schedulingGates"));
}

TEST(Render, TheUsersVariablesComeAfterOurs) {
  const json pod = pod_of(0, "10.0.0.1");
  const json& list = pod["spec"]["containers"][0]["env"];
  EXPECT_EQ(list.back()["name"], "MINE");
  EXPECT_EQ(pod["spec"]["containers"][0]["command"],
            json({"/opt/paceline/bin/paceline-launcher", "run", "--", "train"}));
}

TEST(Render, APodWithASlotHasNothingToCopy) {
  const auto job = api::parse_training_job(document());
  PodInputs inputs;
  const api::Replica replica = api::replicas_of(job->spec).at(0);
  const json copies = render_pod(*job, replica, inputs);
  inputs.slot = true;
  json slotted = render_pod(*job, replica, inputs);
  json& trainer = slotted["spec"]["containers"][0];
  EXPECT_EQ(trainer["resources"]["limits"], (json{{"paceline.dev/runtime", "1"}}));
  EXPECT_EQ(slotted.dump().find("paceline-runtime"), std::string::npos)
      << "no init container, no volume, no mount";
  // Everything else is unchanged: the same command, variables and directory.
  EXPECT_EQ(trainer["command"], copies["spec"]["containers"][0]["command"]);
  EXPECT_EQ(trainer["env"], copies["spec"]["containers"][0]["env"]);
  EXPECT_EQ(environment_of(slotted).at("PACELINE_RUNTIME_DIR")["value"], "/opt/paceline");
  EXPECT_EQ(slotted["spec"]["volumes"].size(), copies["spec"]["volumes"].size() - 1);
  EXPECT_FALSE(copies["spec"]["containers"][0].contains("resources"));
  ASSERT_EQ(copies["spec"]["initContainers"].size(), 1U);
  EXPECT_EQ(copies["spec"]["initContainers"][0]["name"], "paceline-runtime");
}

TEST(Render, TheRuntimeIsCopiedByTheImagesUserUnlessThePodsIsRoot) {
  const auto user = [](const json& context) {
    json with = document();
    with["spec"]["roles"][0]["template"]["spec"]["securityContext"] = context;
    const auto job = api::parse_training_job(with);
    const json pod = render_pod(*job, api::replicas_of(job->spec).at(0), {});
    const json& security = pod["spec"]["initContainers"][0]["securityContext"];
    EXPECT_EQ(security["runAsNonRoot"], true);
    return security.value("runAsUser", json());
  };
  EXPECT_EQ(user({{"fsGroup", 5}}), json()) << "a namespace may allow a range that lacks it";
  EXPECT_EQ(user({{"runAsUser", 1000710000}}), json());
  EXPECT_EQ(user({{"runAsUser", 0}}), json(65532));
}

TEST(Render, ASlotIsAskedForBesideWhatTheTemplateAsksFor) {
  for (const json& resources :
       {json{{"limits", {{"nvidia.com/gpu", 1}}}, {"requests", {{"cpu", "2"}}}}, json("text"),
        json{{"limits", 7}}, json(nullptr)}) {
    json with = document();
    with["spec"]["roles"][0]["template"]["spec"]["containers"][0]["resources"] = resources;
    const auto job = api::parse_training_job(with);
    if (!job) continue;  // parsing refuses it before
    PodInputs inputs;
    inputs.slot = true;
    const json pod = render_pod(*job, api::replicas_of(job->spec).at(0), inputs);
    const json& limits = pod["spec"]["containers"][0]["resources"]["limits"];
    EXPECT_EQ(limits["paceline.dev/runtime"], "1") << resources;
    EXPECT_EQ(limits.contains("nvidia.com/gpu"), resources.contains("requests")) << resources;
  }
}

}  // namespace
}  // namespace paceline::render
