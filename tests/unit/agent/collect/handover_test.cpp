// SPDX-License-Identifier: Apache-2.0
// What happens to records when an agent is killed, when attempts end while no agent runs, or when a
// bound refuses a rank. Each record is counted once or counted as lost, and either the agent or the
// launcher serves each rank.
#include <algorithm>
#include <set>

#include "tests/unit/agent/collect/collect_fixture.hpp"

namespace paceline::agent {
namespace {

using namespace std::chrono_literals;
using telemetry::SlotClient;
using telemetry::test::step;
using telemetry::test::TestRing;

TEST_F(CollectTest, AnAgentThatStartsAnewGoesOnWhereTheLauncherSawTheOldOneEnd) {
  const auto client = launcher("slot-0", "mnist");
  TestRing ring(8);
  client->add(1, ring_offer(0), ring.fd());
  for (int i = 1; i <= 5; ++i) ring.publish(step(static_cast<std::uint64_t>(i)));
  collector_->pump();
  EXPECT_EQ(steps("mnist"), 5);

  collector_.reset();
  client->tend();
  EXPECT_FALSE(client->held()) << "the launcher serves its ranks itself meanwhile";
  for (int i = 6; i <= 8; ++i) ring.publish(step(static_cast<std::uint64_t>(i)));
  start();
  clock_.advance(1s);
  meet(*client);
  EXPECT_TRUE(client->held());
  EXPECT_EQ(steps("mnist"), 3) << "from 0, and the first five not twice";
  EXPECT_EQ(dropped("mnist"), 0);

  collector_.reset();
  client->tend();
  for (int i = 9; i <= 28; ++i) ring.publish(step(static_cast<std::uint64_t>(i)));
  start();
  clock_.advance(1s);
  meet(*client);
  EXPECT_EQ(steps("mnist"), 8) << "what the ring still holds";
  EXPECT_EQ(dropped("mnist"), 12) << "and what it lost meanwhile is counted";
}

TEST_F(CollectTest, WhatAKilledAgentHadNotReadItsSuccessorReads) {
  const auto client = launcher("slot-0", "mnist");
  TestRing ring(8);
  client->add(1, ring_offer(0), ring.fd());
  for (int i = 1; i <= 3; ++i) ring.publish(step(static_cast<std::uint64_t>(i)));
  collector_->pump();
  for (int i = 4; i <= 7; ++i) ring.publish(step(static_cast<std::uint64_t>(i)));
  restart(*client);
  EXPECT_EQ(steps("mnist"), 4) << "those that nobody had read, and the first three not twice";
  EXPECT_EQ(dropped("mnist"), 0);
  // A record that the ring no longer holds is counted as lost.
  for (int i = 8; i <= 20; ++i) ring.publish(step(static_cast<std::uint64_t>(i)));
  restart(*client);
  EXPECT_EQ(steps("mnist"), 8);
  EXPECT_EQ(dropped("mnist"), 5);
  restart(*client);
  EXPECT_EQ(steps("mnist"), 0) << "everything was counted";
  EXPECT_EQ(dropped("mnist"), 0);
}

TEST_F(CollectTest, WordsThatAnAgentLeftUnreadAreSaidToItsSuccessor) {
  const auto client = launcher("slot-0", "mnist");
  TestRing first;
  client->add(1, ring_offer(0), first.fd());
  first.publish(step(1));
  collector_->pump();
  first.publish(step(2));
  client->remove(1);
  client->begin_attempt(1, 0, 0, 1);
  TestRing second;
  client->add(2, ring_offer(0, 1), second.fd());
  second.publish(step(1));
  restart(*client);  // it died before it heard any of that
  EXPECT_EQ(steps("mnist"), 2) << "the end of one attempt and the beginning of the next";
  EXPECT_EQ(dropped("mnist"), 0);
}

TEST_F(CollectTest, RingsOfAttemptsThatEndedWhileNoAgentWasThereAreRead) {
  const auto client = launcher("slot-0", "mnist", 2);
  TestRing first(8);
  client->add(1, ring_offer(0), first.fd());
  first.publish(step(1));
  collector_->pump();
  collector_.reset();
  client->tend();
  for (int i = 2; i <= 11; ++i) first.publish(step(static_cast<std::uint64_t>(i)));
  client->remove(1);
  client->begin_attempt(1, 0, 0, 2);
  TestRing second;
  client->add(2, ring_offer(1, 1), second.fd());
  second.publish(step(1));
  client->begin_attempt(2, 0, 0, 2);
  start();
  clock_.advance(1s);
  meet(*client);
  EXPECT_EQ(steps("mnist", 0), 8);
  EXPECT_EQ(dropped("mnist"), 2) << "what its ring had overwritten";
  EXPECT_EQ(steps("mnist", 1), 1);
  EXPECT_EQ(refused("ring"), 0);
  restart(*client);
  EXPECT_EQ(steps("mnist", 0), -1) << "read out once";
}

TEST_F(CollectTest, RingsThatCouldNotBeKeptAreCountedAsLost) {
  const auto client = launcher("slot-0", "mnist");
  collector_.reset();
  client->tend();
  std::vector<std::unique_ptr<TestRing>> rings;
  for (std::uint32_t attempt = 0; attempt < 70; ++attempt) {
    client->begin_attempt(attempt, 0, 0, 1);
    rings.push_back(std::make_unique<TestRing>());
    rings.back()->publish(step(1));
    client->add(attempt + 1, ring_offer(0, attempt), rings.back()->fd());
    client->remove(attempt + 1);
  }
  start();
  clock_.advance(1s);
  meet(*client);
  EXPECT_EQ(steps("mnist"), 64);
  EXPECT_EQ(dropped("mnist"), 6);
  restart(*client);
  EXPECT_EQ(dropped("mnist"), -1) << "told once";
}

TEST_F(CollectTest, StepsThatWaitForAmendmentsAreHandedOverWithThem) {
  const auto client = launcher("slot-0", "mnist");
  TestRing ring(16);
  ring.header().capabilities = PACELINE_CAPABILITY_HOST_MARKS | PACELINE_CAPABILITY_DEVICE_EVENTS;
  client->add(1, ring_offer(0), ring.fd());
  auto late = step(77);
  late.kind = PACELINE_KIND_AMENDMENT;
  ring.publish(step(1));
  ring.publish(late);  // of an unknown step
  auto absurd = step(2);
  absurd.wall_ns = ~std::uint64_t{0};
  ring.publish(absurd);
  collector_->pump();
  EXPECT_EQ(steps("mnist"), 0) << "it waits";
  EXPECT_EQ(dropped("mnist"), 2);
  restart(*client);
  ring.publish(late);
  clock_.advance(6s);
  collector_->pump();
  EXPECT_EQ(steps("mnist"), 1);
  EXPECT_EQ(dropped("mnist"), 1) << "the first two were counted before";
}

TEST_F(CollectTest, AnAgentThatSaysNothingOfWhatItReadIsTakenToHaveReadAll) {
  SlotClient old_agents(folder("slot-9"), {"mnist", "worker", 0, 0}, clock_);
  std::filesystem::create_directories(folder("slot-9"));
  old_agents.begin_attempt(0, 0, 0, 1);
  TestRing ring;
  old_agents.add(1, ring_offer(0), ring.fd());
  const Peer agent(folder("slot-9"));
  old_agents.tend();
  agent.accept();
  SlotFrame taken = slot_frame(SlotKind::kTaken);
  ASSERT_TRUE(agent.send(&taken, telemetry::kLeastSlotFrame));
  old_agents.tend();
  ASSERT_TRUE(old_agents.held());
  EXPECT_EQ(agent.kinds(), (std::vector<SlotKind>{SlotKind::kBegin, SlotKind::kRing}));
  ring.publish(step(1));
  old_agents.begin_attempt(1, 0, 0, 1);
  TestRing next;
  old_agents.add(2, ring_offer(0, 1), next.fd());
  next.publish(step(1));
  EXPECT_EQ(agent.kinds(), (std::vector<SlotKind>{SlotKind::kBegin, SlotKind::kRing}))
      << "it knows no other";
  agent.hang_up();
  old_agents.tend();
  clock_.advance(1s);
  old_agents.tend();
  agent.accept();
  taken.features = telemetry::kSlotHandsOver;
  ASSERT_TRUE(agent.send(&taken, sizeof taken));
  old_agents.tend();
  SlotFrame ring_again;
  EXPECT_EQ(agent.kinds(&ring_again), (std::vector<SlotKind>{SlotKind::kBegin, SlotKind::kRing}));
  EXPECT_EQ(ring_again.start, 1U);
}

TEST_F(CollectTest, WhatAnAgentSaysOfRingsIsCompared) {
  SlotClient client(folder("slot-9"), {"mnist", "worker", 0, 0}, clock_);
  std::filesystem::create_directories(folder("slot-9"));
  client.begin_attempt(0, 0, 0, 1);
  TestRing ring;
  client.add(1, ring_offer(0), ring.fd());
  ring.publish(step(1));
  ring.publish(step(2));
  const Peer agent(folder("slot-9"));
  client.tend();
  agent.accept();
  SlotFrame frame = slot_frame(SlotKind::kTaken);
  frame.features = telemetry::kSlotHandsOver;
  ASSERT_TRUE(agent.send(&frame, sizeof frame));
  client.tend();
  const auto say = [&](SlotKind kind, std::uint64_t number, std::uint64_t start,
                       std::uint64_t read) {
    frame = slot_frame(kind);
    frame.ring = number;
    frame.start = start;
    frame.read = read;
    ASSERT_TRUE(agent.send(&frame, sizeof frame));
  };
  say(SlotKind::kRead, 1, 1, 1);
  say(SlotKind::kRead, 1, 0, 0);                  // never back
  say(SlotKind::kRead, 7, 5, 5);                  // no such ring
  say(SlotKind::kDone, 1, 0, 0);                  // its rank lives
  say(SlotKind::kRead, 1, 1, ~std::uint64_t{0});  // beyond its end
  say(static_cast<SlotKind>(99), 1, 0, 0);        // of a later release
  client.tend();
  EXPECT_TRUE(client.held());
  agent.hang_up();
  client.tend();
  clock_.advance(1s);
  client.tend();
  agent.accept();
  frame = slot_frame(SlotKind::kTaken);
  frame.features = telemetry::kSlotHandsOver;
  ASSERT_TRUE(agent.send(&frame, sizeof frame));
  client.tend();
  SlotFrame again;
  agent.kinds(&again);
  EXPECT_EQ(again.ring, 1U);
  EXPECT_EQ(again.start, 1U);
  EXPECT_EQ(again.read, 2U);
}

class FewRanks : public CollectTest {
 protected:
  FewRanks() : CollectTest(few()) {}
  static CollectLimits few() {
    CollectLimits limits;
    limits.sure_ranks = 1;
    limits.more_ranks = 1;
    limits.ranks_of_pod = 2;
    limits.rings_of_rank = 1;
    return limits;
  }
};

TEST_F(FewRanks, ARankThatABoundKeepsOutIsTheLaunchersToServe) {
  const auto client = launcher("slot-0", "mnist", 3);
  std::vector<std::unique_ptr<TestRing>> rings;
  for (int rank = 0; rank < 3; ++rank) {
    rings.push_back(std::make_unique<TestRing>());
    rings.back()->publish(step(1));
    client->add(static_cast<std::uint64_t>(rank) + 1, ring_offer(rank), rings.back()->fd());
  }
  collector_->pump();
  EXPECT_EQ(client->served_here(), std::set<int>()) << "not told yet";
  client->tend();
  EXPECT_TRUE(client->held());
  EXPECT_EQ(client->served_here(), (std::set<int>{2}));
  EXPECT_EQ(steps("mnist", 0), 1);
  EXPECT_EQ(steps("mnist", 2), -1);
  EXPECT_EQ(refused("ring"), 1);

  // A rank that was served before a bound refused it stays whole: two sides never serve one rank.
  TestRing second;
  client->add(4, ring_offer(1), second.fd());
  collector_->pump();
  client->tend();
  EXPECT_EQ(client->served_here(), (std::set<int>{1, 2}));
  const auto found = series();
  EXPECT_TRUE(std::ranges::none_of(
      found, [](const auto& entry) { return entry.first.contains("rank=\"1\""); }));

  // The next attempt begins like the first.
  client->begin_attempt(1, 0, 0, 2);
  collector_->pump();
  client->tend();
  EXPECT_EQ(client->served_here(), std::set<int>());
  TestRing next;
  next.publish(step(1));
  client->add(5, ring_offer(1, 1), next.fd());
  collector_->pump();
  EXPECT_EQ(steps("mnist", 1), 1);
  collector_.reset();
  client->tend();
  EXPECT_EQ(client->served_here(), std::nullopt) << "all of them";
}

}  // namespace
}  // namespace paceline::agent
