// SPDX-License-Identifier: Apache-2.0
// When RuntimeProfiles are read, and what a placed gang keeps of them.
#include <gtest/gtest.h>

#include <set>

#include "tests/unit/operator/controller_bench.hpp"

namespace paceline::apply {
namespace {

using nlohmann::json;

void create_profile(ControllerBench& bench, const std::string& name, const json& acceleration) {
  bench.create(kube::kRuntimeProfiles, "",
               {{"metadata", {{"name", name}}}, {"spec", {{"acceleration", acceleration}}}});
}

/// PACELINE_OPTIMIZER of each pod of the job; "" if it is not set.
std::multiset<std::string> optimizers(const ControllerBench& bench, const std::string& job) {
  std::multiset<std::string> found;
  for (const json& pod : bench.pods(job)) found.insert(setting_of(pod, "OPTIMIZER"));
  return found;
}

TEST(RuntimeProfiles, JobThatNamesOneWaitsForIt) {
  ControllerBench bench;
  bench.add_node("n0", 2);
  bench.add_job("j", {{"acceleration", {{"runtimeProfileName", "quick"}}}});
  bench.settle();
  EXPECT_EQ(bench.job("j")["status"]["reason"], "RuntimeProfileNotFound");
  EXPECT_TRUE(bench.pods("j").empty());
  create_profile(bench, "quick", {{"loader", "On"}});
  bench.settle();
  EXPECT_EQ(bench.job("j")["status"]["reason"], "RuntimeProfileInvalid");
  bench.cluster().poke(
      kube::kRuntimeProfiles, "", "quick",
      R"({"spec":{"acceleration":{"loader":"Disabled","numerics":"Lossy","compression":{"powerSGD":{"rank":2}},"precision":"O1","cudaGraph":"Disabled"}}})");
  bench.settle();
  EXPECT_EQ(bench.job("j")["status"]["phase"], "Running") << bench.job("j")["status"].dump(1);
  EXPECT_EQ(optimizers(bench, "j"), (std::multiset<std::string>{"Auto", "Auto"}));
  EXPECT_EQ(bench.job("j")["status"]["acceleration"],
            (json{{"profile", "quick"},
                  {"numerics", "Lossy"},
                  {"loader", "Disabled"},
                  {"loaderWorkers", "Disabled"},
                  {"optimizer", "Auto"},
                  {"communication", "Auto"},
                  {"compile", "Auto"},
                  {"operators", "Auto"},
                  {"compression", {{"powerSGD", {{"rank", 2}}}}},
                  {"precision", "O1"},
                  {"cudaGraph", "Disabled"}}));
}

TEST(RuntimeProfiles, TheStatusSaysWhetherJobsCanUseIt) {
  ControllerBench bench;
  create_profile(bench, "quick", {{"loader", "On"}});
  bench.settle();
  const auto profile = [&] {
    return json::parse(bench.cluster().objects(kube::kRuntimeProfiles).at(0));
  };
  const auto valid = [&] { return profile()["status"]["conditions"][0]; };
  EXPECT_EQ(valid()["type"], "Valid");
  EXPECT_EQ(valid()["status"], "False");
  EXPECT_EQ(valid()["reason"], "InvalidSpec");
  EXPECT_NE(valid()["message"].get<std::string>().find("spec.acceleration.loader: "),
            std::string::npos)
      << valid();
  EXPECT_EQ(profile()["status"]["observedGeneration"], 1);
  const std::string since = valid()["lastTransitionTime"];

  const std::uint64_t writes = bench.writes();
  bench.restart_operator();
  bench.settle();
  EXPECT_EQ(bench.writes(), writes) << "another operator finds it as it should be";

  const auto change = [&](const char* acceleration, int generation) {
    bench.advance(std::chrono::seconds(5));
    bench.cluster().poke(kube::kRuntimeProfiles, "", "quick",
                         json{{"metadata", {{"generation", generation}}},
                              {"spec", {{"acceleration", json::parse(acceleration)}}}}
                             .dump());
    bench.settle();
  };
  change(R"({"loader":"Off"})", 2);
  EXPECT_EQ(profile()["status"]["observedGeneration"], 2);
  EXPECT_EQ(valid()["lastTransitionTime"], since) << "it is as invalid as before";
  change(R"({"loader":"Auto"})", 3);
  EXPECT_EQ(valid()["status"], "True");
  EXPECT_EQ(valid()["observedGeneration"], 3);
  EXPECT_NE(valid()["lastTransitionTime"], since);
}

TEST(RuntimeProfiles, AProfileOfAnEarlierCrdHasNoStatus) {
  ControllerBench bench;
  int asked = 0;
  bench.cluster().set_faults([&](const http::Request& request) -> std::optional<kube::Fault> {
    if (!request.target.contains("/runtimeprofiles/quick/status")) return std::nullopt;
    ++asked;
    return kube::Fault{.status = 404};
  });
  create_profile(bench, "quick", {{"loader", "Auto"}});
  bench.settle();
  bench.advance(std::chrono::minutes(5));
  EXPECT_EQ(asked, 1) << "it is not tried again";
}

TEST(RuntimeProfiles, DefaultServesWhoNamesNoneAndAGangKeepsWhatItHas) {
  ControllerBench bench;
  bench.add_node("n0", 4);
  create_profile(bench, "default", {{"mode", "Manual"}, {"optimizer", "Auto"}});
  bench.add_job("j");
  bench.add_job("off", {{"acceleration", {{"mode", "Disabled"}}}});
  bench.settle();
  EXPECT_EQ(optimizers(bench, "j"), (std::multiset<std::string>{"Auto", "Auto"}));
  EXPECT_EQ(optimizers(bench, "off"), (std::multiset<std::string>{"", ""}));

  bench.cluster().poke(kube::kRuntimeProfiles, "", "default",
                       R"({"spec":{"acceleration":{"optimizer":"Disabled"}}})");
  bench.settle();
  bench.restart_operator();
  const std::string lost = bench.pods("j")[0]["metadata"]["name"];
  ASSERT_TRUE(bench.cluster().erase(kube::kPods, "default", lost));
  bench.settle();
  EXPECT_EQ(bench.pods("j").size(), 2U);
  EXPECT_EQ(optimizers(bench, "j"), (std::multiset<std::string>{"Auto", "Auto"}))
      << "the replacement, too";

  bench.patch_job("j", {{"spec", {{"suspend", true}}}});
  bench.settle();
  EXPECT_FALSE(bench.job("j")["status"].contains("acceleration"));
  bench.patch_job("j", {{"spec", {{"suspend", false}}}});
  bench.settle();
  EXPECT_EQ(optimizers(bench, "j"), (std::multiset<std::string>{"", ""}))
      << "another placement, another look";
}

TEST(RuntimeProfiles, ABrokenDefaultKeepsNobodyBack) {
  ControllerBench bench;
  bench.add_node("n0", 2);
  create_profile(bench, "default", {{"mode", "Fast"}});
  bench.add_job("j");
  bench.settle();
  EXPECT_EQ(bench.job("j")["status"]["phase"], "Running");
  EXPECT_EQ(optimizers(bench, "j"), (std::multiset<std::string>{"", ""}));
}

}  // namespace
}  // namespace paceline::apply
