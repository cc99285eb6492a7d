// SPDX-License-Identifier: Apache-2.0
#include "common/kube/watch/store.hpp"

#include <gtest/gtest.h>

#include <stdexcept>
#include <vector>

#include "common/kube/api/json_reader.hpp"

namespace paceline::kube {
namespace {

struct Item {
  ObjectMeta meta;
  std::string owner;
};

Result<Item> project(std::string_view json) {
  const auto object = parse(json);
  if (!object) return std::unexpected(object.error());
  return Item{read_meta(*object), std::string(text(at(*object, "owner")))};
}

std::string json(const std::string& name, int version, const std::string& owner = "x",
                 const std::string& uid = "u") {
  return R"({"metadata":{"namespace":"n","name":")" + name + R"(","uid":")" + uid +
         R"(","resourceVersion":")" + std::to_string(version) + R"("},"owner":")" + owner + "\"}";
}

class StoreTest : public testing::Test {
 protected:
  StoreTest() {
    store.subscribe([this](const Store<Item>::Ptr& before, const Store<Item>::Ptr& after) {
      log.push_back((before ? before->meta.name : "-") + ">" + (after ? after->meta.name : "-"));
    });
  }
  void replace(const std::vector<std::string>& objects, std::uint64_t version) {
    store.begin_replace();
    for (const auto& object : objects) ASSERT_TRUE(store.add(object));
    store.end_replace(version);
  }
  Store<Item> store{project, [](const Item& item) { return item.owner; }};
  std::vector<std::string> log;
};

TEST_F(StoreTest, ReplaceIsAtomicAndSynthesisesDeletes) {
  EXPECT_FALSE(store.synced());
  replace({json("a", 1), json("b", 2)}, 5);
  EXPECT_TRUE(store.synced());
  EXPECT_EQ(store.resource_version(), 5U);
  log.clear();
  store.begin_replace();
  ASSERT_TRUE(store.add(json("b", 3)));
  EXPECT_TRUE(store.get("n", "a")) << "the old set is seen until the new one is complete";
  store.end_replace(9);
  EXPECT_FALSE(store.get("n", "a"));
  std::ranges::sort(log);
  EXPECT_EQ(log, (std::vector<std::string>{"a>-", "b>b"}));
}

TEST_F(StoreTest, ReplaceByTheSameTellsNobody) {
  replace({json("a", 1)}, 5);
  log.clear();
  replace({json("a", 1)}, 6);
  EXPECT_TRUE(log.empty());
  replace({json("a", 1, "x", "another-life")}, 7);
  EXPECT_EQ(log.size(), 1U);
}

TEST_F(StoreTest, AbortedReplaceChangesNothing) {
  replace({json("a", 1)}, 5);
  store.begin_replace();
  ASSERT_TRUE(store.add(json("b", 2)));
  store.abort_replace();
  EXPECT_TRUE(store.get("n", "a"));
  EXPECT_FALSE(store.get("n", "b"));
  EXPECT_EQ(store.resource_version(), 5U);
}

TEST_F(StoreTest, IndexFollowsChanges) {
  replace({json("a", 1, "x"), json("b", 2, "x")}, 5);
  EXPECT_EQ(store.by_index("x").size(), 2U);
  ASSERT_TRUE(store.apply({WatchEventType::kModified, json("a", 6, "y")}));
  EXPECT_EQ(store.by_index("x").size(), 1U);
  EXPECT_EQ(store.by_index("y").size(), 1U);
  ASSERT_TRUE(store.apply({WatchEventType::kDeleted, json("a", 7, "y")}));
  EXPECT_TRUE(store.by_index("y").empty());
  EXPECT_EQ(store.resource_version(), 7U);
}

TEST_F(StoreTest, BookmarkMovesTheVersionOnly) {
  replace({json("a", 1)}, 5);
  log.clear();
  ASSERT_TRUE(store.apply({WatchEventType::kBookmark, R"({"metadata":{"resourceVersion":"50"}})"}));
  EXPECT_EQ(store.resource_version(), 50U);
  EXPECT_TRUE(log.empty());
}

TEST_F(StoreTest, ObjectThatCannotBeReadLeavesTheOldOne) {
  replace({json("a", 1)}, 5);
  EXPECT_FALSE(store.apply({WatchEventType::kModified, "{broken"}));
  EXPECT_EQ(store.failed_projections(), 1U);
  EXPECT_TRUE(store.get("n", "a"));
}

TEST_F(StoreTest, AnExceptionAboutOneObjectHidesNoOther) {
  Store<Item> picky([](std::string_view object) -> Result<Item> {
    auto item = project(object);
    if (item && item->meta.name == "bad") throw std::runtime_error("simulated");
    return item;
  });
  picky.begin_replace();
  EXPECT_FALSE(picky.add(json("bad", 1)));
  EXPECT_TRUE(picky.add(json("good", 2)));
  picky.end_replace(5);
  EXPECT_EQ(picky.failed_projections(), 1U);
  EXPECT_TRUE(picky.get("n", "good"));
}

}  // namespace
}  // namespace paceline::kube
