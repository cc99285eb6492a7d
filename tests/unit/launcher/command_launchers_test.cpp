// SPDX-License-Identifier: Apache-2.0
// Launchers besides torchrun in a job's command.
#include <gtest/gtest.h>

#include "common/command/command.hpp"

namespace paceline::frameworks {
namespace {

using Words = std::vector<std::string>;

/// Two replicas of four processes each.
Result<Command> resolved(const std::string& framework, const Words& command, bool trains = true) {
  return resolve_command(command, {framework, false, 2, 4, trains, 8},
                         [](const std::string&) { return std::string("/venv/bin/python3"); });
}

Words argv_of(const std::string& framework, const Words& command, bool trains = true) {
  const auto taken = resolved(framework, command, trains);
  return taken ? taken->argv : Words{"ERROR", taken.error().message};
}

std::string error_of(const std::string& framework, const Words& command) {
  const auto taken = resolved(framework, command);
  return taken ? "" : taken.error().message;
}

void expect_part(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST(LauncherCommands, RolesMayHaveDifferentNumbersOfProcesses) {
  // A coordinator of one process beside two workers of eight.
  const auto taken = resolve_command({"accelerate", "launch", "--num_processes=17", "x.py"},
                                     {"PyTorch", false, 3, 8, true, 17},
                                     [](const std::string&) { return std::string("python"); });
  EXPECT_TRUE(taken.has_value()) << taken.error().message;
}

TEST(LauncherCommands, AreKnownByAllTheirNamesInAScript) {
  for (const char* const script :
       {"accelerate-launch x.py", "ds x.py", "python -m deepspeed.launcher.runner x.py",
        "python -m paddle.distributed.fleet.launch x.py", "msrun x.py", "orterun -n 2 x",
        "python -m mindspore.parallel.cluster.run x.py", "mpirun.openmpi -n 2 x",
        "python -m accelerate.commands.launch x.py"}) {
    expect_part(error_of("PyTorch", {"sh", "-c", script}), "the shell script in `command` starts");
  }
  EXPECT_EQ(error_of("PyTorch", {"sh", "-c", "accelerate test; python -m json.tool x"}), "");
}

TEST(LauncherCommands, AProgramOfMpirunIsRefusedByAnyName) {
  expect_part(error_of("PyTorch", {"orterun", "-n", "2", "x"}), "Passthrough");
  expect_part(error_of("PyTorch", {"mpirun.openmpi", "-n", "2", "x"}), "Passthrough");
}

TEST(DeepSpeedCommand, OfSeveralReplicasItIsKeptOnlyIfToldItsPlace) {
  const JobShape job{"DeepSpeed", true, 2, 4, true};
  const InterpreterOf none = [](const std::string&) { return std::string(); };
  const auto refused = resolve_command({"deepspeed", "x.py"}, job, none);
  ASSERT_FALSE(refused.has_value());
  expect_part(refused.error().message, "--no_ssh");
  EXPECT_TRUE(resolve_command({"deepspeed", "--no_ssh", "x.py"}, job, none).has_value());
  EXPECT_TRUE(resolve_command({"deepspeed", "x.py"}, {"DeepSpeed", true, 1, 4}, none).has_value());
}

TEST(DeepSpeedCommand, ItsScriptIsStartedByThePlaceThatItGivesTheLocalRank) {
  const auto taken = resolved(
      "DeepSpeed", {"deepspeed", "--num_gpus=4", "--num_nodes", "2", "--master_port", "1",
                    "--no_ssh", "train.py", "--deepspeed", "--deepspeed_config", "ds.json"});
  ASSERT_TRUE(taken.has_value()) << taken.error().message;
  EXPECT_EQ(taken->argv, (Words{"/venv/bin/python3", "-u", "train.py", "--deepspeed",
                                "--deepspeed_config", "ds.json"}));
  EXPECT_EQ(taken->local_rank_at, 3);
  ASSERT_EQ(taken->notes.size(), 1U);
  EXPECT_EQ(taken->notes[0],
            "taken over from deepspeed, the job's fields decide instead: --num_gpus, --num_nodes, "
            "--master_port, --no_ssh");
}

TEST(HorovodCommand, HorovodrunIsTakenOver) {
  const auto taken = resolved("Horovod", {"horovodrun", "-np", "8", "--gloo", "--verbose", "-p",
                                          "22", "python", "train.py", "--np", "3"});
  ASSERT_TRUE(taken.has_value()) << taken.error().message;
  EXPECT_EQ(taken->argv, (Words{"python", "train.py", "--np", "3"}));
  EXPECT_EQ(
      taken->notes.front(),
      "taken over from horovodrun, the job's fields decide instead: -np, --gloo, --verbose, -p");
  EXPECT_EQ(argv_of("Horovod", {"python3", "train.py"}), (Words{"python3", "train.py"}));
}

TEST(HorovodCommand, ContradictionsNameTheOptionAndTheRemedy) {
  const auto error = [](const Words& options) {
    Words words{"horovodrun"};
    words.insert(words.end(), options.begin(), options.end());
    words.insert(words.end(), {"python", "x.py"});
    return error_of("Horovod", words);
  };
  expect_part(error({"-np", "4"}), "-np=4 contradicts the job, which says 8");
  expect_part(error({"-H", "a:4,b:4"}), "chooses hosts");
  expect_part(error({"--min-np", "2"}), "--min-np=2 asks for an elastic job");
  expect_part(error({"--mpi"}), "spec.framework.type: MPI");
  expect_part(error({"--fusion-threshold-mb=32"}),
              "write it in variables of the container (HOROVOD_…)");
  expect_part(error_of("PyTorch", {"horovodrun", "-np", "8", "python", "x.py"}),
              "set spec.framework.type: Horovod");
}

TEST(DeepSpeedCommand, ModulesAndProgramsAndScriptsWithoutALocalRank) {
  const auto module = resolved("DeepSpeed", {"python3", "-m", "deepspeed.launcher.runner",
                                             "--no_local_rank", "--module", "pkg.train", "-x"});
  ASSERT_TRUE(module.has_value()) << module.error().message;
  EXPECT_EQ(module->argv, (Words{"python3", "-u", "-m", "pkg.train", "-x"}));
  EXPECT_EQ(module->local_rank_at, -1);
  EXPECT_EQ(argv_of("PyTorch", {"deepspeed", "--no_python", "./prog", "--num_nodes=9"}),
            (Words{"./prog", "--num_nodes=9"}));
}

TEST(DeepSpeedCommand, ContradictionsNameTheOptionAndTheRemedy) {
  expect_part(error_of("DeepSpeed", {"deepspeed", "--num_nodes=3", "x.py"}),
              "--num_nodes=3 contradicts the job, which says 2: remove --num_nodes");
  expect_part(error_of("DeepSpeed", {"deepspeed", "--num_gpus", "8", "x.py"}),
              "spec.framework.processesPerReplica");
  expect_part(error_of("DeepSpeed", {"deepspeed", "--hostfile=/job/hostfile", "x.py"}),
              "remove --hostfile");
  expect_part(error_of("DeepSpeed", {"deepspeed", "-i", "worker-0", "x.py"}), "chooses hosts");
  expect_part(error_of("DeepSpeed", {"deepspeed", "--autotuning=run", "x.py"}), "Passthrough");
  expect_part(error_of("DeepSpeed", {"deepspeed", "--frobnicate", "x.py"}), "--frobnicate");
  expect_part(error_of("DeepSpeed", {"deepspeed", "--num_gpus"}), "has no value");
  expect_part(error_of("DeepSpeed", {"deepspeed", "--num_gpus=-1"}), "no program to run");
  expect_part(error_of("DeepSpeed", {"deepspeed", "--module", "--no_python", "x"}), "remove one");
}

TEST(PaddleCommand, IsTakenOver) {
  EXPECT_EQ(argv_of("PaddlePaddle", {"python3", "-O", "-m", "paddle.distributed.launch",
                                     "--nnodes=2", "--gpus", "0,1,2,3", "train.py", "--lr", "1"}),
            (Words{"python3", "-O", "-u", "train.py", "--lr", "1"}));
  EXPECT_EQ(argv_of("PaddlePaddle", {"fleetrun", "--nproc_per_node=4", "./prog"}),
            (Words{"./prog"}));
  expect_part(error_of("PaddlePaddle", {"fleetrun", "--nnodes=2:4", "x.py"}), "--nnodes=2:4");
  expect_part(error_of("PaddlePaddle", {"fleetrun", "--ips=a,b", "x.py"}), "remove --ips");
}

TEST(MsrunCommand, IsTakenOver) {
  EXPECT_EQ(argv_of("MindSpore", {"msrun", "--worker_num=8", "--local_worker_num=4", "--join=True",
                                  "train.py", "--lr", "1"}),
            (Words{"/venv/bin/python3", "-u", "train.py", "--lr", "1"}));
  EXPECT_EQ(argv_of("MindSpore", {"msrun", "python", "train.py"}), (Words{"python", "train.py"}));
  expect_part(error_of("MindSpore", {"msrun", "--worker_num=4", "x.py"}), "which says 8");
}

TEST(AccelerateCommand, IsTakenOverUnlessItChangesTheTraining) {
  EXPECT_EQ(argv_of("PyTorch", {"accelerate", "launch", "--multi_gpu", "--num_processes=8",
                                "--num_machines", "2", "-m", "pkg.train", "-x"}),
            (Words{"/venv/bin/python3", "-u", "-m", "pkg.train", "-x"}));
  EXPECT_EQ(argv_of("PyTorch", {"python3", "-m", "accelerate.commands.launch", "x.py"}),
            (Words{"python3", "-u", "x.py"}));
  EXPECT_EQ(argv_of("PyTorch", {"accelerate", "env"}), (Words{"accelerate", "env"}));
  expect_part(error_of("PyTorch", {"accelerate", "launch", "--mixed_precision", "bf16", "x.py"}),
              "--mixed_precision=bf16 changes the training");
  expect_part(error_of("PyTorch", {"accelerate", "launch", "--fsdp_version=2", "x.py"}),
              "remove --fsdp_version");
}

TEST(BytePsCommand, HelpersServeWhateverItIsGiven) {
  EXPECT_EQ(argv_of("BytePS", {"bpslaunch", "python3", "train.py", "--lr"}),
            (Words{"python3", "train.py", "--lr"}));
  EXPECT_EQ(argv_of("BytePS", {"bpslaunch"}, false),
            (Words{"/venv/bin/python3", "-c", "import byteps.server"}));
  expect_part(error_of("BytePS", {"bpslaunch"}), "no program to run");
}

TEST(LauncherCommand, OfAnotherFrameworkIsRefused) {
  expect_part(error_of("TensorFlow", {"deepspeed", "x.py"}),
              "deepspeed starts no program of TensorFlow: set spec.framework.type: DeepSpeed");
  expect_part(error_of("PaddlePaddle", {"torchrun", "x.py"}), "spec.framework.type: PyTorch");
  expect_part(error_of("JAX", {"python", "-m", "torch.distributed.run", "x.py"}), "JAX");
  expect_part(error_of("PyTorch", {"msrun", "x.py"}), "spec.framework.type: MindSpore");
  expect_part(error_of("TensorFlow", {"mpirun", "-n", "2", "x"}), "Passthrough");
  expect_part(error_of("TensorFlow", {"bash", "-c", "fleetrun x.py"}), "fleetrun");
}

TEST(LauncherCommand, CustomAndUnknownNumbersAreNoContradiction) {
  EXPECT_EQ(argv_of("Custom", {"msrun", "x.py"}), (Words{"msrun", "x.py"}));
  EXPECT_EQ(argv_of("MPI", {"mpirun", "-n", "2", "x"}), (Words{"mpirun", "-n", "2", "x"}));
  const auto taken =
      resolve_command({"msrun", "--worker_num=64", "x.py"}, {"MindSpore", false, 0, 4},
                      [](const std::string&) { return std::string(); });
  ASSERT_TRUE(taken.has_value()) << taken.error().message;
  EXPECT_EQ(taken->argv, (Words{"python3", "-u", "x.py"}));
}

}  // namespace
}  // namespace paceline::frameworks
