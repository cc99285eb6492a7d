// SPDX-License-Identifier: Apache-2.0
#include "launcher/horovod_store.hpp"

#include <gtest/gtest.h>

namespace paceline::launcher {
namespace {

using summary::HttpAnswer;

HttpAnswer ask(HorovodKeys& keys, const std::string& method, const std::string& path,
               const std::string& body = "") {
  return keys.answer({method, path, "", body});
}

TEST(HorovodKeys, KeepsBytesByScopeAndKey) {
  HorovodKeys keys({});
  EXPECT_EQ(ask(keys, "GET", "/global/0").status, 404);
  const std::string address("a\0b\r\n", 5);
  EXPECT_EQ(ask(keys, "PUT", "/global/0", address).status, 200);
  EXPECT_EQ(ask(keys, "GET", "/global/0").status, 200);
  EXPECT_EQ(ask(keys, "GET", "/global/0").body, address);
  EXPECT_EQ(ask(keys, "GET", "/local_a/0").status, 404);
  ask(keys, "PUT", "/global/0", "new");
  EXPECT_EQ(ask(keys, "GET", "/global/0").body, "new");
}

TEST(HorovodKeys, AScopeOfTheJobIsEmptiedAfterItsLastRank) {
  HorovodKeys keys({{"global", 2}});
  ask(keys, "PUT", "/global/0", "x");
  ask(keys, "DELETE", "/global/0");
  EXPECT_EQ(ask(keys, "GET", "/global/0").status, 200) << "rank 1 may still read it";
  ask(keys, "DELETE", "/global/1");
  EXPECT_EQ(ask(keys, "GET", "/global/0").status, 404);
  ask(keys, "PUT", "/global/0", "of a second init");
  ask(keys, "DELETE", "/global/1");
  EXPECT_EQ(ask(keys, "GET", "/global/0").status, 200) << "the count begins again";
}

TEST(HorovodKeys, AKeyOfAnotherScopeIsDeletedAtOnce) {
  HorovodKeys keys({{"global", 2}});
  ask(keys, "PUT", "/set/a", "x");
  ask(keys, "PUT", "/set/b", "y");
  EXPECT_EQ(ask(keys, "DELETE", "/set/a").status, 200);
  EXPECT_EQ(ask(keys, "DELETE", "/set/none").status, 200);
  EXPECT_EQ(ask(keys, "GET", "/set/a").status, 404);
  EXPECT_EQ(ask(keys, "GET", "/set/b").body, "y");
}

TEST(HorovodKeys, RefusesWhatItDoesNotServe) {
  HorovodKeys keys({});
  for (const char* path : {"/", "", "/global", "global/0"})
    EXPECT_EQ(ask(keys, "GET", path).status, 400) << path;
  EXPECT_EQ(ask(keys, "POST", "/a/b").status, 405);
}

TEST(HorovodKeys, IsBounded) {
  HorovodKeys keys({}, 1600);
  EXPECT_EQ(ask(keys, "PUT", "/a/b", std::string(HorovodKeys::kMostValue + 1, 'x')).status, 413);
  const std::string value(100, 'x');
  int taken = 0;
  while (ask(keys, "PUT", "/a/" + std::to_string(taken), value).status == 200) ++taken;
  EXPECT_EQ(taken, 15) << "names count, too";
  ask(keys, "DELETE", "/a/0");
  EXPECT_EQ(ask(keys, "PUT", "/a/0", value).status, 200) << "room comes back";
}

TEST(HorovodKeys, KnowsTheScopesOfAJob) {
  rendezvous::Node boss;
  boss.role = "boss";
  boss.kind = contract::RoleKind::kCoordinator;
  rendezvous::Node worker;
  worker.role = "worker";
  worker.replica_index = 1;
  worker.processes = 2;
  const auto table = rendezvous::make_rank_table(0, 29500, {boss, worker});
  EXPECT_EQ(horovod_scopes(table), (std::map<std::string, int>{{"cross_0", 2},
                                                               {"cross_1", 1},
                                                               {"global", 3},
                                                               {"local_boss-0", 1},
                                                               {"local_worker-1", 2}}));
}

}  // namespace
}  // namespace paceline::launcher
