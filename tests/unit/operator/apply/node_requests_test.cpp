// SPDX-License-Identifier: Apache-2.0
// A job that waits asks for nodes by a ProvisioningRequest or by CapacityBuffers, where they are
// served and somebody answers.
#include <gtest/gtest.h>

#include "common/base/timestamp.hpp"
#include "tests/unit/operator/controller_bench.hpp"

namespace paceline::apply {
namespace {

using nlohmann::json;
using std::chrono::minutes;
using std::chrono::seconds;

constexpr kube::Resource kRequests{"autoscaling.x-k8s.io", "v1", "provisioningrequests",
                                   "ProvisioningRequest"};
constexpr kube::Resource kBuffers{"autoscaling.x-k8s.io", "v1beta1", "capacitybuffers",
                                  "CapacityBuffer"};

/// Discovery, as a cluster with these resources of autoscaling.x-k8s.io answers. `more` answers
/// other requests.
void serve(ControllerBench& bench, const std::string& requests, const std::string& buffers,
           const std::function<std::optional<kube::Fault>(const http::Request&)>& more = {}) {
  bench.cluster().set_faults([=](const http::Request& request) -> std::optional<kube::Fault> {
    const auto resources = [](const std::string& name) {
      return name.empty() ? json::array() : json::array({{{"name", name}}});
    };
    const std::string group = "/apis/autoscaling.x-k8s.io";
    json body;
    if (request.target == group)
      body["versions"] = {{{"version", "v1"}}, {{"version", "v1beta1"}}};
    else if (request.target == group + "/v1")
      body["resources"] = resources(requests);
    else if (request.target == group + "/v1beta1")
      body["resources"] = resources(buffers);
    else
      return more ? more(request) : std::nullopt;
    return kube::Fault{.status = 200, .body = body.dump()};
  });
}

json asks_by(const char* provision) { return {{"scheduling", {{"provision", provision}}}}; }

std::vector<json> all(ControllerBench& bench, const kube::Resource& resource) {
  std::vector<json> list;
  for (const std::string& text : bench.cluster().objects(resource))
    list.push_back(json::parse(text));
  return list;
}

/// `head` is the job's name, or JOB-ROLE.
std::string named(const ControllerBench& bench, const std::string& job, const std::string& head) {
  const std::string uid = bench.job(job)["metadata"]["uid"];
  return head + "-" + uid.substr(uid.size() - 8) + "-nodes";
}

void answer(ControllerBench& bench, const kube::Resource& resource, const std::string& name,
            const json& condition) {
  bench.cluster().poke(resource, "default", name,
                       json{{"status", {{"conditions", json::array({condition})}}}}.dump());
  bench.advance(seconds(16));
}

std::string told(const ControllerBench& bench) {
  return bench.job("j")["status"].value("message", "");
}

TEST(NodeRequests, ARunningElasticJobAsksForTheReplicasThatItLacks) {
  for (const char* way : {"ProvisioningRequest", "CapacityBuffer"}) {
    ControllerBench bench;
    serve(bench, "provisioningrequests", "capacitybuffers");
    bench.add_node("n0", 4);
    json spec = asks_by(way);
    const json container = {{"name", "trainer"},
                            {"image", "i"},
                            {"command", {"train"}},
                            {"resources", {{"requests", {{"cpu", 2}}}}}};
    const json pod = {{"spec", {{"containers", json::array({container})}}}};
    spec["roles"] = json::array(
        {{{"name", "s"}, {"kind", "ParameterServer"}, {"replicas", 1}, {"template", pod}},
         {{"name", "w"}, {"template", pod}}});
    spec["elastic"] = {{"role", "w"}, {"replicas", 3}, {"minReplicas", 1}, {"maxReplicas", 3}};
    bench.add_job("j", spec);
    bench.settle();
    bench.advance(minutes(6));
    const bool request = way == std::string("ProvisioningRequest");
    const kube::Resource& resource = request ? kRequests : kBuffers;
    const std::vector<json> asked = all(bench, resource);
    ASSERT_EQ(asked.size(), 1U) << way << bench.job("j")["status"].dump(1);
    if (request) {
      EXPECT_EQ(asked[0]["spec"]["podSets"].size(), 1U);
      EXPECT_EQ(asked[0]["spec"]["podSets"][0]["count"], 2);
    } else {
      EXPECT_EQ(asked[0]["metadata"]["name"], named(bench, "j", "j-w"));
      EXPECT_EQ(asked[0]["spec"]["replicas"], 2);
    }
    bench.advance(seconds(16));
    EXPECT_EQ(all(bench, resource).size(), 1U) << "reading it finds the one that exists";
    bench.add_node("n1", 4);
    bench.settle();
    EXPECT_EQ(bench.job("j")["status"]["ready"], "4/4") << bench.job("j")["status"].dump(1);
    EXPECT_TRUE(all(bench, resource).empty());
  }
}

TEST(NodeRequests, AProvisioningRequestIsForTheWholeGangAndGoesWhenItStarts) {
  ControllerBench bench;
  serve(bench, "provisioningrequests", "");
  bench.add_job("j", asks_by("ProvisioningRequest"));
  bench.settle();
  bench.advance(seconds(6));
  ASSERT_EQ(all(bench, kRequests).size(), 1U) << told(bench);
  const json request = all(bench, kRequests)[0];
  EXPECT_EQ(request["metadata"]["name"], named(bench, "j", "j"));
  EXPECT_EQ(request["metadata"]["ownerReferences"][0]["name"], "j");
  const json set = {{"count", 2}, {"podTemplateRef", {{"name", named(bench, "j", "j-w")}}}};
  EXPECT_EQ(request["spec"]["podSets"], json::array({set}));
  const json made = all(bench, kube::kPodTemplates).at(0);
  EXPECT_EQ(made["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"], "1");
  EXPECT_TRUE(bench.placeholders("j").empty());
  EXPECT_NE(told(bench).find("by a ProvisioningRequest, and has not answered yet"),
            std::string::npos)
      << told(bench);
  answer(bench, kRequests, named(bench, "j", "j"),
         {{"type", "Accepted"}, {"status", "True"}, {"message", "looking for nodes"}});
  EXPECT_NE(told(bench).find("Accepted: looking for nodes"), std::string::npos) << told(bench);

  bench.add_node("n0", 4);
  bench.settle();
  EXPECT_EQ(bench.job("j")["status"]["phase"], "Running");
  EXPECT_TRUE(all(bench, kRequests).empty());
  EXPECT_TRUE(all(bench, kube::kPodTemplates).empty());
}

json role(const char* name, int replicas, int cpu) {
  const json container = {{"name", "trainer"},
                          {"image", "i"},
                          {"command", {"train"}},
                          {"resources", {{"requests", {{"cpu", cpu}}}}}};
  return {{"name", name},
          {"replicas", replicas},
          {"template", {{"spec", {{"containers", json::array({container})}}}}}};
}

TEST(NodeRequests, FollowTheJob) {
  ControllerBench bench;
  serve(bench, "provisioningrequests", "");
  bench.add_job("j", asks_by("ProvisioningRequest"));
  bench.settle();
  bench.advance(seconds(6));
  ASSERT_EQ(all(bench, kRequests).size(), 1U) << told(bench);
  const json before = all(bench, kRequests)[0]["metadata"]["uid"];
  bench.restart_operator();
  bench.settle();
  bench.advance(seconds(16));
  ASSERT_EQ(all(bench, kRequests).size(), 1U);
  EXPECT_EQ(all(bench, kRequests)[0]["metadata"]["uid"], before) << "it is for the present job";

  bench.patch_job("j", {{"spec", {{"roles", json::array({role("w", 3, 2)})}}}});
  bench.settle();
  ASSERT_EQ(all(bench, kRequests).size(), 1U);
  EXPECT_EQ(all(bench, kRequests)[0]["spec"]["podSets"][0]["count"], 3);
  ASSERT_EQ(all(bench, kube::kPodTemplates).size(), 1U);
  const json pod = all(bench, kube::kPodTemplates)[0]["template"]["spec"];
  EXPECT_EQ(pod["containers"][0]["resources"]["requests"]["cpu"], "2");
}

TEST(NodeRequests, ATemplateOfAnEarlierSpecIsNotUsedAgain) {
  ControllerBench bench;
  int refused = 0;
  serve(bench, "provisioningrequests", "",
        [&](const http::Request& request) -> std::optional<kube::Fault> {
          const bool deletes =
              request.method == "DELETE" && request.target.contains("/podtemplates/");
          if (!deletes || refused++ > 0) return std::nullopt;
          return kube::Fault{.status = 500, .message = "a webhook does not answer"};
        });
  bench.add_job("j", asks_by("ProvisioningRequest"));
  bench.settle();
  bench.advance(seconds(6));
  ASSERT_EQ(all(bench, kube::kPodTemplates).size(), 1U) << told(bench);
  bench.patch_job("j", {{"spec", {{"roles", json::array({role("w", 3, 2)})}}}});
  bench.settle();
  EXPECT_GE(refused, 1);
  for (int i = 0; i < 4; ++i) bench.advance(seconds(30));
  ASSERT_EQ(all(bench, kRequests).size(), 1U) << told(bench);
  EXPECT_EQ(all(bench, kRequests)[0]["spec"]["podSets"][0]["count"], 3);
  const json pod = all(bench, kube::kPodTemplates).at(0)["template"]["spec"];
  EXPECT_EQ(pod["containers"][0]["resources"]["requests"]["cpu"], "2");
}

TEST(NodeRequests, FollowTheSizeOfAnElasticJob) {
  ControllerBench bench;
  serve(bench, "", "capacitybuffers");
  json spec = asks_by("CapacityBuffer");
  spec["roles"] = json::array({role("w", 2, 2)});
  spec["roles"][0].erase("replicas");
  spec["elastic"] = {{"role", "w"}, {"replicas", 2}, {"minReplicas", 2}, {"maxReplicas", 8}};
  bench.add_job("j", spec);
  bench.settle();
  bench.advance(seconds(6));
  ASSERT_EQ(all(bench, kBuffers).size(), 1U) << told(bench);
  EXPECT_EQ(all(bench, kBuffers)[0]["spec"]["replicas"], 2);
  bench.patch_job("j", {{"spec", {{"elastic", {{"replicas", 5}}}}}});
  bench.settle();
  ASSERT_EQ(all(bench, kBuffers).size(), 1U) << told(bench);
  EXPECT_EQ(all(bench, kBuffers)[0]["spec"]["replicas"], 5);
}

TEST(NodeRequests, APartOfThemGoesIfTheRestIsRefused) {
  ControllerBench bench;
  int buffers = 0;
  serve(bench, "", "capacitybuffers",
        [&](const http::Request& request) -> std::optional<kube::Fault> {
          const bool creates = request.method == "POST" &&
                               request.target.find("/capacitybuffers") != std::string::npos;
          if (!creates || buffers++ % 2 == 0) return std::nullopt;
          return kube::Fault{.status = 403, .message = "exceeded quota: one buffer"};
        });
  json spec = asks_by("CapacityBuffer");
  spec["roles"] = json::array({role("a", 1, 1), role("b", 1, 1)});
  bench.add_job("j", spec);
  bench.settle();
  bench.advance(seconds(6));
  EXPECT_EQ(buffers, 2);
  EXPECT_TRUE(all(bench, kBuffers).empty()) << "it would keep nodes for half of a gang";
  EXPECT_TRUE(all(bench, kube::kPodTemplates).empty());
  EXPECT_NE(told(bench).find("asking for nodes was refused"), std::string::npos) << told(bench);
}

TEST(NodeRequests, WhatTakesThemAway) {
  const struct {
    const char* name;
    std::function<void(ControllerBench&)> event;
  } cases[] = {
      {"the job is deleted", [](ControllerBench& bench) { bench.remove_job("j"); }},
      {"it is suspended",
       [](ControllerBench& bench) { bench.patch_job("j", {{"spec", {{"suspend", true}}}}); }},
      {"it is suspended while no operator runs",
       [](ControllerBench& bench) {
         bench.patch_job("j", {{"spec", {{"suspend", true}}}});
         bench.restart_operator();
       }},
  };
  for (const auto& [name, event] : cases) {
    ControllerBench bench;
    serve(bench, "", "capacitybuffers");
    bench.add_job("j", asks_by("CapacityBuffer"));
    bench.settle();
    bench.advance(seconds(6));
    ASSERT_EQ(all(bench, kBuffers).size(), 1U) << name << ": " << told(bench);
    EXPECT_EQ(all(bench, kBuffers)[0]["spec"]["replicas"], 2) << name;
    event(bench);
    bench.settle();
    EXPECT_TRUE(all(bench, kBuffers).empty()) << name;
    EXPECT_TRUE(all(bench, kube::kPodTemplates).empty()) << name;
  }
}

TEST(NodeRequests, JobsWhoseNamesReadAlikeShareNothing) {
  ControllerBench bench;
  serve(bench, "", "capacitybuffers");
  const auto add = [&](const char* job, const char* role) {
    json spec = asks_by("CapacityBuffer");
    const json container = {{"name", "trainer"}, {"image", "i"}, {"command", {"train"}}};
    spec["roles"] =
        json::array({{{"name", role},
                      {"replicas", 2},
                      {"template", {{"spec", {{"containers", json::array({container})}}}}}}});
    bench.add_job(job, spec);
  };
  add("a", "b-c");
  add("a-b", "c");
  bench.settle();
  bench.advance(seconds(6));
  ASSERT_EQ(all(bench, kBuffers).size(), 2U);
  ASSERT_EQ(all(bench, kube::kPodTemplates).size(), 2U);
  bench.patch_job("a", {{"spec", {{"suspend", true}}}});
  bench.settle();
  ASSERT_EQ(all(bench, kBuffers).size(), 1U);
  EXPECT_EQ(all(bench, kBuffers)[0]["metadata"]["ownerReferences"][0]["name"], "a-b");
  EXPECT_EQ(all(bench, kube::kPodTemplates).size(), 1U);
}

TEST(NodeRequests, WhatBelongsToOthersIsNeitherTakenNorDeleted) {
  ControllerBench bench;
  serve(bench, "provisioningrequests", "");
  json spec = asks_by("ProvisioningRequest");
  spec["suspend"] = true;
  bench.add_job("j", spec);
  bench.settle();
  const std::string name = named(bench, "j", "j");
  bench.create(kRequests, "default",
               {{"metadata", {{"name", name}, {"labels", {{"paceline.dev/placeholder-for", "j"}}}}},
                {"spec", {{"provisioningClassName", "mine"}}}});
  bench.patch_job("j", {{"spec", {{"suspend", false}}}});
  bench.settle();
  bench.advance(seconds(6));
  EXPECT_NE(told(bench).find("asking for nodes was refused: ProvisioningRequest " + name +
                             " exists and does not belong to this job; delete it"),
            std::string::npos)
      << told(bench);
  bench.patch_job("j", {{"spec", {{"suspend", true}}}});
  bench.settle();
  EXPECT_EQ(all(bench, kRequests).size(), 1U) << "it is somebody's own";

  bench.cluster().erase(kRequests, "default", name);
  bench.patch_job("j", {{"spec", {{"suspend", false}}}});
  bench.settle();
  bench.advance(minutes(2));
  ASSERT_EQ(all(bench, kRequests).size(), 1U);
  EXPECT_EQ(all(bench, kRequests)[0]["metadata"]["ownerReferences"][0]["name"], "j");
}

TEST(NodeRequests, ARequestUnderTheNameOfAnEarlierOperatorGoesWhenTheGangStarts) {
  ControllerBench bench;
  serve(bench, "provisioningrequests", "");
  bench.add_job("j", asks_by("ProvisioningRequest"));
  bench.settle();
  bench.advance(seconds(6));
  ASSERT_EQ(all(bench, kRequests).size(), 1U);
  json earlier = all(bench, kRequests)[0];
  bench.cluster().erase(kRequests, "default", named(bench, "j", "j"));
  earlier["metadata"] = {{"name", "j-nodes"},
                         {"labels", earlier["metadata"]["labels"]},
                         {"ownerReferences", earlier["metadata"]["ownerReferences"]}};
  bench.create(kRequests, "default", earlier);
  bench.restart_operator();
  bench.settle();
  bench.advance(seconds(16));
  ASSERT_EQ(all(bench, kRequests).size(), 1U) << "the job asks already";
  EXPECT_EQ(all(bench, kRequests)[0]["metadata"]["name"], "j-nodes");
  bench.add_node("n0", 4);
  bench.settle();
  EXPECT_EQ(bench.job("j")["status"]["phase"], "Running");
  EXPECT_TRUE(all(bench, kRequests).empty());
  EXPECT_TRUE(all(bench, kube::kPodTemplates).empty());
}

TEST(NodeRequests, AutoGoesOnWhenNobodyAnswers) {
  ControllerBench bench;
  serve(bench, "provisioningrequests", "");
  bench.create(kube::kConfigMaps, "kube-system",
               {{"metadata", {{"name", "cluster-autoscaler-status"}}}});
  bench.add_job("j", asks_by("Auto"));
  bench.settle();
  bench.advance(seconds(6));
  EXPECT_EQ(all(bench, kRequests).size(), 1U) << told(bench);
  for (int i = 0; i < 6; ++i) bench.advance(seconds(16));
  EXPECT_TRUE(all(bench, kRequests).empty());
  ASSERT_EQ(bench.placeholders("j").size(), 2U) << told(bench);
  const json uid = bench.placeholders("j")[0]["metadata"]["uid"];

  bench.advance(minutes(5));
  EXPECT_TRUE(all(bench, kRequests).empty());
  ASSERT_EQ(bench.placeholders("j").size(), 2U) << "nodes may be on their way";
  EXPECT_EQ(bench.placeholders("j")[0]["metadata"]["uid"], uid);
  bench.add_job("later", asks_by("Auto"));
  bench.settle();
  bench.advance(seconds(6));
  ASSERT_EQ(all(bench, kRequests).size(), 1U) << "the autoscaler may have been down";
  EXPECT_EQ(all(bench, kRequests)[0]["metadata"]["name"], named(bench, "later", "later"));
}

TEST(NodeRequests, AutoAsksAgainEverLessOftenUntilSomebodyAnswers) {
  ControllerBench bench;
  serve(bench, "provisioningrequests", "");
  bench.add_job("j", asks_by("Auto"));
  bench.settle();
  bench.advance(seconds(6));
  const auto ignored = [&] {
    EXPECT_EQ(all(bench, kRequests).size(), 1U) << told(bench);
    for (int i = 0; i < 6; ++i) bench.advance(seconds(16));
    EXPECT_TRUE(all(bench, kRequests).empty()) << told(bench);
  };
  ignored();
  bench.advance(minutes(5));
  ignored();
  bench.advance(minutes(5));
  EXPECT_TRUE(all(bench, kRequests).empty()) << "twice as long as before";
  bench.advance(minutes(5));
  ASSERT_EQ(all(bench, kRequests).size(), 1U) << told(bench);
  const json uid = all(bench, kRequests)[0]["metadata"]["uid"];
  answer(bench, kRequests, named(bench, "j", "j"),
         {{"type", "Accepted"}, {"status", "True"}, {"message", "looking for nodes"}});
  EXPECT_NE(told(bench).find("Accepted: looking for nodes"), std::string::npos) << told(bench);
  bench.advance(minutes(5));
  ASSERT_EQ(all(bench, kRequests).size(), 1U);
  EXPECT_EQ(all(bench, kRequests)[0]["metadata"]["uid"], uid);
}

/// How often the text has the words.
int count(const std::string& text, const std::string& words) {
  int found = 0;
  for (auto at = text.find(words); at != std::string::npos; at = text.find(words, at + 1)) ++found;
  return found;
}

TEST(NodeRequests, ThatNobodyAnswersIsLoggedOnce) {
  for (const api::Provision way : {api::Provision::kAuto, api::Provision::kProvisioningRequest}) {
    testing::internal::CaptureStdout();
    ControllerBench bench;
    bench.restart_operator(way);
    serve(bench, "provisioningrequests", "");
    bench.add_job("j", asks_by("Auto"));
    bench.settle();
    bench.advance(seconds(6));
    for (int i = 0; i < 120; ++i) bench.advance(seconds(16));
    const std::string logged = testing::internal::GetCapturedStdout();
    EXPECT_EQ(count(logged, "nobody answers"), 1) << logged;
  }
}

TEST(NodeRequests, AnAnswerThatIsNoListOfVersionsStopsNoJob) {
  for (const char* body :
       {"<html>", "[]", R"({"versions": {"v1": 1}})", R"({"versions": [7, {"version": 1}]})",
        R"({"versions": [{"version": "v1"}], "resources": [1, {"name": 2}]})"}) {
    ControllerBench bench;
    bench.cluster().set_faults([&](const http::Request& request) -> std::optional<kube::Fault> {
      if (!request.target.starts_with("/apis/autoscaling.x-k8s.io")) return std::nullopt;
      return kube::Fault{.status = 200, .body = body};
    });
    bench.add_job("j", asks_by("Auto"));
    bench.settle();
    bench.advance(seconds(6));
    EXPECT_EQ(bench.controller().counters().internal_errors, 0U) << body;
    EXPECT_EQ(bench.job("j")["status"]["phase"], "Queued") << body;
  }
}

TEST(NodeRequests, AnAnswerToOneJobLetsAllAsk) {
  ControllerBench bench;
  serve(bench, "provisioningrequests", "");
  bench.add_job("j", asks_by("Auto"));
  bench.settle();
  bench.advance(seconds(6));
  for (int i = 0; i < 6; ++i) bench.advance(seconds(16));
  ASSERT_TRUE(all(bench, kRequests).empty()) << told(bench);
  bench.add_job("sure", asks_by("ProvisioningRequest"));
  bench.settle();
  bench.advance(seconds(6));
  ASSERT_EQ(all(bench, kRequests).size(), 1U);
  answer(bench, kRequests, named(bench, "sure", "sure"),
         {{"type", "Accepted"}, {"status", "True"}, {"message", "looking for nodes"}});
  EXPECT_EQ(all(bench, kRequests).size(), 2U) << told(bench);
}

TEST(NodeRequests, ARequestThatFailedIsMadeAgainAfterAWhile) {
  ControllerBench bench;
  serve(bench, "provisioningrequests", "");
  bench.add_job("j", asks_by("ProvisioningRequest"));
  bench.settle();
  bench.advance(seconds(6));
  const json before = all(bench, kRequests).at(0)["metadata"]["uid"];
  answer(bench, kRequests, named(bench, "j", "j"),
         {{"type", "Failed"}, {"status", "True"}, {"message", "no capacity in any zone"}});
  EXPECT_NE(told(bench).find("Failed: no capacity in any zone"), std::string::npos) << told(bench);
  EXPECT_EQ(all(bench, kRequests).at(0)["metadata"]["uid"], before);
  bench.advance(minutes(6));
  bench.settle();
  ASSERT_EQ(all(bench, kRequests).size(), 1U);
  EXPECT_NE(all(bench, kRequests)[0]["metadata"]["uid"], before);
}

TEST(NodeRequests, OneThatFailedIsMadeAgainAlthoughTheClockWasSetBack) {
  ControllerBench bench;
  serve(bench, "provisioningrequests", "");
  bench.add_job("j", asks_by("ProvisioningRequest"));
  bench.settle();
  bench.advance(seconds(6));
  const json before = all(bench, kRequests).at(0)["metadata"]["uid"];
  answer(bench, kRequests, named(bench, "j", "j"),
         {{"type", "Failed"}, {"status", "True"}, {"message", "no capacity in any zone"}});
  const std::string ahead = format_time(bench.now() + std::chrono::hours(1));
  bench.cluster().poke(kRequests, "default", named(bench, "j", "j"),
                       json{{"metadata", {{"creationTimestamp", ahead}}}}.dump());
  bench.restart_operator();
  bench.settle();
  bench.advance(seconds(20));
  ASSERT_EQ(all(bench, kRequests).size(), 1U) << told(bench);
  EXPECT_NE(all(bench, kRequests)[0]["metadata"]["uid"], before) << told(bench);
}

TEST(NodeRequests, WhatIsNotServedIsSaid) {
  ControllerBench bench;
  bench.add_job("j", asks_by("ProvisioningRequest"));
  bench.settle();
  bench.advance(seconds(6));
  EXPECT_NE(told(bench).find("spec.scheduling.provision is ProvisioningRequest, which this cluster "
                             "does not serve"),
            std::string::npos)
      << told(bench);
}

}  // namespace
}  // namespace paceline::apply
