// SPDX-License-Identifier: Apache-2.0
#include "common/telemetry/collector.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <filesystem>
#include <memory>
#include <tuple>
#include <vector>

#include "common/telemetry/metrics/text_sink.hpp"
#include "common/telemetry/ring_server.hpp"
#include "testing/ring_fixture.hpp"
#include "tests/unit/telemetry/hostile_peer.hpp"

namespace paceline::telemetry {
namespace {

using test::ring_offer;
using test::step;
using test::TestRing;

struct CollectorTest : ::testing::Test {
  CollectorTest() { collector.begin_attempt(0, 1, 2, 2); }

  ManualClock clock;
  Collector collector{{"ns", "job", "worker", "node-a"}, clock};
};

TEST_F(CollectorTest, RefusesRanksThatDoNotLiveHereAndOtherAttempts) {
  TestRing ring;
  EXPECT_FALSE(collector.add(ring_offer(1), ring.fd()).has_value());
  EXPECT_FALSE(collector.add(ring_offer(4), ring.fd()).has_value());
  EXPECT_FALSE(collector.add(ring_offer(-1), ring.fd()).has_value());
  EXPECT_FALSE(collector.add(ring_offer(2, 1), ring.fd()).has_value());
  EXPECT_EQ(collector.refused(), 4U);
  EXPECT_TRUE(collector.add(ring_offer(2), ring.fd()).has_value());
}

TEST_F(CollectorTest, HostTimesOfAGpuAreKnownByTheRing) {
  for (const auto& [kind, capabilities, expected] :
       {std::tuple{PACELINE_DEVICE_CPU, PACELINE_CAPABILITY_HOST_MARKS, 0},
        std::tuple{PACELINE_DEVICE_CUDA, PACELINE_CAPABILITY_HOST_MARKS, 1},
        std::tuple{PACELINE_DEVICE_CUDA, PACELINE_CAPABILITY_NCCL_PROFILER, 1}}) {
    TestRing ring;
    ring.header().device_kind = kind;
    ring.header().capabilities = capabilities;
    const auto key = collector.add(ring_offer(2), ring.fd());
    EXPECT_EQ(collector.summaries().front().host_times_of_gpu, expected);
    collector.remove(*key);
  }
}

TEST_F(CollectorTest, ADeviceThatStartsAfterTheRingWasTakenIsSeen) {
  TestRing ring;
  ring.header().device_kind = PACELINE_DEVICE_CPU;
  ring.header().capabilities = PACELINE_CAPABILITY_HOST_MARKS;
  ASSERT_TRUE(collector.add(ring_offer(2), ring.fd()).has_value());
  ring.publish(step(1));
  collector.poll();
  EXPECT_EQ(collector.summaries().front().steps, 1U);
  ring.header().device_kind = PACELINE_DEVICE_CUDA;
  ring.header().capabilities |= PACELINE_CAPABILITY_DEVICE_EVENTS;
  auto device = step(2);
  device.kind = PACELINE_KIND_AMENDMENT;
  device.valid = PACELINE_VALID_DEVICE_NS | PACELINE_VALID_DEVICE_WINDOW_NS;
  device.device_ns[PACELINE_PHASE_FORWARD] = device.device_window_ns = 9'000'000;
  device.source[PACELINE_PHASE_FORWARD] = PACELINE_SOURCE_EVENT << 4U;
  ring.publish(step(2));
  collector.poll();
  ring.publish(device);
  collector.poll();
  EXPECT_EQ(collector.summaries().front().steps, 1U) << "the second waits";
  EXPECT_EQ(collector.summaries().front().host_times_of_gpu, 1);
  collector.end();
  const RankSummary summary = collector.summaries().front();
  EXPECT_EQ(summary.steps, 2U);
  EXPECT_NEAR(summary.device_window[PACELINE_PHASE_FORWARD], 0.009, 1e-9);
  EXPECT_EQ(summary.host_times_of_gpu, 0);
  TextSink sink;
  collector.export_metrics(sink);
  EXPECT_NE(sink.text().find("phase=\"forward\",clock=\"device\"} 0.009"), std::string::npos);
  EXPECT_EQ(sink.text().find("phase=\"backward\",clock=\"device\""), std::string::npos)
      << "what was not measured is absent";
  EXPECT_NE(sink.text().find("paceline_dropped_records_total"), std::string::npos);
}

TEST_F(CollectorTest, ADevicePartitionThatDoesNotAddUpIsDropped) {
  TestRing ring;
  ring.header().capabilities = PACELINE_CAPABILITY_DEVICE_EVENTS;
  ASSERT_TRUE(collector.add(ring_offer(2), ring.fd()).has_value());
  auto device = step(1);
  device.kind = PACELINE_KIND_AMENDMENT;
  device.valid = PACELINE_VALID_DEVICE_NS | PACELINE_VALID_DEVICE_WINDOW_NS;
  device.device_ns[PACELINE_PHASE_FORWARD] = 9'000'000;
  device.device_window_ns = 90'000'000;
  ring.publish(step(1));
  ring.publish(device);
  collector.poll();
  collector.end();
  EXPECT_EQ(sum(collector.summaries().front().device_window), 0);
}

TEST_F(CollectorTest, TheSameRingOfferedAgainIsNotCountedTwice) {
  TestRing ring;
  ring.publish(step(1));
  const auto first = collector.add(ring_offer(2), ring.fd());
  collector.poll();
  const auto again = collector.add(ring_offer(2), ring.fd());
  collector.poll();
  EXPECT_EQ(collector.summaries().front().steps, 1U);
  collector.remove(*first);  // the end of the old connection must not remove the ring
  ring.publish(step(2));
  collector.poll();
  EXPECT_EQ(collector.summaries().front().steps, 2U);
  collector.remove(*again);
}

TEST_F(CollectorTest, ReadsARingOutWhenItsRankIsGoneOrTheAttemptIsOver) {
  TestRing ring;
  const auto key = collector.add(ring_offer(2), ring.fd());
  ring.publish(step(1));
  collector.remove(*key);
  EXPECT_EQ(collector.summaries().front().steps, 1U);
  TestRing second;
  ASSERT_TRUE(collector.add(ring_offer(2), second.fd()).has_value());
  second.publish(step(1));
  collector.begin_attempt(1, 1, 2, 2);
  EXPECT_EQ(collector.summaries().front().steps, 2U);
  EXPECT_EQ(collector.summaries().front().step, 0U);
}

TEST_F(CollectorTest, BoundsTheRingsOfARank) {
  std::vector<std::unique_ptr<TestRing>> rings;
  int accepted = 0;
  for (int i = 0; i < 20; ++i) {
    rings.push_back(std::make_unique<TestRing>());
    accepted += collector.add(ring_offer(2), rings.back()->fd()).has_value() ? 1 : 0;
  }
  EXPECT_EQ(accepted, 8);
}

TEST_F(CollectorTest, ExportsEveryFamilyWithTrustedLabels) {
  TestRing ring;
  ring.header().world_rank = 99;  // the rank's own claim
  ASSERT_TRUE(collector.add(ring_offer(3), ring.fd()).has_value());
  ring.publish(step(1));
  ring.slot(1).seq = 0;
  ++ring.header().write_index;
  collector.poll();
  TextSink sink;
  collector.export_metrics(sink);
  const std::string labels =
      "{namespace=\"ns\",job=\"job\",role=\"worker\",rank=\"3\",node=\"node-a\",gpu=\"\"";
  EXPECT_NE(sink.text().find("paceline_steps_total" + labels + "} 1\n"), std::string::npos)
      << sink.text();
  EXPECT_NE(sink.text().find("paceline_step_phase_seconds_total" + labels +
                             ",phase=\"forward\",clock=\"host\"} 0.006"),
            std::string::npos);
  EXPECT_NE(sink.text().find("paceline_dropped_records_total" + labels + "} 1\n"),
            std::string::npos);
  EXPECT_EQ(sink.text().find("clock=\"device\""), std::string::npos) << "absent is not zero";
  EXPECT_EQ(sink.text().find("rank=\"99\""), std::string::npos);
}

struct RingServerTest : CollectorTest {
  RingServerTest() { EXPECT_TRUE(server.open(path).has_value()); }

  UniqueFd connect() const {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.string().copy(address.sun_path, sizeof address.sun_path - 1);
    UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    return fd;
  }

  bool closed(const UniqueFd& fd) const {
    char byte = 0;
    return ::recv(fd.get(), &byte, 1, MSG_DONTWAIT) == 0;
  }

  static std::size_t open_files() {
    std::size_t count = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
      ++count;
    return count;
  }

  const std::filesystem::path path = std::filesystem::temp_directory_path() /
                                     ("paceline-ring-" + std::to_string(::getpid()) + ".sock");
  RingServer server{collector};
};

TEST_F(RingServerTest, TakesARingAndReadsItOutWhenTheRankIsGone) {
  TestRing ring;
  UniqueFd rank = connect();
  const auto value = ring_offer(2);
  test::send_with_descriptors(rank.get(), &value, sizeof value, {ring.fd()});
  server.pump();
  EXPECT_FALSE(closed(rank));
  ring.publish(step(1));
  ring.publish(step(2));
  rank.reset();
  server.pump();
  EXPECT_EQ(collector.summaries().front().steps, 2U);
}

TEST_F(RingServerTest, ARankThatEndedBeforeItWasSeenIsStillCounted) {
  TestRing ring;
  ring.publish(step(1));
  {
    const UniqueFd rank = connect();
    const auto value = ring_offer(2);
    test::send_with_descriptors(rank.get(), &value, sizeof value, {ring.fd()});
  }
  server.pump();
  EXPECT_EQ(collector.summaries().front().steps, 1U);
}

TEST_F(RingServerTest, ClosesPeersThatSendAnythingElseAndKeepsNoneOfTheirDescriptors) {
  TestRing ring;
  auto wrong_magic = ring_offer(2);
  wrong_magic.magic = 7;
  const auto good = ring_offer(2);
  const UniqueFd first = connect();
  test::send_with_descriptors(first.get(), &wrong_magic, sizeof wrong_magic, {ring.fd()});
  const UniqueFd second = connect();
  test::send_with_descriptors(second.get(), "x", 1, {ring.fd()});
  const UniqueFd third = connect();
  test::send_with_descriptors(third.get(), &good, sizeof good, {});
  const UniqueFd fourth = connect();
  test::send_with_descriptors(fourth.get(), &good, sizeof good, {ring.fd(), ring.fd(), ring.fd()});
  const UniqueFd fifth = connect();
  test::send_with_descriptors(fifth.get(), &good, sizeof good, {0});
  const std::size_t before = open_files();
  server.pump();
  EXPECT_TRUE(closed(first) && closed(second) && closed(third) && closed(fourth) && closed(fifth));
  EXPECT_TRUE(collector.summaries().empty());
  EXPECT_EQ(open_files(), before);
}

}  // namespace
}  // namespace paceline::telemetry
