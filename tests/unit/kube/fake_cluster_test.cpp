// SPDX-License-Identifier: Apache-2.0
// What only the fake cluster has: quota, garbage collection, faults, the feed. The conformance
// suite compares everything else with a real server.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "common/kube/api/json_reader.hpp"
#include "common/kube/fake/cluster.hpp"
#include "common/kube/watch/store.hpp"

namespace paceline::kube {
namespace {

using Document = nlohmann::json;

struct Listed {
  ObjectMeta meta;
};

class FakeClusterTest : public testing::Test {
 protected:
  static Document pod(const std::string& name) {
    return {{"apiVersion", "v1"},
            {"kind", "Pod"},
            {"metadata", {{"name", name}}},
            {"spec", {{"containers", Document::array({{{"name", "c"}}})}}}};
  }
  ManualClock clock;
  FakeCluster cluster{clock};
  std::shared_ptr<Api> api = make_fake_api(cluster);
};

TEST_F(FakeClusterTest, QuotaCountsPodsThatAreNotOver) {
  const Document quota = {{"apiVersion", "v1"},
                          {"kind", "ResourceQuota"},
                          {"metadata", {{"name", "q"}}},
                          {"spec", {{"hard", {{"pods", "2"}}}}}};
  ASSERT_TRUE(api->create(kResourceQuotas, "n", quota.dump()));
  ASSERT_TRUE(api->create(kPods, "n", pod("a").dump()));
  ASSERT_TRUE(api->create(kPods, "n", pod("b").dump()));
  const auto refused = api->create(kPods, "n", pod("c").dump());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kForbidden);
  EXPECT_NE(refused.error().message.find("exceeded quota: q"), std::string::npos);
  const auto repeated = api->create(kPods, "n", pod("b").dump());
  ASSERT_FALSE(repeated);
  EXPECT_EQ(repeated.error().code, Code::kForbidden) << "admission comes before storage";
  ASSERT_TRUE(cluster.poke(kPods, "n", "a", R"({"status":{"phase":"Succeeded"}})"));
  EXPECT_TRUE(api->create(kPods, "n", pod("c").dump()));
}

TEST_F(FakeClusterTest, BoundPodTerminatesGracefully) {
  ASSERT_TRUE(api->create(kPods, "n", pod("a").dump()));
  ASSERT_TRUE(cluster.poke(kPods, "n", "a",
                           R"({"spec":{"nodeName":"node"},"status":{"phase":"Running"}})"));
  ASSERT_TRUE(api->remove(kPods, "n", "a"));
  const auto waiting = api->get(kPods, "n", "a");
  ASSERT_TRUE(waiting);
  EXPECT_TRUE(Document::parse(*waiting)["metadata"].contains("deletionTimestamp"));
  DeleteOptions now;
  now.grace_period_seconds = 0;
  ASSERT_TRUE(api->remove(kPods, "n", "a", now));
  EXPECT_EQ(api->get(kPods, "n", "a").error().code, Code::kNotFound);
}

TEST_F(FakeClusterTest, GarbageIsWhatBelongsToALifeThatIsGone) {
  const Document owner = {
      {"apiVersion", "v1"}, {"kind", "ConfigMap"}, {"metadata", {{"name", "owner"}}}};
  const auto made = api->create(kConfigMaps, "n", owner.dump());
  ASSERT_TRUE(made);
  Document owned = pod("a");
  owned["metadata"]["ownerReferences"] =
      Document::array({{{"kind", "ConfigMap"},
                        {"name", "owner"},
                        {"uid", Document::parse(*made)["metadata"]["uid"]}}});
  ASSERT_TRUE(api->create(kPods, "n", owned.dump()));
  EXPECT_EQ(cluster.collect_garbage(), 0U);
  ASSERT_TRUE(api->remove(kConfigMaps, "n", "owner"));
  ASSERT_TRUE(api->create(kConfigMaps, "n", owner.dump())) << "the same name, another life";
  EXPECT_EQ(cluster.collect_garbage(), 1U);
  EXPECT_EQ(api->get(kPods, "n", "a").error().code, Code::kNotFound);
}

TEST_F(FakeClusterTest, LostAnswerWasApplied) {
  cluster.set_faults([](const http::Request&) { return Fault{.drop_after_apply = true}; });
  EXPECT_EQ(api->create(kPods, "n", pod("a").dump()).error().code, Code::kUnavailable);
  cluster.set_faults(nullptr);
  EXPECT_EQ(api->create(kPods, "n", pod("a").dump()).error().code, Code::kAlreadyExists);
  EXPECT_EQ(cluster.counts().creates, 1U);
}

TEST_F(FakeClusterTest, FeedDeliversStepByStepAndRelistsAfterAGap) {
  Store<Listed> store([](std::string_view json) -> Result<Listed> {
    const auto object = parse(json);
    if (!object) return std::unexpected(object.error());
    return Listed{read_meta(*object)};
  });
  FakeFeed feed(cluster, kPods, store);
  ASSERT_TRUE(api->create(kPods, "n", pod("a").dump()));
  feed.relist();
  EXPECT_EQ(store.size(), 1U);
  ASSERT_TRUE(api->create(kPods, "n", pod("b").dump()));
  ASSERT_TRUE(api->create(kPods, "n", pod("c").dump()));
  EXPECT_EQ(feed.pending(), 2U);
  EXPECT_EQ(feed.deliver(1), 1U);
  EXPECT_EQ(store.size(), 2U);
  ASSERT_TRUE(api->remove(kPods, "n", "a"));
  cluster.compact();
  EXPECT_EQ(feed.deliver(10), 1U);
  EXPECT_EQ(store.size(), 2U);
  EXPECT_FALSE(store.get("n", "a"));
  EXPECT_EQ(feed.pending(), 0U);
}

}  // namespace
}  // namespace paceline::kube
