// SPDX-License-Identifier: Apache-2.0
// What a batch script of Slurm runs in the end: the words of the command, and what is noted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/cli/convert/converted.hpp"

namespace paceline::cli {
namespace {

using nlohmann::ordered_json;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

Converted script(const std::string& lines) {
  return converted("#!/bin/bash\n#SBATCH --container-image=x/y:1\n" + lines + "\n");
}

std::vector<std::string> command_of(const std::string& lines) { return script(lines).command(); }

std::vector<std::string> shell(const std::string& text) { return {"bash", "-c", text}; }

using Words = std::vector<std::string>;

TEST(Sbatch, AProgramInTheBackgroundIsTheProgram) {
  EXPECT_EQ(command_of("srun python train.py &\nwait"), (Words{"python", "train.py"}));
  EXPECT_EQ(command_of("srun python train.py $A & wait"), shell("exec python train.py $A"));
  EXPECT_EQ(command_of("srun python train.py > log 2>&1 &"),
            shell("exec python train.py > log 2>&1"));
}

TEST(Sbatch, QuotesStay) {
  EXPECT_EQ(command_of(R"(srun python t.py --lr $LR --filter 'a|b' --json '{"a": 1}')"),
            shell(R"(exec python t.py --lr $LR --filter 'a|b' --json '{"a": 1}')"));
  EXPECT_EQ(command_of(R"(srun python t.py 'a|b' "c d" '$x' "it's" \$y)"),
            (Words{"python", "t.py", "a|b", "c d", "$x", "it's", "$y"}));
  EXPECT_EQ(command_of(R"(srun python t.py "it's $A")"), shell(R"(exec python t.py "it's $A")"));
  EXPECT_EQ(command_of("srun python t.py --data ~/data/*.txt"),
            shell("exec python t.py --data ~/data/*.txt"));
  EXPECT_EQ(command_of("srun bash -c \"\n  python t.py\n\""),
            (Words{"bash", "-c", "\n  python t.py\n"}));
  EXPECT_EQ(command_of("srun python \\\n  t.py \\\n  --x=1  # why\necho 'done"),
            (Words{"python", "t.py", "--x=1"}));
}

TEST(Sbatch, WhatFollowsTheProgramRuns) {
  EXPECT_EQ(command_of("srun python t.py && touch done"), shell("python t.py && touch done"));
  EXPECT_EQ(command_of("srun python t.py | tee log"),
            shell("set -o pipefail; python t.py | tee log"));
  EXPECT_EQ(command_of("srun python - <<EOF\nprint('it')\nEOF\necho x"),
            shell("exec python - <<EOF\nprint('it')\nEOF\n"));
  const Converted two = script("cd /work && srun python t.py; touch done");
  EXPECT_EQ(two.command(), (Words{"python", "t.py"}));
  EXPECT_EQ(two.container()["workingDir"], "/work");
  EXPECT_THAT(two.notes, Contains(HasSubstr("\"touch done\" is not carried over")));
}

TEST(Sbatch, VariablesThatTheScriptSetsAreKept) {
  const Converted job =
      script("A=1\nLR=0.1\nexport B='x y' C=2\nA=3\nX=4 srun python t.py --lr $LR\nD=5");
  EXPECT_EQ(job.container()["env"].dump(),
            R"([{"name":"LR","value":"0.1"},{"name":"B","value":"x y"},{"name":"C","value":"2"},)"
            R"({"name":"A","value":"3"},{"name":"X","value":"4"}])");
  EXPECT_TRUE(job.complete);
  EXPECT_THAT(job.notes, Contains(HasSubstr("\"D=5\" is not carried over")));
}

TEST(Sbatch, AComputedVariableThatTheCommandUsesHasToBeWritten) {
  const Converted used = script("IP=$(srun -n1 hostname)\nsrun python t.py --master ${IP}:1");
  EXPECT_FALSE(used.complete);
  EXPECT_THAT(used.notes, Contains(HasSubstr("f:3: to do: IP: \"$(srun -n1 hostname)\" is computed "
                                             "by the script, and the command that trains uses $IP; "
                                             "write its value in env of the trainer")));
  const Converted unused = script("export P=$PWD/lib\nnodes=( $(x) y )\nsrun python t.py");
  EXPECT_TRUE(unused.complete);
  EXPECT_THAT(unused.notes, Contains(HasSubstr("P: \"$PWD/lib\" is not carried over")));
  EXPECT_FALSE(unused.container().contains("env"));
  // The flag that used the variable is the job's, and gone.
  const Converted place = script(
      "head=$(hostname)\nsrun python -m torch.distributed.run --nnodes 2 --rdzv_endpoint "
      "$head:29500 --nproc_per_node 4 t.py 50");
  EXPECT_TRUE(place.complete) << testing::PrintToString(place.notes);
  EXPECT_EQ(place.command(), (Words{"python", "-m", "torch.distributed.run", "--nproc_per_node",
                                    "4", "t.py", "50"}));
}

TEST(Sbatch, VariablesThatTheLauncherSetsAreNot) {
  const Converted job =
      script("export MASTER_ADDR=$(hostname) RANK=1 NCCL_DEBUG=INFO\nsrun python t.py");
  EXPECT_EQ(job.container()["env"].dump(), R"([{"name":"NCCL_DEBUG","value":"INFO"}])");
  EXPECT_THAT(job.notes, Contains(HasSubstr("RANK: \"1\" is not carried over: the launcher sets")));
  // MPI numbers its own ranks.
  const Converted mpi = script("export RANK=1 MASTER_PORT=2\nmpirun ./solver");
  EXPECT_EQ(mpi.container()["env"].dump(), R"([{"name":"RANK","value":"1"}])");
}

TEST(Sbatch, TheLauncherIsTheOneThatTrains) {
  EXPECT_EQ(command_of("NCCL_DEBUG=INFO srun python train.py\npython evaluate.py"),
            (Words{"python", "train.py"}));
  EXPECT_EQ(command_of("srun python train.py\nif [ -f done ]; then\n  python report.py\nfi"),
            (Words{"python", "train.py"}));
  EXPECT_EQ(command_of("cat > conf <<EOF\npython foo\nsrun it\nEOF\npython train.py"),
            (Words{"python", "train.py"}));
  EXPECT_EQ(command_of("torchrun train.py\npython evaluate.py"), (Words{"torchrun", "train.py"}));
}

TEST(Sbatch, AChoiceHasToBeLookedAt) {
  const Converted two = script("srun python a.py\nsrun python b.py");
  EXPECT_EQ(two.command(), (Words{"python", "b.py"}));
  EXPECT_FALSE(two.complete);
  EXPECT_THAT(two.notes,
              Contains(HasSubstr("f:4: to do: command: \"srun python b.py\" is taken for "
                                 "the one command that trains, of 2 that may")));
  const Converted loop = script("for i in 1 2 3; do\n  srun python a.py --seed $i\ndone");
  EXPECT_FALSE(loop.complete);
  EXPECT_THAT(loop.notes, Contains(HasSubstr("stands in a loop, a condition or a function, and the "
                                             "job runs it once: for i in 1 2 3")));
  EXPECT_THAT(loop.notes, Contains(HasSubstr("uses $i")));
  const Converted outside = script("srun python a.py\nif x; then\n  srun python b.py\nfi");
  EXPECT_EQ(outside.command(), (Words{"python", "a.py"}));
  EXPECT_TRUE(script("python get.py\nsrun python a.py").complete);
}

TEST(Sbatch, OnlyOptionsThatNeedAValueTakeTheNextWord) {
  EXPECT_EQ(command_of("srun --exact --kill-on-bad-exit -K -l --mpi pmix -N 2 -n4 python t.py"),
            (Words{"python", "t.py"}));
  EXPECT_EQ(script("srun -N 2 -n4 --exact python t.py").shape(), "2 x 2");
}

TEST(Sbatch, NumbersThatDoNotDivideAreRoundedUpAndNoted) {
  const Converted most = script("#SBATCH --ntasks=10 --ntasks-per-node=4\nsrun python t.py");
  EXPECT_EQ(most.shape(), "3 x 4");
  EXPECT_THAT(most.notes, Contains(HasSubstr("f:3: --ntasks: \"10\" becomes 3 replicas with 4 "
                                             "processes each, 12 in all")));
  const Converted gpus = script("#SBATCH --nodes=3 --ntasks=8 --gpus=8\nsrun python t.py");
  EXPECT_EQ(gpus.shape(), "3 x 3");
  EXPECT_EQ(gpus.container()["resources"]["limits"]["nvidia.com/gpu"], 3);
  EXPECT_THAT(gpus.notes,
              Contains(HasSubstr("--gpus: \"8\" becomes 3 replicas with 3 GPUs each, 9")));
  const Converted even = script("#SBATCH -N 2 -n 8 --ntasks-per-node=4 --gpus=4\nsrun python t.py");
  EXPECT_EQ(even.shape(), "2 x 4");
  EXPECT_THAT(even.notes, Not(Contains(HasSubstr("becomes 2"))));
}

TEST(Sbatch, GpusOfGres) {
  const auto gpus = [](const std::string& option) {
    const Converted job = script("#SBATCH " + option + "\nsrun python t.py");
    return job.container().value(ordered_json::json_pointer("/resources/limits/nvidia.com~1gpu"),
                                 0);
  };
  EXPECT_EQ(gpus("--gres=gpu:4,nvme:1"), 4);
  EXPECT_EQ(gpus("--gres=gpu:a100:4(S:0-1)"), 4);
  EXPECT_EQ(gpus("--gres=gpu"), 1);
  EXPECT_EQ(gpus("--gpus-per-node=a100:2,h100:1"), 3);
  EXPECT_EQ(gpus("--gpus-per-task=2 --ntasks=3"), 6);
  EXPECT_EQ(gpus("--gres=nvme:1"), 0);
}

}  // namespace
}  // namespace paceline::cli
