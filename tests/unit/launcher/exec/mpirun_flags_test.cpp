// SPDX-License-Identifier: Apache-2.0
#include "common/command/mpirun_flags.hpp"

#include <gtest/gtest.h>

#include "common/command/command.hpp"

namespace paceline::frameworks {
namespace {

using Words = std::vector<std::string>;

std::string message(const Status& status) { return status ? "" : status.error().message; }

TEST(MpirunFlags, KnowsMpirunByItsNames) {
  EXPECT_TRUE(is_mpirun("mpirun"));
  EXPECT_TRUE(is_mpirun("/opt/mpi/bin/mpiexec.hydra"));
  EXPECT_FALSE(is_mpirun("mpirunner"));
}

TEST(MpirunFlags, RefusesHosts) {
  for (const char* flag : {"-H", "--host", "-hosts", "--hostfile", "-machinefile", "-f"}) {
    const auto refused = check_mpirun_flags({"mpirun", "-x", "A=1", flag, "a", "./program"});
    EXPECT_NE(message(refused).find("remove it"), std::string::npos) << flag;
  }
}

TEST(MpirunFlags, RefusesAnotherWayToReachHosts) {
  EXPECT_NE(message(check_mpirun_flags({"mpirun", "--mca", "plm_rsh_agent", "ssh", "./p"}))
                .find("plm_rsh_agent ssh"),
            std::string::npos);
  EXPECT_FALSE(check_mpirun_flags({"mpiexec", "-launcher", "ssh", "./p"}));
}

TEST(MpirunFlags, LeavesTheProgramsOwnFlagsAlone) {
  EXPECT_TRUE(check_mpirun_flags({"mpirun", "--allow-run-as-root", "python", "t.py", "-f", "x"}));
  EXPECT_TRUE(check_mpirun_flags({"python", "t.py", "--hostfile", "x"}));
  EXPECT_TRUE(check_mpirun_ranks({"mpirun", "-np", "4", "python", "t.py", "-n", "9"}, 4));
  EXPECT_TRUE(check_mpirun_ranks({"mpirun", "-mca", "pml", "ob1", "-np", "4", "./p"}, 4));
}

TEST(MpirunFlags, ComparesTheNumberOfRanksOfAllPrograms) {
  const Words two{"mpirun", "-n", "1", "./a", ":", "-n", "3", "./b"};
  EXPECT_TRUE(check_mpirun_ranks(two, 4));
  EXPECT_NE(message(check_mpirun_ranks(two, 8)).find("-np 4 contradicts"), std::string::npos);
  EXPECT_TRUE(check_mpirun_ranks({"mpirun", "./p"}, 8));
  EXPECT_NE(message(check_mpirun_ranks({"mpirun", "-np", "all", "./p"}, 8)).find("-np all"),
            std::string::npos);
}

TEST(MpirunFlags, AsksForACommandWhereMpirunRuns) {
  EXPECT_NE(message(check_mpirun_ranks({}, 2)).find("[mpirun, PROGRAM, …]"), std::string::npos);
}

TEST(MpirunFlags, AHorovodJobIsPointedToMpi) {
  JobShape job;
  job.framework = "Horovod";
  const auto refused = resolve_command({"mpirun", "-np", "2", "python", "t.py"}, job,
                                       [](const std::string&) { return std::string(); });
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("spec.framework.type: MPI"), std::string::npos);
}

}  // namespace
}  // namespace paceline::frameworks
