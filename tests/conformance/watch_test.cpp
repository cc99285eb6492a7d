// SPDX-License-Identifier: Apache-2.0
// Watches, and a reflector that keeps a store equal to the server.
#include <algorithm>
#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

#include "common/kube/api/json_reader.hpp"
#include "common/kube/api/object_version.hpp"
#include "common/kube/watch/reflector.hpp"
#include "common/kube/watch/store.hpp"
#include "tests/conformance/target.hpp"

namespace paceline::kube {
namespace {

class Watches : public Conformance {
 protected:
  struct Seen {
    WatchEventType type;
    std::string name;
  };

  /// Watches from a version until `count` events (bookmarks apart) came.
  std::vector<Seen> events(const std::string& version, std::size_t count,
                           const std::string& selector = {}) {
    std::vector<Seen> seen;
    const auto status = api_->watch(kConfigMaps, ns_,
                                    {.label_selector = selector,
                                     .resource_version = version,
                                     .timeout = std::chrono::minutes(1)},
                                    [&](const WatchEvent& event) {
                                      if (event.type == WatchEventType::kBookmark) return true;
                                      const Document object = Document::parse(event.object);
                                      if (object["metadata"]["name"] != "kube-root-ca.crt")
                                        seen.push_back({event.type, object["metadata"]["name"]});
                                      return seen.size() < count;
                                    });
    EXPECT_TRUE(status) << to_string(status.error());
    return seen;
  }
};

TEST_P(Watches, ReplaysInOrderFromAVersion) {
  const Document first = create(kConfigMaps, config_map("a"));
  create(kConfigMaps, config_map("b"));
  ASSERT_TRUE(api_->patch(kConfigMaps, ns_, "b", R"({"data":{"key":"2"}})"));
  ASSERT_TRUE(api_->remove(kConfigMaps, ns_, "a"));
  const auto seen = events(version_text(first), 3);
  ASSERT_EQ(seen.size(), 3U);
  EXPECT_EQ(seen[0].type, WatchEventType::kAdded);
  EXPECT_EQ(seen[0].name, "b");
  EXPECT_EQ(seen[1].type, WatchEventType::kModified);
  EXPECT_EQ(seen[2].type, WatchEventType::kDeleted);
  EXPECT_EQ(seen[2].name, "a");
}

TEST_P(Watches, DeliversWhatHappensMeanwhile) {
  const Document first = create(kConfigMaps, config_map("a"));
  const std::jthread later([this] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    create(kConfigMaps, config_map("b"));
  });
  const auto seen = events(version_text(first), 1);
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_EQ(seen[0].name, "b");
}

TEST_P(Watches, ObjectThatLeavesTheSelectorIsDeleted) {
  const Document first = create(kConfigMaps, config_map("a"));
  ASSERT_TRUE(api_->patch(kConfigMaps, ns_, "a", R"({"metadata":{"labels":{"app":"other"}}})"));
  const auto seen = events(version_text(first), 1, "app=a");
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_EQ(seen[0].type, WatchEventType::kDeleted);
}

TEST_P(Watches, EndsAtItsTimeOutAndWhenStopped) {
  const Document first = create(kConfigMaps, config_map("a"));
  const WatchOptions options{.resource_version = version_text(first),
                             .timeout = std::chrono::seconds(1)};
  EXPECT_TRUE(api_->watch(kConfigMaps, ns_, options, [](const WatchEvent&) { return true; }));
  std::stop_source stop;
  const std::jthread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    stop.request_stop();
  });
  const auto began = std::chrono::steady_clock::now();
  const auto stopped = api_->watch(
      kConfigMaps, ns_, {.resource_version = version_text(first)},
      [](const WatchEvent&) { return true; }, stop.get_token());
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, Code::kCancelled);
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(60));
}

TEST_P(Watches, PresentStateCanBeginAWatchAndIsMarkedWhenComplete) {
  create(kConfigMaps, config_map("a"));
  const std::uint64_t before = version_of(create(kConfigMaps, config_map("b")).dump());
  std::vector<std::string> present;
  std::vector<std::string> later;
  std::uint64_t complete = 0;
  const auto status = api_->watch(
      kConfigMaps, ns_,
      {.label_selector = "app", .timeout = std::chrono::minutes(1), .initial_events = true},
      [&](const WatchEvent& event) {
        const Document object = Document::parse(event.object);
        if (event.type == WatchEventType::kBookmark) {
          if (!ends_initial_events(event.object)) return true;
          complete = version_of(event.object);
          create(kConfigMaps, config_map("c"));
          return true;
        }
        (complete == 0 ? present : later).push_back(object["metadata"]["name"]);
        return later.empty();
      });
  ASSERT_TRUE(status) << to_string(status.error());
  std::ranges::sort(present);
  EXPECT_EQ(present, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(later, std::vector<std::string>{"c"});
  EXPECT_GE(complete, before);
}

struct Projected {
  ObjectMeta meta;
  std::string value;
};

Result<Projected> project(std::string_view json) {
  const auto object = parse(json);
  if (!object) return std::unexpected(object.error());
  return Projected{read_meta(*object), std::string(text(at(*object, "data", "key")))};
}

template <typename Condition>
bool eventually(Condition condition) {
  for (int i = 0; i < 6000; ++i) {  // a minute
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

TEST_P(Watches, ReflectorKeepsAStoreEqual) {
  for (int i = 0; i < 5; ++i) create(kConfigMaps, config_map("m" + std::to_string(i)));
  Store<Projected> store(project);
  Reflector reflector(*api_, kConfigMaps,
                      {.ns = ns_,
                       .label_selector = "app",
                       .page_size = 2,
                       .min_watch = std::chrono::seconds(1),
                       .max_watch = std::chrono::seconds(2)},
                      store);
  const std::jthread running([&](const std::stop_token& stop) { reflector.run(stop); });
  ASSERT_TRUE(eventually([&] { return store.synced(); }));
  // Of more than one, the first ones were not complete in time.
  const auto lists = reflector.counts().lists.load();
  EXPECT_EQ(store.size(), 5U);
  ASSERT_TRUE(api_->patch(kConfigMaps, ns_, "m1", R"({"data":{"key":"changed"}})"));
  ASSERT_TRUE(api_->remove(kConfigMaps, ns_, "m2"));
  create(kConfigMaps, config_map("m9"));
  EXPECT_TRUE(eventually([&] {
    const auto changed = store.get(ns_, "m1");
    return changed && changed->value == "changed" && !store.get(ns_, "m2") && store.get(ns_, "m9");
  }));
  // Watches end after a second or two here, and the next one goes on where the last one ended,
  // without a list.
  EXPECT_TRUE(eventually([&] { return reflector.counts().watches > 1; }));
  EXPECT_EQ(reflector.counts().lists, lists);
}

INSTANTIATE_TEST_SUITE_P(Api, Watches,
                         testing::Values("memory", "socket_beast", "socket_cpprest", "real_beast",
                                         "real_cpprest"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace paceline::kube
