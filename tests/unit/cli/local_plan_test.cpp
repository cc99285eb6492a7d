// SPDX-License-Identifier: Apache-2.0
#include "cli/run/local_plan.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "cli/run/job_file.hpp"
#include "operator/api/parse.hpp"

namespace paceline::cli {
namespace {

constexpr const char* kJob = R"yaml(
apiVersion: paceline.dev/v1alpha1
kind: TrainingJob
metadata: {name: j}
spec:
  framework: {type: PyTorch, processesPerReplica: 2}
  roles:
  - name: worker
    replicas: 2
    template:
      spec:
        nodeSelector: {disk: fast}
        containers:
        - name: trainer
          image: some/image
          command: [python3, /workspace/train.py]
          args: ["--out=/workspace-old/x", "--data", "$(DATA)/set", "$(NOT_SET)", "$$(DATA)"]
          env:
          - {name: DATA, value: /workspace/data}
          - {name: OTHER, value: "/a:/workspace:/workspace/b"}
)yaml";

api::TrainingJob job_of(std::string text) {
  const auto file = parse_job("f", text);
  EXPECT_TRUE(file.has_value());
  auto job = api::parse_training_job(file->document);
  EXPECT_TRUE(job.has_value()) << (job ? "" : api::to_string(job.error().front()));
  return *job;
}

std::string with(const std::string& added) { return std::string(kJob) + added; }

Machine machine() {
  Machine value;
  value.environment = {{"HOME", "/home/me"}, {"PATH", "/usr/bin"}};
  value.mappings = {{"/workspace", "/src"}};
  value.launcher = "/bin/paceline-launcher";
  value.runtime_dir = "/rt";
  value.state_dir = "/tmp/s";
  value.token = "t";
  value.cpus = 8;
  value.rendezvous_port = 4000;
  value.http_ports = {4001, 4002};
  return value;
}

TEST(PathMap, ReplacesWholePathsOnly) {
  const std::vector<PathMapping> maps{{"/w", "/src"}, {"/w/deep", "/other"}};
  EXPECT_EQ(apply_mappings(maps, "/w"), "/src");
  EXPECT_EQ(apply_mappings(maps, "/w/a.py"), "/src/a.py");
  EXPECT_EQ(apply_mappings(maps, "--x=/w/a,/w:/wide:/a/w"), "--x=/src/a,/src:/wide:/a/w");
  EXPECT_EQ(apply_mappings(maps, "/w/deep/a /w/deeper"), "/other/a /src/deeper");
  EXPECT_EQ(apply_mappings(maps, "cd /w && ls '/w'"), "cd /src && ls '/src'");
}

TEST(PathMap, WrongOptionsAreSaid) {
  for (const char* wrong : {"x", "=y", "rel=/y", "/=/y", "/x="})
    EXPECT_FALSE(parse_mapping(wrong, "/cwd").has_value()) << wrong;
  EXPECT_EQ(parse_mapping("/x/=y/", "/cwd")->local, "/cwd/y");
  EXPECT_EQ(parse_mapping("/x/=y/", "/cwd")->container, "/x");
}

TEST(LocalPlan, EveryReplicaIsALauncherWithItsEnvironment) {
  const LocalPlan plan = plan_locally(job_of(kJob), machine());
  ASSERT_EQ(plan.replicas.size(), 2U);
  const LocalReplica& second = plan.replicas[1];
  EXPECT_EQ(second.argv,
            (std::vector<std::string>{"/bin/paceline-launcher", "run", "--", "python3",
                                      "/src/train.py", "--out=/workspace-old/x", "--data",
                                      "/src/data/set", "$(NOT_SET)", "$(DATA)"}));
  EXPECT_EQ(second.environment.at("PACELINE_NODE_RANK"), "1");
  EXPECT_EQ(second.environment.at("PACELINE_RENDEZVOUS_ADDRESS"), "127.0.0.1:4000");
  EXPECT_EQ(second.environment.at("PACELINE_HTTP_LISTEN"), "127.0.0.1:4002");
  EXPECT_EQ(second.environment.at("PACELINE_MASTER_PORT"), "0");
  EXPECT_EQ(second.environment.at("PACELINE_EXPLAIN_FILE"), second.explain_file);
  EXPECT_EQ(second.environment.at("PACELINE_LEARNED_DIR"), "/home/me/.cache/paceline/learned");
  EXPECT_EQ(second.environment.at("PACELINE_CPU_LIMIT"), "4") << "two replicas share eight CPUs";
  EXPECT_EQ(second.environment.at("HOME"), "/home/me");
  EXPECT_EQ(second.environment.at("OTHER"), "/a:/src:/src/b");
  EXPECT_EQ(second.state_dir, "/tmp/s/1");
  EXPECT_EQ(plan.ignored, (std::vector<std::string>{"image", "nodeSelector"}));
}

TEST(LocalPlan, WhatWasLearnedLiesWhereTheUserHasItsCacheOrWants) {
  const auto folder = [](std::map<std::string, std::string> environment) {
    Machine one = machine();
    one.environment = std::move(environment);
    const LocalPlan plan = plan_locally(job_of(kJob), one);
    const auto& found = plan.replicas[0].environment;
    const auto entry = found.find("PACELINE_LEARNED_DIR");
    return entry == found.end() ? std::string("none") : entry->second;
  };
  EXPECT_EQ(folder({{"HOME", "/h"}, {"XDG_CACHE_HOME", "/c"}}), "/c/paceline/learned");
  EXPECT_EQ(folder({{"HOME", "/h"}, {"XDG_CACHE_HOME", "c"}}), "/h/.cache/paceline/learned");
  EXPECT_EQ(folder({{"HOME", "/h"}, {"PACELINE_LEARNED_DIR", "/mine"}}), "/mine");
  EXPECT_EQ(folder({}), "none") << "the launcher then takes its state folder";
}

TEST(LocalPlan, ReferencesExpandAsTheKubeletExpandsThem) {
  EXPECT_EQ(expand_references("$(A)-$(B)-$$(A)-$A-$(A", {{"A", "1"}}), "1-$(B)-$(A)-$A-$(A");
}

TEST(LocalPlan, WhatCannotBeHonouredIsRefusedByField) {
  const auto paths = [](const std::string& text, const std::vector<PathMapping>& mappings = {}) {
    std::vector<std::string> found;
    for (const auto& error : refuse_locally(job_of(text), mappings))
      found.push_back(error.path.substr(
          error.path.find("spec.", 5) == std::string::npos ? 0 : error.path.find("spec.", 5)));
    return found;
  };
  EXPECT_TRUE(paths(kJob).empty());
  EXPECT_EQ(
      paths(with("          - {name: X, valueFrom: {fieldRef: {fieldPath: status.podIP}}}\n")),
      std::vector<std::string>{"spec.containers[0].env[2].valueFrom"});
  EXPECT_EQ(paths(with("          envFrom: [{configMapRef: {name: c}}]\n")),
            std::vector<std::string>{"spec.containers[0].envFrom"});
  EXPECT_EQ(paths(with("        - {name: sidecar, image: x}\n")),
            std::vector<std::string>{"spec.containers[1]"});
  EXPECT_EQ(paths(with("        initContainers: [{name: i, image: x}]\n")),
            std::vector<std::string>{"spec.initContainers"});
  const std::string mount = with(
      "          volumeMounts: [{name: v, mountPath: /data}]\n        volumes: [{name: v, "
      "emptyDir: {}}]\n");
  EXPECT_EQ(paths(mount), std::vector<std::string>{"spec.containers[0].volumeMounts[0].mountPath"});
  EXPECT_TRUE(paths(mount, {{"/data", "/here"}}).empty());
  EXPECT_EQ(paths(with("  suspend: true\n")), std::vector<std::string>{"spec.suspend"});
  EXPECT_EQ(paths(with("  acceleration: {runtimeProfileName: quick}\n")),
            std::vector<std::string>{"spec.acceleration.runtimeProfileName"});
  std::string contradicting = kJob;
  contradicting.replace(contradicting.find("[python3"), 8, "[torchrun, --standalone");
  EXPECT_EQ(paths(contradicting), std::vector<std::string>{"spec.containers[0].command"});
}

}  // namespace
}  // namespace paceline::cli
