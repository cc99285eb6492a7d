// SPDX-License-Identifier: Apache-2.0
// The reflector against a fake cluster that misbehaves.
#include "common/kube/watch/reflector.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "common/kube/api/json_reader.hpp"
#include "common/kube/fake/cluster.hpp"
#include "common/kube/watch/store.hpp"

namespace paceline::kube {
namespace {

using namespace std::chrono_literals;

struct Cached {
  ObjectMeta meta;
};

Result<Cached> project_cached(std::string_view json) {
  const auto object = parse(json);
  if (!object) return std::unexpected(object.error());
  return Cached{read_meta(*object)};
}

std::string filled_config_map(const std::string& name) {
  return R"({"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":")" + name +
         R"("},"data":{"k":"v"}})";
}

class ReflectorTest : public testing::Test {
 protected:
  ReflectorTest() {
    for (const char* name : {"a", "b", "c"}) create(name);
  }
  void create(const std::string& name) {
    const auto made = api->create(kConfigMaps, "n", filled_config_map(name));
    ASSERT_TRUE(made) << to_string(made.error());
  }
  void start() {
    running = std::jthread([this](const std::stop_token& stop) { reflector.run(stop); });
  }
  template <typename Condition>
  static bool eventually(Condition condition) {
    for (int i = 0; i < 2000; ++i) {
      if (condition()) return true;
      std::this_thread::sleep_for(5ms);
    }
    return false;
  }

  SystemClock clock;
  FakeCluster cluster{clock};
  std::shared_ptr<Api> api = make_fake_api(cluster);
  Store<Cached> store{project_cached};
  static ReflectorOptions options(bool stream_lists) {
    return {.ns = "n",
            .page_size = 2,
            .min_watch = 300s,
            .max_watch = 600s,
            .min_backoff = 5ms,
            .max_backoff = 20ms,
            .stream_lists = stream_lists};
  }
  Reflector reflector{*api, kConfigMaps, options(false), store};
  std::jthread running;
};

class StreamingReflectorTest : public ReflectorTest {
 protected:
  void stream() {
    running = std::jthread([this](const std::stop_token& stop) { streaming.run(stop); });
  }
  /// Counts requests for pages; answers requests for WatchList as the test says.
  void refuse_streams(int status, int times) {
    cluster.set_faults(
        [this, status, left = times](const http::Request& request) mutable -> std::optional<Fault> {
          if (request.method == "GET" && request.target.find("watch=true") == std::string::npos)
            ++pages;
          if (request.target.find("sendInitialEvents=true") != std::string::npos && left-- > 0)
            return Fault{.status = status};
          return std::nullopt;
        });
  }
  std::atomic<int> pages{0};
  Reflector streaming{*api, kConfigMaps, options(true), store};
};

TEST_F(StreamingReflectorTest, StateAndWatchComeFromOneRequest) {
  refuse_streams(0, 0);
  stream();
  ASSERT_TRUE(eventually([&] { return store.synced(); }));
  EXPECT_EQ(store.size(), 3U);
  create("d");
  EXPECT_TRUE(eventually([&] { return store.get("n", "d") != nullptr; }));
  EXPECT_EQ(pages, 0);
  EXPECT_EQ(streaming.counts().lists, 1U);
  EXPECT_EQ(streaming.counts().watches, 0U);
}

TEST_F(StreamingReflectorTest, ServerThatDoesNotStreamIsReadInPages) {
  refuse_streams(422, 1000);
  stream();
  ASSERT_TRUE(eventually([&] { return store.synced(); }));
  create("d");
  EXPECT_TRUE(eventually([&] { return store.get("n", "d") != nullptr; }));
  EXPECT_EQ(pages, 2) << "three objects in pages of two";
  EXPECT_EQ(streaming.counts().errors, 0U) << "no error: it is another way";
}

TEST_F(StreamingReflectorTest, TroubleIsNoReasonToGiveUpStreaming) {
  refuse_streams(500, 3);
  stream();
  ASSERT_TRUE(eventually([&] { return store.synced(); }));
  EXPECT_EQ(pages, 0);
  EXPECT_EQ(streaming.counts().errors, 3U);
}

TEST_F(StreamingReflectorTest, ResourceThatIsNotThereIsEmptyUntilItIs) {
  std::atomic<bool> missing{true};
  cluster.set_faults([&](const http::Request&) -> std::optional<Fault> {
    if (missing) return Fault{.status = 404};
    return std::nullopt;
  });
  ReflectorOptions lenient = options(true);
  lenient.absent_is_empty = true;
  Reflector reflecting{*api, kConfigMaps, lenient, store};
  running = std::jthread([&](const std::stop_token& stop) { reflecting.run(stop); });
  ASSERT_TRUE(eventually([&] { return store.synced(); }));
  EXPECT_EQ(store.size(), 0U);
  missing = false;
  EXPECT_TRUE(eventually([&] { return store.size() == 3; }));
  running.request_stop();
  running.join();
}

/// Each list breaks after its first object.
class CutLists final : public Api {
 public:
  explicit CutLists(Api& inner) : inner_(inner) {}
  using Answer = Result<std::string>;
  Answer get(const Resource& r, const std::string& ns, const std::string& name,
             const std::stop_token& stop) override {
    return inner_.get(r, ns, name, stop);
  }
  Answer list(const Resource& r, const std::string& ns, const ListOptions& o,
              const std::stop_token& stop) override {
    return inner_.list(r, ns, o, stop);
  }
  Answer create(const Resource& r, const std::string& ns, const std::string& body,
                const WriteOptions& o, const std::stop_token& stop) override {
    return inner_.create(r, ns, body, o, stop);
  }
  Answer update(const Resource& r, const std::string& ns, const std::string& name,
                const std::string& body, const WriteOptions& o,
                const std::stop_token& stop) override {
    return inner_.update(r, ns, name, body, o, stop);
  }
  Answer patch(const Resource& r, const std::string& ns, const std::string& name,
               const std::string& body, const PatchOptions& o,
               const std::stop_token& stop) override {
    return inner_.patch(r, ns, name, body, o, stop);
  }
  Answer remove(const Resource& r, const std::string& ns, const std::string& name,
                const DeleteOptions& o, const std::stop_token& stop) override {
    return inner_.remove(r, ns, name, o, stop);
  }
  Status watch(const Resource& r, const std::string& ns, const WatchOptions& o,
               const WatchHandler& handler, const std::stop_token& stop) override {
    const auto first = [&](const WatchEvent& event) {
      (void)handler(event);
      return false;
    };
    (void)inner_.watch(r, ns, o, first, stop);
    return fail(Code::kUnavailable, Origin::kHttp, "cut");
  }
  Answer get_raw(const std::string& path, const std::stop_token& stop) override {
    return inner_.get_raw(path, stop);
  }

 private:
  Api& inner_;
};

TEST_F(StreamingReflectorTest, ListsThatBreakHalfwayComeEverMoreSlowly) {
  CutLists cut(*api);
  ReflectorOptions slow = options(true);
  slow.min_backoff = 50ms;
  slow.max_backoff = 10s;
  Reflector cut_off{cut, kConfigMaps, slow, store};
  const auto began = std::chrono::steady_clock::now();
  running = std::jthread([&](const std::stop_token& stop) { cut_off.run(stop); });
  ASSERT_TRUE(eventually([&] { return cut_off.counts().lists >= 5; }));
  // At least half of 50, 100, 200 and 400 ms.
  EXPECT_GE(std::chrono::steady_clock::now() - began, 375ms);
  EXPECT_FALSE(store.synced());
  running.request_stop();
  running.join();
}

TEST_F(StreamingReflectorTest, AMissingResourceKeepsOthersWaiting) {
  cluster.set_faults(
      [](const http::Request&) -> std::optional<Fault> { return Fault{.status = 404}; });
  stream();
  ASSERT_TRUE(eventually([&] { return streaming.counts().errors >= 2; }));
  EXPECT_FALSE(store.synced());
}

TEST_F(StreamingReflectorTest, GoneStreamsTheStateAgain) {
  std::atomic<int> refusals{2};
  cluster.set_faults([&](const http::Request& request) -> std::optional<Fault> {
    if (request.method == "GET" && request.target.find("watch=true") == std::string::npos) ++pages;
    const bool resumes = request.target.find("watch=true") != std::string::npos &&
                         request.target.find("sendInitialEvents") == std::string::npos;
    if (resumes && refusals-- > 0) return Fault{.status = 410};
    return std::nullopt;
  });
  ReflectorOptions brief = options(true);
  // the server ends the initial watch, and the next watch follows
  brief.min_watch = brief.max_watch = 1s;
  Reflector twice{*api, kConfigMaps, brief, store};
  running = std::jthread([&](const std::stop_token& stop) { twice.run(stop); });
  ASSERT_TRUE(eventually([&] { return twice.counts().lists >= 3; }));
  create("d");
  EXPECT_TRUE(eventually([&] { return store.get("n", "d") != nullptr; }));
  EXPECT_EQ(store.size(), 4U);
  EXPECT_EQ(pages, 0);
  running.request_stop();
  running.join();
}

TEST_F(ReflectorTest, CompactedVersionListsAgainAndDropsWhatWentMeanwhile) {
  std::atomic<bool> cut{false};
  cluster.set_faults([&](const http::Request& request) -> std::optional<Fault> {
    if (cut && request.method == "GET" && request.target.find("watch=true") != std::string::npos)
      return Fault{.status = 500};
    return std::nullopt;
  });
  start();
  ASSERT_TRUE(eventually([&] { return store.size() == 3; }));
  // The history no longer covers this gap: only a list shows that "a" was deleted.
  ASSERT_TRUE(api->remove(kConfigMaps, "n", "a"));
  create("d");
  cluster.compact();
  EXPECT_TRUE(eventually([&] { return !store.get("n", "a") && store.get("n", "d"); }));
}

TEST_F(ReflectorTest, WatchThatIsRefusedAsGoneListsAgain) {
  std::atomic<int> refusals{2};
  cluster.set_faults([&](const http::Request& request) -> std::optional<Fault> {
    if (request.target.find("watch=true") != std::string::npos && refusals-- > 0)
      return Fault{.status = 410};
    return std::nullopt;
  });
  start();
  EXPECT_TRUE(eventually([&] { return reflector.counts().lists >= 3; }));
  create("d");
  EXPECT_TRUE(eventually([&] { return store.get("n", "d") != nullptr; }));
}

TEST_F(ReflectorTest, TooManyRequestsResumesWithoutAList) {
  std::atomic<int> refusals{3};
  cluster.set_faults([&](const http::Request& request) -> std::optional<Fault> {
    if (request.target.find("watch=true") != std::string::npos && refusals-- > 0)
      return Fault{.status = 429, .retry_after_seconds = 0};
    return std::nullopt;
  });
  start();
  ASSERT_TRUE(eventually([&] { return store.synced(); }));
  create("d");
  EXPECT_TRUE(eventually([&] { return store.get("n", "d") != nullptr; }));
  EXPECT_EQ(reflector.counts().lists, 1U);
  EXPECT_GE(reflector.counts().errors, 3U);
}

TEST_F(ReflectorTest, ContinueTokenThatExpiredBeginsTheListAnew) {
  std::atomic<int> refusals{1};
  cluster.set_faults([&](const http::Request& request) -> std::optional<Fault> {
    if (request.target.find("continue=") != std::string::npos && refusals-- > 0)
      return Fault{.status = 410};
    return std::nullopt;
  });
  start();
  ASSERT_TRUE(eventually([&] { return store.synced(); }));
  EXPECT_EQ(store.size(), 3U);
  EXPECT_EQ(reflector.counts().lists, 2U);
}

TEST_F(ReflectorTest, StopEndsItPromptlyWhereverItIs) {
  start();
  ASSERT_TRUE(eventually([&] { return store.synced(); }));
  const auto began = std::chrono::steady_clock::now();
  running.request_stop();
  running.join();
  EXPECT_LT(std::chrono::steady_clock::now() - began, 30s);
}

}  // namespace
}  // namespace paceline::kube
