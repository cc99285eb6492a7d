// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "common/kube/client/fail_point_api.hpp"
#include "common/kube/fake/cluster.hpp"

namespace paceline::kube {
namespace {

std::string config_map(const std::string& name) {
  return R"({"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":")" + name + R"("}})";
}

class FailPoints : public testing::Test {
 protected:
  static void write(Api& api, int count) {
    for (int i = 0; i < count; ++i) {
      (void)api.create(kConfigMaps, "n", config_map("dry"), {.dry_run = true});
      (void)api.create(kConfigMaps, "n", config_map("m" + std::to_string(i)));
      (void)api.get(kConfigMaps, "n", "m0");
    }
  }
  SystemClock clock;
  FakeCluster cluster{clock};
};

TEST_F(FailPoints, ProcessEndsAtTheNamedWrite) {
  const std::string file = testing::TempDir() + "failpoint-" + std::to_string(::getpid());
  const auto writes_done = [&] {
    std::ifstream stream(file);
    int count = 0;
    stream >> count;
    return count;
  };
  EXPECT_EXIT(write(*with_fail_point(make_fake_api(cluster), {3, false, file}), 5),
              testing::ExitedWithCode(kFailPointExit), "");
  EXPECT_EQ(writes_done(), 3);
  EXPECT_EXIT(
      {
        const auto api = with_fail_point(make_fake_api(cluster), {2, true, file});
        write(*api, 5);
      },
      testing::ExitedWithCode(kFailPointExit), "");
  EXPECT_EQ(writes_done(), 2);
  write(*with_fail_point(make_fake_api(cluster), {0, false, file}), 5);
  EXPECT_EQ(writes_done(), 5) << "without a point it only counts";
  std::filesystem::remove(file);
}

TEST_F(FailPoints, UnarmedIsTheApiItself) {
  const auto api = make_fake_api(cluster);
  EXPECT_EQ(with_fail_point(api, {}), api);
}

TEST_F(FailPoints, EnvironmentIsReadOrRefusedByName) {
  ::setenv("PACELINE_FAILPOINT", "12:after", 1);
  const auto point = fail_point_from_environment();
  ASSERT_TRUE(point);
  EXPECT_EQ(point->at, 12U);
  EXPECT_TRUE(point->after);
  for (const char* text : {"12", "0:before", "x:after", "3:later", ":after"}) {
    ::setenv("PACELINE_FAILPOINT", text, 1);
    const auto wrong = fail_point_from_environment();
    ASSERT_FALSE(wrong) << text;
    EXPECT_NE(wrong.error().message.find("PACELINE_FAILPOINT"), std::string::npos);
  }
  ::unsetenv("PACELINE_FAILPOINT");
}

}  // namespace
}  // namespace paceline::kube
