// SPDX-License-Identifier: Apache-2.0
#include "common/command/command.hpp"

#include <gtest/gtest.h>

#include "common/command/script.hpp"
#include "common/command/torchrun_flags.hpp"

namespace paceline::frameworks {
namespace {

using Words = std::vector<std::string>;

const InterpreterOf kPython = [](const std::string&) {
  return std::string("/opt/venv/bin/python3");
};
JobShape shape(int replicas = 2, int processes = 4) {
  return {"PyTorch", false, replicas, processes};
}

Words argv_of(const Words& command, const JobShape& job = shape()) {
  const auto resolved = resolve_command(command, job, kPython);
  return resolved ? resolved->argv : Words{"ERROR", resolved.error().message};
}

std::string error_of(const Words& command, const JobShape& job = shape()) {
  const auto resolved = resolve_command(command, job, kPython);
  return resolved ? "" : resolved.error().message;
}

TEST(Command, APlainCommandStaysAsItIs) {
  EXPECT_EQ(argv_of({"python3", "train.py", "--nnodes=9"}),
            (Words{"python3", "train.py", "--nnodes=9"}));
  EXPECT_EQ(argv_of({"bash", "-c", "pip list && python train.py"}),
            (Words{"bash", "-c", "pip list && python train.py"}));
  EXPECT_EQ(argv_of({"./my-torchrun-like", "x"}), (Words{"./my-torchrun-like", "x"}));
}

TEST(Command, TorchrunIsTakenOver) {
  EXPECT_EQ(argv_of({"torchrun", "train.py", "--lr", "1"}),
            (Words{"/opt/venv/bin/python3", "-u", "train.py", "--lr", "1"}));
  EXPECT_EQ(
      argv_of({"/usr/bin/torchrun", "--nnodes=2", "--nproc_per_node", "4", "--rdzv-backend=c10d",
               "--rdzv_endpoint", "h:1", "--max-restarts=3", "-m", "pkg.train", "-x"}),
      (Words{"/opt/venv/bin/python3", "-u", "-m", "pkg.train", "-x"}));
  EXPECT_EQ(argv_of({"torchrun", "--no-python", "./prog", "--standalone"}),
            (Words{"./prog", "--standalone"}));
  EXPECT_EQ(argv_of({"python3", "-O", "-m", "torch.distributed.run", "--nproc-per-node=auto",
                     "train.py"}),
            (Words{"python3", "-O", "-u", "train.py"}));
  EXPECT_EQ(argv_of({"python3.11", "-X", "dev", "-m", "torch.distributed.launch", "--use-env",
                     "train.py"}),
            (Words{"python3.11", "-X", "dev", "-u", "train.py"}));
  EXPECT_EQ(argv_of({"torchrun", "--", "-weird.py"}),
            (Words{"/opt/venv/bin/python3", "-u", "-weird.py"}));
}

TEST(Command, WhatIsReplacedIsSaid) {
  const auto resolved =
      resolve_command({"torchrun", "--nnodes=2", "--master-port=1", "x.py"}, shape(), kPython);
  ASSERT_TRUE(resolved.has_value());
  EXPECT_TRUE(resolved->taken_over);
  ASSERT_EQ(resolved->notes.size(), 1U);
  EXPECT_NE(resolved->notes[0].find("--nnodes, --master-port"), std::string::npos);
}

TEST(Command, ContradictionsNameTheFlagAndTheRemedy) {
  EXPECT_NE(error_of({"torchrun", "--standalone", "x.py"}).find("remove --standalone"),
            std::string::npos);
  EXPECT_NE(error_of({"torchrun", "--nnodes=3", "x.py"})
                .find("--nnodes=3 contradicts the job, which has 2 replicas"),
            std::string::npos);
  EXPECT_NE(error_of({"torchrun", "--nnodes=1:4", "x.py"}).find("elastic"), std::string::npos);
  EXPECT_NE(error_of({"torchrun", "--nproc_per_node=8", "x.py"})
                .find("spec.framework.processesPerReplica: 8"),
            std::string::npos);
  EXPECT_NE(error_of({"torchrun", "--nproc_per_node=many", "x.py"}), "");
  EXPECT_NE(error_of({"torchrun", "--frobnicate", "x.py"}).find("--frobnicate"), std::string::npos);
  EXPECT_NE(error_of({"torchrun", "--nnodes=2"}).find("no script"), std::string::npos);
  EXPECT_NE(error_of({"torchrun", "--nnodes"}).find("no value"), std::string::npos);
  EXPECT_NE(error_of({"python", "-m", "torch.distributed.launch", "x.py"}).find("--use-env"),
            std::string::npos);
  EXPECT_NE(error_of({"bash", "-c", "cd /x && torchrun x.py"}).find("torchrun"), std::string::npos);
  EXPECT_NE(
      error_of({"sh", "-ec", "exec python -m torch.distributed.run x.py"}).find("Passthrough"),
      std::string::npos);
  EXPECT_NE(error_of({"mpirun", "-n", "4", "x"}).find("Passthrough"), std::string::npos);
  EXPECT_NE(error_of({}).find("command"), std::string::npos);
}

TEST(Command, TheLastOfARepeatedFlagCounts) {
  EXPECT_EQ(error_of({"torchrun", "--nnodes=7", "--nnodes=2", "x.py"}), "");
  EXPECT_NE(error_of({"torchrun", "--nnodes=2", "--nnodes=7", "x.py"}), "");
}

TEST(Command, PassthroughAndCustomKeepTheirLauncherButNotItsRestarts) {
  auto kept = shape();
  kept.passthrough = true;
  EXPECT_EQ(argv_of({"torchrun", "--standalone", "x.py"}, kept),
            (Words{"torchrun", "--standalone", "x.py"}));
  EXPECT_NE(error_of({"torchrun", "--max-restarts=3", "x.py"}, kept)
                .find("spec.failurePolicy.maxRestarts: 3"),
            std::string::npos);
  EXPECT_NE(error_of({"torchrun", "--max_restarts", "3", "x.py"}, kept), "");
  EXPECT_EQ(error_of({"torchrun", "--max-restarts=0", "x.py"}, kept), "");
  auto custom = shape();
  custom.framework = "Custom";
  EXPECT_EQ(argv_of({"mpirun", "x"}, custom), (Words{"mpirun", "x"}));
}

TEST(Script, StartsALauncherOnlyAsACommand) {
  for (const std::string_view script : {
           "cd /x && torchrun x.py",
           "exec torchrun x.py",
           "A=1 B=$C /opt/bin/torchrun x.py",
           "env -i OMP_NUM_THREADS=1 torchrun x.py",
           "timeout 3600 torchrun x.py",
           "if true; then torchrun x.py; fi",
           "set -e\n# the training\ntorchrun x.py",
           "nohup \"torchrun\" x.py &",
           "(torchrun x.py)",
           "true \\\n && torchrun x.py",
       })
    EXPECT_EQ(launcher_in(script), "torchrun") << script;
  EXPECT_EQ(launcher_in("python3 -u -m torch.distributed.run x.py"), "torch.distributed.run");
  EXPECT_EQ(launcher_in("accelerate launch x.py"), "accelerate launch");
  for (const std::string_view script : {
           "pip install deepspeed && python train.py",
           "python3 /workspace/deepspeed/train.py",
           "echo \"now; torchrun x.py\"",
           "python train.py --launcher torchrun",
           "# torchrun x.py\npython train.py",
           "which mpirun || true; python train.py",
           "python -m train -m torch.distributed.run",
           "accelerate config",
           "export LAUNCHER=torchrun",
           "",
           "'",
           "a \\",
       })
    EXPECT_EQ(launcher_in(script), "") << script;
}

}  // namespace
}  // namespace paceline::frameworks
