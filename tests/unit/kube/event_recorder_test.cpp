// SPDX-License-Identifier: Apache-2.0
#include "common/kube/control/event_recorder.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "common/kube/fake/cluster.hpp"

namespace paceline::kube {
namespace {

using namespace std::chrono_literals;

class EventRecorderTest : public testing::Test {
 protected:
  void emit(const std::string& reason) {
    recorder.emit({{"v1", "ConfigMap", "n", "a", "uid"}, false, reason, "Plan", "waits for room"});
  }

  /// The server answers writes of this method so, or with nothing, until it is healed.
  void break_with(std::string method, const Fault& fault) {
    cluster.set_faults([method = std::move(method), fault](const http::Request& request) {
      return request.method == method ? std::optional(fault) : std::nullopt;
    });
  }

  void heal() { cluster.set_faults({}); }

  nlohmann::json events() {
    const auto list = api->list(kEvents, "n", {});
    return list ? nlohmann::json::parse(*list)["items"] : nlohmann::json();
  }

  ManualClock clock;
  FakeCluster cluster{clock};
  std::shared_ptr<Api> api = make_fake_api(cluster);
  EventRecorder recorder{*api, clock, "paceline.dev/operator", "test"};
};

TEST_F(EventRecorderTest, EventsWaitInOrderWhileTheServerFails) {
  break_with("POST", {.status = 500});
  emit("Placed");
  recorder.flush();
  emit("Running");
  recorder.flush();
  ASSERT_EQ(events().size(), 0U);
  heal();
  clock.advance(1min);
  recorder.flush();
  const auto found = events();
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0]["reason"], "Placed");
  EXPECT_EQ(found[1]["reason"], "Running");
  EXPECT_LT(found[0]["eventTime"], "2026-01-01T00:00:01") << "when it happened, not when written";
  EXPECT_EQ(recorder.dropped(), 0U);
}

TEST_F(EventRecorderTest, AnEventWhoseAnswerWasLostIsNotWrittenTwice) {
  break_with("POST", {.drop_after_apply = true});
  emit("Placed");
  recorder.flush();
  heal();
  recorder.flush();
  EXPECT_EQ(events().size(), 1U);
  EXPECT_EQ(recorder.dropped(), 0U);
}

TEST_F(EventRecorderTest, RepetitionsOfAnEventThatWaitsAreCounted) {
  break_with("POST", {.status = 503});
  emit("Queued");
  recorder.flush();
  clock.advance(7min);  // longer than a series lasts
  emit("Queued");
  recorder.flush();
  heal();
  recorder.flush();
  const auto found = events();
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0]["series"]["count"], 2);
}

TEST_F(EventRecorderTest, AnotherReasonIsAnotherEventAndAnotherNoteIsNone) {
  const auto restart = [&](const char* reason, const char* note) {
    recorder.emit({{"v1", "ConfigMap", "n", "a", "uid"}, true, reason, "Restarting", note});
  };
  restart("RankFailed", "rank 3 exited with 1");
  restart("NodeLost", "node n1 is lost");
  restart("RankFailed", "rank 5 exited with 1");
  recorder.flush();
  const auto found = events();
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0]["reason"], "RankFailed");
  EXPECT_EQ(found[0]["series"]["count"], 2);
  EXPECT_EQ(found[1]["reason"], "NodeLost");
  EXPECT_EQ(found[1]["note"], "node n1 is lost");
}

TEST_F(EventRecorderTest, ACountThatCouldNotBeWrittenIsWrittenLater) {
  emit("Queued");
  recorder.flush();
  emit("Queued");
  break_with("PATCH", {.status = 500});
  recorder.flush();
  heal();
  recorder.flush();
  EXPECT_EQ(events()[0]["series"]["count"], 2);
}

TEST_F(EventRecorderTest, WhatTheServerRefusesIsDroppedAndCounted) {
  break_with("POST", {.status = 403});
  emit("Placed");
  recorder.flush();
  heal();
  emit("Running");
  recorder.flush();
  const auto found = events();
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0]["reason"], "Running");
  EXPECT_EQ(recorder.dropped(), 1U);
}

TEST_F(EventRecorderTest, NoEventWaitsForEver) {
  break_with("POST", {.status = 500});
  emit("Placed");
  recorder.flush();
  clock.advance(11min);
  recorder.flush();
  EXPECT_EQ(recorder.dropped(), 1U);
}

}  // namespace
}  // namespace paceline::kube
