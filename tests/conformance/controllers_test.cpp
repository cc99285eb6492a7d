// SPDX-License-Identifier: Apache-2.0
// What stands on the client: leader election and events.
#include "common/kube/control/event_recorder.hpp"
#include "common/kube/control/leader_election.hpp"
#include "tests/conformance/target.hpp"

namespace paceline::kube {
namespace {

class Controllers : public Conformance {};

TEST_P(Controllers, OneOfTwoLeadsUntilItReleases) {
  LeaderElection first(*api_, clock_, {.ns = ns_, .name = "lease", .identity = "first"});
  LeaderElection second(*api_, clock_, {.ns = ns_, .name = "lease", .identity = "second"});
  EXPECT_TRUE(first.step());
  EXPECT_FALSE(second.step());
  EXPECT_TRUE(first.step());
  first.release();
  EXPECT_TRUE(second.step());
  EXPECT_FALSE(first.step());
}

TEST_P(Controllers, RepeatedEventBecomesASeries) {
  const Document object = create(kConfigMaps, config_map("a"));
  EventRecorder recorder(*api_, clock_, "paceline.dev/operator", "conformance");
  for (int i = 0; i < 3; ++i) {
    recorder.emit({{"v1", "ConfigMap", ns_, "a", object["metadata"]["uid"]},
                   false,
                   "Queued",
                   "Plan",
                   "waits for room"});
  }
  recorder.flush();
  const auto list = api_->list(kEvents, ns_, {});
  ASSERT_TRUE(list) << to_string(list.error());
  const Document events = Document::parse(*list);
  ASSERT_EQ(events["items"].size(), 1U);
  EXPECT_EQ(events["items"][0]["reason"], "Queued");
  EXPECT_EQ(events["items"][0]["series"]["count"], 3);
}

INSTANTIATE_TEST_SUITE_P(Api, Controllers, testing::Values("memory", "socket_beast", "real_beast"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace paceline::kube
