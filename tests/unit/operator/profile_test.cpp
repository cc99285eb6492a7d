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
