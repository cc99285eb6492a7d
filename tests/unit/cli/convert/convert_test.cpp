// SPDX-License-Identifier: Apache-2.0
#include "cli/convert/convert.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "cli/convert/command.hpp"
#include "cli/convert/notes.hpp"
#include "cli/yaml/document.hpp"

namespace paceline::cli {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::StartsWith;

std::string pytorch_job(const std::string& spec, const std::string& container,
                        const std::string& metadata = "name: a") {
  return "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {" + metadata + "}\nspec:\n" +
         (spec.empty() ? "" : "  " + spec + "\n") +
         "  pytorchReplicaSpecs:\n    Worker:\n      template:\n        spec:\n          "
         "containers: [{name: pytorch, image: i, " +
         container + "}]\n";
}

std::string error_of(const std::string& text) {
  const auto result = convert("f.yaml", text);
  return result ? "" : result.error().message;
}

/// The first document of the result.
Json job_of(const std::string& text) {
  const auto result = convert("f", text);
  if (!result) return result.error().message;
  const auto documents = YamlReader("f").read(result->text);
  return documents ? documents->front().value : Json(documents.error().message);
}

TEST(Convert, RefusesWhatItCannotRead) {
  EXPECT_THAT(error_of("kind: ConfigMap\n"), StartsWith("f.yaml:1: the file holds no job"));
  EXPECT_THAT(error_of("a: 1\n---\nb: [\n"), StartsWith("f.yaml:4: not YAML"));
  EXPECT_THAT(error_of(std::string(2 << 20, ' ')), HasSubstr("1 MiB"));
  EXPECT_THAT(error_of("apiVersion: kubeflow.org/v1\nkind: TFJob\nspec: {}\n"),
              HasSubstr("spec.tfReplicaSpecs: names no replicas that train; write Chief"));
  EXPECT_THAT(error_of("#!/bin/sh\n#SBATCH -N 2\necho hello\n"), HasSubstr("no line starts srun"));
}

TEST(Convert, HostileFilesEndInAnError) {
  std::string laughs = "a0: &a0 [x, x]\n";
  for (int i = 1; i < 30; ++i) {
    const std::string before = "*a" + std::to_string(i - 1);
    laughs += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [" + before + ", " + before +
              "]\n";
  }
  EXPECT_THAT(error_of(laughs), HasSubstr("more than 100000 values"));
  EXPECT_THAT(error_of(std::string(10'000, '[')), HasSubstr("f.yaml:"));
  // Many documents share one limit.
  std::string many;
  for (int i = 0; i < 200; ++i) {
    many += "---\na: &a [x";
    for (int k = 0; k < 600; ++k) many += ",x";
    many += "]\n";
  }
  EXPECT_THAT(error_of(many), HasSubstr("more than 100000 values"));
}

TEST(Convert, WrongTypesAreNoted) {
  for (const char* text :
       {"apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nspec: 3\n",
        "apiVersion: kubeflow.org/v1\nkind: MPIJob\nspec: {mpiReplicaSpecs: [1]}\n",
        "apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\nspec: [1]\n",
        "apiVersion: batch.volcano.sh/v1alpha1\nkind: Job\nspec: {tasks: {a: 1}}\n",
        "apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\n",
        "apiVersion: batch.volcano.sh/v1alpha1\nkind: Job\n"})
    EXPECT_THAT(error_of(text), HasSubstr("names no")) << text;
  for (const char* text :
       {"apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\nmetadata: 4\nspec: {replicatedJobs: "
        "[1, {template: {spec: {template: 5}}}]}\n",
        "apiVersion: batch.volcano.sh/v1alpha1\nkind: Job\nspec: {tasks: [3, {template: {spec: "
        "[]}}], plugins: 3, volumes: [4]}\n",
        "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nspec: {elasticPolicy: 3, runPolicy: [], "
        "pytorchReplicaSpecs: {Worker: {replicas: -1, template: {spec: {containers: [1, 2]}}}}}\n",
        "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nspec: {runtimeRef: {name: r}, "
        "trainer: {numNodes: 2, env: 3}, podTemplateOverrides: [1], runtimePatches: [{}]}\n---\n"
        "kind: ClusterTrainingRuntime\napiVersion: trainer.kubeflow.org/v1alpha1\nmetadata: {name: "
        "r}\nspec: {mlPolicy: 3, template: {spec: {replicatedJobs: [1, {name: node, template: "
        "4}]}}}"
        "\n"}) {
    const auto result = convert("f", text);
    ASSERT_TRUE(result) << result.error().message;
    EXPECT_EQ(result->incomplete, 1) << result->text;
  }
}

TEST(Convert, NamesFieldsThatItDoesNotKnow) {
  const auto result = convert("f", pytorch_job("nodes: {a: 1}", "command: [a]", "name: a, x: y"));
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_THAT(result->notes,
              Contains("f:5: spec.nodes: {\"a\":1} is not carried over: paceline convert does not "
                       "know this field; if the job needs it, look for its like in the API "
                       "reference"));
  EXPECT_THAT(result->notes, Contains(HasSubstr("metadata.x: \"y\" is not carried over")));
  EXPECT_THAT(result->text, HasSubstr("# line 5: spec.nodes: {\"a\":1} is not carried over"));
}

TEST(Convert, KeysCannotBreakOutOfAComment) {
  const auto result = convert("f", pytorch_job("\"x\\nkind: Pod\\x1b\": 1", "command: [a]"));
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_THAT(result->text, HasSubstr("# line 5: spec.x kind: Pod : 1 is"));
  EXPECT_EQ(job_of(pytorch_job("\"x\\nkind: Pod\": 1", "command: [a]"))["kind"], "TrainingJob");
}

TEST(Convert, NamesFitAJob) {
  EXPECT_EQ(job_of(pytorch_job("", "command: [a]", "name: 7.Big_Job"))["metadata"]["name"],
            "job-7-big-job");
  EXPECT_EQ(job_of(pytorch_job("", "command: [a]", "generateName: train-"))["metadata"]["name"],
            "train");
  EXPECT_EQ(job_of(pytorch_job("", "command: [a]", "name: 44"))["metadata"]["name"], "job");
}

TEST(Convert, AMissingCommandIsSaidAndMakesTheJobIncomplete) {
  const auto result = convert("f", pytorch_job("", "args: [--lr=1]"));
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(result->incomplete, 1);
  EXPECT_THAT(
      result->notes,
      Contains(HasSubstr("to do: TrainingJob "
                         "spec.roles[0].template.spec.containers[0].command: is required")));
}

TEST(Convert, TorchrunDecidesTheNumberOfProcesses) {
  const auto processes = [](const std::string& spec, const std::string& container) {
    const Json job = job_of(pytorch_job(spec, container));
    return job["spec"]["framework"].value("processesPerReplica", Json("Auto"));
  };
  EXPECT_EQ(processes("", "command: [python, a.py]"), 1) << "the old operator starts one a pod";
  EXPECT_EQ(processes("", "command: [torchrun, a.py]"), "Auto");
  EXPECT_EQ(processes("", "command: [torchrun, --nproc-per-node, '4', a.py]"), 4);
  EXPECT_EQ(processes("nprocPerNode: auto", "command: [torchrun, a.py]"), "Auto");
  EXPECT_EQ(processes("nprocPerNode: '2'", "command: [python, a.py]"), 2);
  EXPECT_EQ(processes("", "command: [python, torchrun]"), 1) << "an argument is no launcher";
}

TEST(Convert, OtherDocumentsStayAsTheyAre) {
  const std::string map = "# why\nkind: ConfigMap  # kept\ndata: {a: \"---\"}\n";
  const auto result =
      convert("f", pytorch_job("", "command: [a]") + "---\n" + map + "---\n# nothing\n--- # x\n" +
                       pytorch_job("", "command: [b]"));
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(result->jobs, 2);
  EXPECT_THAT(result->text, HasSubstr("---\n# line 12: ConfigMap is no job that is known: it stays "
                                      "unchanged\n" +
                                      map + "---\n"));
}

TEST(Convert, AListIsItsItems) {
  const auto result = convert(
      "f",
      "apiVersion: v1\nkind: List\nitems:\n- kind: Secret\n  a: 1\n- apiVersion: "
      "kubeflow.org/v1\n  kind: JAXJob\n  metadata: {name: b}\n  spec:\n    odd: 1\n    "
      "jaxReplicaSpecs:\n      Worker: {template: {spec: {containers: [{name: jax, image: i, "
      "command: [a]}]}}}\n");
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(result->jobs, 1);
  EXPECT_THAT(result->notes, Contains(StartsWith("f:10: spec.odd: 1 is not carried over")));
  EXPECT_THAT(result->text, HasSubstr("it stays unchanged\nkind: Secret\na: 1\n---\n"));
}

TEST(Convert, ATrainJobNeedsItsRuntime) {
  EXPECT_THAT(
      error_of("apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata: {name: "
               "a}\nspec: {runtimeRef: {name: torch}}\n"),
      HasSubstr("`kubectl get ClusterTrainingRuntime torch -o yaml` prints it"));
}

TEST(Convert, TimesOfSlurm) {
  const auto deadline = [](const std::string& time) {
    return job_of("#!/bin/bash\n#SBATCH --time=" + time + "\nsrun python a.py\n")["spec"].value(
        "activeDeadline", "");
  };
  EXPECT_EQ(deadline("90"), "90m");
  EXPECT_EQ(deadline("10:30"), "630s");
  EXPECT_EQ(deadline("2:00:00"), "2h");
  EXPECT_EQ(deadline("1-12"), "36h");
  EXPECT_EQ(deadline("1-00:30"), "1470m");
  EXPECT_EQ(deadline("UNLIMITED"), "");
}

TEST(ConvertCommand, SaysWhatFileFailed) {
  std::ostringstream out;
  std::ostringstream err;
  EXPECT_EQ(convert_command({"/nonexistent.yaml", ""}, out, err), 2);
  EXPECT_THAT(err.str(), HasSubstr("/nonexistent.yaml"));
  EXPECT_EQ(out.str(), "");
}

}  // namespace
}  // namespace paceline::cli
