// SPDX-License-Identifier: Apache-2.0
// A real launcher of rank 0 in a gang that passes the rank table on. The other launchers are
// played.
#include <sys/resource.h>

#include "testing/played_gang.hpp"
#include "tests/unit/launcher/launcher_process.hpp"

namespace paceline::launcher {
namespace {

struct LargeGang : LauncherProcess {
  LargeGang() { nodes = 600; }

  void launch_first(const std::string& script, std::map<std::string, std::string> more = {}) {
    more["PACELINE_PROCESSES_PER_REPLICA"] = "1";
    more["PACELINE_TOKEN"] = token;
    launch(0, script, more);
  }

  testing::PlayedSettings settings() const {
    testing::PlayedSettings value;
    value.token = token;
    value.server = {"127.0.0.1", port};
    value.node_count = nodes;
    value.last = nodes;
    return value;
  }

  // Members listen on ports that a gang of another process may have used a moment ago.
  const std::string token = "secret-" + std::to_string(::getpid());
};

TEST_F(LargeGang, StartsAndEndsWithEveryMember) {
  launch_first("cp $PACELINE_RANK_TABLE $DIR/table", {{"PACELINE_SUCCESS_POLICY", "AllRanks"}});
  const auto result = testing::PlayedGang(settings()).run(seconds(50));
  EXPECT_EQ(result.tables, nodes - 1) << log(0);
  EXPECT_EQ(result.from_server, rendezvous::kTableChildren);
  EXPECT_EQ(result.lost, 0);
  EXPECT_EQ(result.succeeded, nodes - 1);
  EXPECT_EQ(wait(0), contract::kExitOk) << log(0);
  const auto table = nlohmann::json::parse(slurp(dir / "table"));
  EXPECT_EQ(table["nodes"].size(), 600U);
  EXPECT_EQ(table["nodes"][599]["nodeName"], testing::played_node(599).node_name);
  EXPECT_EQ(table["nodes"][599]["firstRank"], 1 + 598 * 8);
  EXPECT_EQ(table["worldSize"], 1 + 599 * 8);
}

TEST_F(LargeGang, StartsEvenIfNoMemberPassesTheTableOn) {
  launch_first("exit 0");
  auto deaf = settings();
  deaf.passes_table_on = false;
  const auto result = testing::PlayedGang(deaf).run(seconds(50));
  EXPECT_EQ(result.tables, nodes - 1) << log(0);
  EXPECT_EQ(result.from_server, nodes - 1);
  EXPECT_EQ(result.succeeded, nodes - 1);
  EXPECT_EQ(wait(0), contract::kExitOk) << log(0);
}

TEST_F(LargeGang, OfMoreMembersThanFilesMayBeOpenIsRefusedByName) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  nodes = 100'000;
  if (limit.rlim_max > 100'000) GTEST_SKIP() << "this machine lets a process open enough files";
  launch(0, "exit 0");
  EXPECT_EQ(wait(0), contract::kExitBadContract);
  EXPECT_NE(message(0)["message"].get<std::string>().find("hard limit of open files"),
            std::string::npos)
      << message(0);
}

TEST_F(LargeGang, LeavesTheLimitOfOpenFilesOfItsRanksAsItWas) {
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  rlimit low = before;
  low.rlim_cur = 300;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
  launch_first("ulimit -n > $DIR/limit");
  ::setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_EQ(testing::PlayedGang(settings()).run(seconds(50)).succeeded, nodes - 1) << log(0);
  EXPECT_EQ(wait(0), contract::kExitOk) << log(0);
  EXPECT_EQ(slurp(dir / "limit"), "300\n");
}

}  // namespace
}  // namespace paceline::launcher
