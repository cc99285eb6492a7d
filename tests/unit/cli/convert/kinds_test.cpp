// SPDX-License-Identifier: Apache-2.0
// What jobs of other operators become where their meaning could change in silence.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "operator/api/validate.hpp"
#include "tests/unit/cli/convert/converted.hpp"

namespace paceline::cli {
namespace {

using nlohmann::ordered_json;
using testing::Contains;
using testing::HasSubstr;

std::string worker_job(const std::string& container, const std::string& pod = "") {
  return "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: a}\nspec:\n  "
         "pytorchReplicaSpecs:\n    Worker:\n      template:\n        spec:\n          " +
         pod + "\n          containers: [{name: pytorch, image: i, " + container + "}]\n";
}

std::string mpi_job(const std::string& launcher, const std::string& worker = "") {
  return "apiVersion: kubeflow.org/v2beta1\nkind: MPIJob\nmetadata: {name: m}\nspec:\n  "
         "slotsPerWorker: 8\n  mpiReplicaSpecs:\n    Launcher: {template: {spec: {containers: "
         "[{name: l, image: i, " +
         launcher +
         "}]}}}\n    Worker: {replicas: 2, template: {spec: {containers: [{name: w, image: i" +
         worker + "}]}}}\n";
}

std::string job_set(const std::string& container, const std::string& spec = "",
                    const std::string& metadata = "name: s") {
  return "apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\nmetadata: {" + metadata +
         "}\nspec:\n  " + spec +
         "\n  replicatedJobs:\n  - name: workers\n    template: {spec: {parallelism: 2, template: "
         "{spec: {containers: [{name: c, image: i, " +
         container + "}]}}}}\n";
}

TEST(ConvertKinds, CommandsThatTheLauncherRefusesHaveToBeChanged) {
  const Converted hosts =
      converted(mpi_job("command: [mpirun, -np, '16', --hostfile, /etc/mpi/hostfile, ./a]"));
  EXPECT_FALSE(hosts.complete);
  EXPECT_THAT(hosts.notes,
              Contains(HasSubstr("to do: TrainingJob spec.roles[0].template.spec.containers[0]."
                                 "command: -hostfile /etc/mpi/hostfile names hosts")));
  const Converted ranks = converted(mpi_job("command: [mpirun, -np, '4', ./a]"));
  EXPECT_FALSE(ranks.complete);
  EXPECT_THAT(ranks.notes, Contains(HasSubstr("-np 4 contradicts the job, which has 16 ranks")));
  EXPECT_TRUE(converted(mpi_job("command: [mpirun, -np, '16', ./a]")).complete);
  const Converted alone = converted(worker_job("command: [torchrun, --standalone, a.py]"));
  EXPECT_FALSE(alone.complete);
  EXPECT_THAT(alone.notes, Contains(HasSubstr("remove --standalone")));
  EXPECT_TRUE(converted(worker_job("command: [torchrun, --nproc_per_node=2, a.py]")).complete);
}

TEST(ConvertKinds, WhatTheMpiOperatorWritesIsNoted) {
  const Converted job = converted(mpi_job(
      "command: [sh, -c, 'mpirun --hostfile /etc/mpi/hostfile -mca plm_rsh_args \"-p 22\" ./a']"));
  EXPECT_FALSE(job.complete);
  EXPECT_THAT(job.notes, Contains(HasSubstr("\"/etc/mpi/\" is used here")));
  EXPECT_THAT(job.notes, Contains(HasSubstr("\"plm_rsh_\" is used here")));
}

TEST(ConvertKinds, AnMpiJobKeepsWhatTheLauncherDoesNotSet) {
  const std::string variables =
      "env: [{name: RANK, value: '1'}, {name: WORLD_SIZE, value: '16'}, {name: MASTER_ADDR, value: "
      "x}, {name: TF_CONFIG, value: y}]";
  const Converted mpi = converted(mpi_job("command: [mpirun, ./a], " + variables));
  EXPECT_EQ(mpi.container()["env"].dump(),
            R"([{"name":"RANK","value":"1"},{"name":"WORLD_SIZE","value":"16"},)"
            R"({"name":"TF_CONFIG","value":"y"}])");
  const Converted torch = converted(worker_job("command: [a], " + variables));
  EXPECT_EQ(torch.container()["env"].dump(), R"([{"name":"TF_CONFIG","value":"y"}])");
  // The kind of the job does not say it here, the command does.
  EXPECT_EQ(converted(job_set("command: [mpirun, ./a], " + variables)).container()["env"].size(),
            3U);
}

TEST(ConvertKinds, AVariableThatAnotherOneNamesIsNotDroppedInSilence) {
  const Converted job = converted(worker_job(
      "command: [a], env: [{name: MASTER_ADDR, value: x}, {name: R, value: '$(MASTER_ADDR):1'}]"));
  EXPECT_THAT(job.notes, Contains(HasSubstr("write $MASTER_ADDR in a shell for $(MASTER_ADDR)")));
}

TEST(ConvertKinds, VariablesOfOtherOperatorsAreNoted) {
  const auto noted = [](const std::string& script, const std::string& name) {
    const Converted job = converted(worker_job("command: [sh, -c, '" + script + "']"));
    const bool found = std::ranges::any_of(job.notes, [&](const std::string& note) {
      return note.contains("to do: ") && note.contains("\"" + name + "\" is used here");
    });
    EXPECT_NE(job.complete, found) << name;
    return found;
  };
  for (const char* name : {"WORKER_ADDRS", "WORKER_PORT", "VC_PS_HOSTS", "VC_WORKER_NUM"})
    EXPECT_TRUE(noted("a $" + std::string(name) + " b", name)) << name;
  EXPECT_FALSE(noted("$MY_WORKER_PORT $WORKER_PORTS", "WORKER_PORT"));
}

TEST(ConvertKinds, TheIndexOfAPodIsSet) {
  const std::string index =
      R"x([{"name":"JOB_COMPLETION_INDEX","value":"$(PACELINE_REPLICA_INDEX)"}])x";
  const Converted used = converted(job_set("command: [sh, -c, 'a $JOB_COMPLETION_INDEX']"));
  EXPECT_TRUE(used.complete);
  EXPECT_EQ(used.container()["env"].dump(), index);
  // The job's own variables come first, and are not set twice.
  const Converted own =
      converted(job_set("command: [sh, -c, 'a $JOB_COMPLETION_INDEX $VC_TASK_INDEX'], env: [{name: "
                        "JOB_COMPLETION_INDEX, value: '7'}]"));
  EXPECT_EQ(own.container()["env"][0]["value"], "7");
  EXPECT_EQ(own.container()["env"][1].dump(),
            R"x({"name":"VC_TASK_INDEX","value":"$(PACELINE_REPLICA_INDEX)"})x");
  EXPECT_EQ(own.container()["env"].size(), 2U);
  const Converted annotation = converted(
      job_set("command: [a], env: [{name: JOB_COMPLETION_INDEX, valueFrom: {fieldRef: {fieldPath: "
              "\"metadata.annotations['batch.kubernetes.io/job-completion-index']\"}}}]"));
  EXPECT_EQ(annotation.container()["env"].dump(), index);
  EXPECT_FALSE(converted(job_set("command: [a]")).container().contains("env"));
}

TEST(ConvertKinds, AFrameworkThatNeedsASchedulerIsNotGuessedWithoutOne) {
  const auto framework = [](const std::string& tasks) {
    return converted(
               "apiVersion: batch.volcano.sh/v1alpha1\nkind: Job\nmetadata: {name: "
               "mindspore}\nspec: {tasks: [" +
               tasks + "]}\n")
        .job["spec"]["framework"]["type"];
  };
  const std::string pod =
      ", replicas: 1, template: {spec: {containers: [{name: c, image: i, command: [a]}]}}}";
  EXPECT_EQ(framework("{name: pod" + pod), "Custom");
  EXPECT_EQ(framework("{name: scheduler" + pod + ", {name: worker" + pod), "MindSpore");
}

TEST(ConvertKinds, AnMpiJobOfTheFirstVersionIsRefused) {
  const Converted job = converted(
      "apiVersion: kubeflow.org/v1alpha1\nkind: MPIJob\nmetadata: {name: m}\nspec: {gpus: 2}\n");
  EXPECT_THAT(job.notes, Contains(HasSubstr("f:1: apiVersion: kubeflow.org/v1alpha1 has no "
                                            "spec.mpiReplicaSpecs")));
}

TEST(ConvertKinds, TorchrunThatCountsDevicesLeavesTheNumberOpen) {
  const auto processes = [](const std::string& flag) {
    const Converted job = converted(job_set("command: [torchrun, " + flag + ", a.py]"));
    return job.job["spec"]["framework"].value("processesPerReplica", ordered_json("Auto"));
  };
  for (const char* flag :
       {"--nproc_per_node=gpu", "--nproc-per-node=auto", "--nproc_per_node, gpu"})
    EXPECT_EQ(processes(flag), "Auto") << flag;
  EXPECT_EQ(processes("--nproc_per_node=4"), 4);
  EXPECT_EQ(processes("--nnodes=2"), 1) << "torchrun starts one process unless told otherwise";
}

TEST(ConvertKinds, KueueDoesNotKeepAJobSuspended) {
  const std::string label = "name: s, labels: {a: b, kueue.x-k8s.io/queue-name: q}";
  const Converted job = converted(job_set("command: [python, a.py]", "suspend: true", label));
  EXPECT_FALSE(job.complete);
  EXPECT_EQ(job.job["metadata"]["labels"].dump(), R"({"a":"b","kueue.x-k8s.io/queue-name":"q"})");
  EXPECT_THAT(job.notes, Contains(HasSubstr("remove spec.suspend")));
  EXPECT_TRUE(converted(job_set("command: [python, a.py]", "", label)).complete);
  const Converted suspended = converted(job_set("command: [python, a.py]", "suspend: true"));
  EXPECT_TRUE(suspended.complete) << "a person suspended it";
  EXPECT_EQ(suspended.job["spec"]["suspend"], true);
}

TEST(ConvertKinds, AmountsAreTexts) {
  const Converted job =
      converted(worker_job("command: [a], resources: {requests: {cpu: 0.5}, limits: {memory: "
                           "1.5, nvidia.com/gpu: 2}}"));
  EXPECT_EQ(job.container()["resources"].dump(),
            R"({"requests":{"cpu":"0.5"},"limits":{"memory":"1.5","nvidia.com/gpu":2}})");
  EXPECT_TRUE(job.complete);
}

TEST(ConvertKinds, ModesAndMergedFieldsKeepTheirMeaning) {
  const Converted job =
      converted("x: &r {limits: {nvidia.com/gpu: 8}}\n" +
                worker_job("command: [a], resources: {<<: *r}",
                           "volumes: [{name: s, secret: {secretName: s, defaultMode: 0400}}]"));
  EXPECT_EQ(job.container()["resources"]["limits"]["nvidia.com/gpu"], 8);
  EXPECT_EQ(job.pod()["volumes"][0]["secret"]["defaultMode"], 256);
}

TEST(ConvertKinds, PatchesMergeListsAsKubernetesDoes) {
  const Converted job = converted(
      "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata: {name: t}\nspec:\n"
      "  runtimeRef: {name: r}\n"
      "  podTemplateOverrides: [{spec: {containers: [{name: node, volumeMounts: [{name: d, "
      "mountPath: /b}], ports: [{containerPort: 1, name: x}]}]}}]\n"
      "---\napiVersion: trainer.kubeflow.org/v1alpha1\nkind: ClusterTrainingRuntime\nmetadata: "
      "{name: r}\nspec: {mlPolicy: {torch: {}}, template: {spec: {replicatedJobs: [{name: node, "
      "template: {spec: {template: {spec: {containers: [{name: node, image: i, command: [a], "
      "volumeMounts: [{name: d, mountPath: /a}], ports: [{containerPort: 1}, {containerPort: "
      "2}]}]}}}}}]}}}\n");
  EXPECT_EQ(job.container()["volumeMounts"].dump(),
            R"([{"name":"d","mountPath":"/a"},{"name":"d","mountPath":"/b"}])");
  EXPECT_EQ(job.container()["ports"].dump(),
            R"([{"containerPort":1,"name":"x"},{"containerPort":2}])");
}

TEST(ConvertKinds, BoundsOfATrainJobMakeItElastic) {
  const auto with_policy = [](const std::string& policy) {
    return converted(
        "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata: {name: t}\nspec:\n"
        "  runtimeRef: {name: r}\n"
        "---\napiVersion: trainer.kubeflow.org/v1alpha1\nkind: ClusterTrainingRuntime\nmetadata: "
        "{name: r}\nspec: {mlPolicy: {numNodes: 2, torch: {elasticPolicy: " +
        policy +
        "}}, template: {spec: {replicatedJobs: [{name: node, template: {spec: {template: {spec: "
        "{containers: [{name: node, image: i, command: [a]}]}}}}}]}}}\n");
  };
  Converted job = with_policy("{minNodes: 1, maxNodes: 4, maxRestarts: 5}");
  EXPECT_TRUE(job.complete) << testing::PrintToString(job.notes);
  EXPECT_EQ(job.job["spec"]["elastic"].dump(),
            R"({"role":"node","replicas":2,"minReplicas":1,"maxReplicas":4})");
  EXPECT_FALSE(job.job["spec"]["roles"][0].contains("replicas"));
  EXPECT_EQ(job.job["spec"]["failurePolicy"]["maxRestarts"], 5);
  // Bounds that leave out the present number are widened to it.
  job = with_policy("{minNodes: 3}");
  EXPECT_EQ(job.job["spec"]["elastic"].dump(),
            R"({"role":"node","replicas":2,"minReplicas":2,"maxReplicas":2})");
  EXPECT_FALSE(with_policy("{maxRestarts: 5}").job["spec"].contains("elastic"));
}

TEST(ConvertKinds, ClaimsOfDevicesAreCarriedOver) {
  const Converted job = converted(
      worker_job("command: [a]", "resourceClaims: [{name: c, resourceClaimTemplateName: gpu}]"));
  EXPECT_EQ(job.pod()["resourceClaims"].dump(),
            R"([{"name":"c","resourceClaimTemplateName":"gpu"}])");
  EXPECT_TRUE(job.complete) << testing::PrintToString(job.notes);
}

TEST(ConvertKinds, FieldsThatPacelineSetsAreNeverCarriedOver) {
  ASSERT_FALSE(api::owned_pod_fields().empty());
  for (const api::OwnedField& owned : api::owned_pod_fields()) {
    const std::string field(owned.field);
    const Converted job = converted(worker_job("command: [a]", field + ": x"));
    EXPECT_FALSE(job.pod().contains(field)) << field;
    EXPECT_THAT(job.notes, Contains(HasSubstr("." + field + ": "))) << field;
    EXPECT_TRUE(job.complete) << field;
  }
}

}  // namespace
}  // namespace paceline::cli
