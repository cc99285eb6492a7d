// SPDX-License-Identifier: Apache-2.0
// Findings of the checks in a job's pod, on their way to the node's table: from launchers that keep
// the rules, and from hostile clients.
#include <gmock/gmock.h>

#include "tests/unit/agent/collect/collect_fixture.hpp"

namespace paceline::agent {
namespace {

using telemetry::SlotFinding;
using testing::ElementsAre;
using testing::IsEmpty;
using namespace std::chrono_literals;

const SlotFinding kMemlock{"memlock", "", "fail", "locked memory is limited to 64 KiB"};
const SlotFinding kOpens{"uverbs-access", "mlx5_0", "pass", "opens"};

class FindingsTest : public CollectTest {
 protected:
  void send(const Stranger& stranger, const std::string& text) {
    const SlotFrame frame = slot_frame(SlotKind::kFinding);
    std::string message(reinterpret_cast<const char*>(&frame), sizeof frame);
    message += text;
    stranger.send(message.data(), message.size());
    collector_->pump();
  }
  /// In the container of slot-0, taken.
  Stranger taken() {
    pods_.emplace("slot-0", PodName{"team", "mnist-worker-0-0"});
    Stranger stranger(folder("slot-0"));
    stranger.send(begin_frame("mnist", "worker"));
    collector_->pump();
    clock_.advance(1s);
    tell();
    return stranger;
  }
};

TEST_F(FindingsTest, AreToldBeforeTheFirstAttemptAndStandUnderThePodsName) {
  pods_.emplace("slot-0", PodName{"team", "mnist-worker-0-0"});
  telemetry::SlotClient client(folder("slot-0"), {"mnist", "worker", 0, 0}, clock_);
  EXPECT_TRUE(client.reported()) << "nothing to tell";
  client.report({kMemlock, kOpens});
  EXPECT_FALSE(client.reported());
  meet(client);
  EXPECT_TRUE(client.reported());
  const std::string remedy(find_check("memlock")->remedy);
  EXPECT_THAT(collector_->findings(),
              ElementsAre(Finding{"memlock", "pod team/mnist-worker-0-0", Verdict::kFail,
                                  kMemlock.evidence, remedy},
                          Finding{"uverbs-access", "pod team/mnist-worker-0-0 mlx5_0",
                                  Verdict::kPass, "opens", ""}));

  restart(client);
  EXPECT_EQ(collector_->findings().size(), 2U) << "every agent is told";
  client.begin_attempt(0, 0, 4, 2);
  collector_->pump();
  EXPECT_EQ(steps("mnist", 4), -1) << "the ranks are those of the attempt";
  EXPECT_EQ(collector_->findings().size(), 2U);
}

TEST_F(FindingsTest, GoWithThePodsSeries) {
  auto client = launcher("slot-0", "mnist");
  client->report({kMemlock});
  client->tend();
  collector_->pump();
  ASSERT_EQ(collector_->findings().size(), 1U);
  client.reset();
  collector_->pump();
  EXPECT_EQ(collector_->findings().size(), 1U) << "a pod that failed is asked about after its end";
  clock_.advance(301s);
  collector_->pump();
  EXPECT_THAT(collector_->findings(), IsEmpty());
}

TEST_F(FindingsTest, AnAgentThatDoesNotKnowThemIsNotTold) {
  Peer agent(folder("slot-0"));
  telemetry::SlotClient client(folder("slot-0"), {"mnist", "worker", 0, 0}, clock_);
  client.report({kMemlock});
  client.tend();
  ASSERT_TRUE(agent.accept());
  SlotFrame answer = slot_frame(SlotKind::kTaken);
  answer.features = telemetry::kSlotHandsOver;
  agent.send(&answer, sizeof answer);
  client.tend();
  EXPECT_THAT(agent.kinds(), ElementsAre(SlotKind::kBegin));
  EXPECT_FALSE(client.reported());
}

TEST_F(FindingsTest, OnlyWordsOfTheTableAreTaken) {
  const std::pair<const char*, std::string> cases[] = {
      {"no such check", "rootkit\t\tfail\tx"},  {"no such status", "memlock\t\tskip\tx"},
      {"too few fields", "memlock\tfail"},      {"a control character", "memlock\t\tfail\ta\nb"},
      {"no check at all", "\t\tfail\tx"},       {"nothing", ""},
      {"an escape", "memlock\t\tfail\t\033[2J"}};
  for (const auto& [what, text] : cases) {
    collector_.reset();
    start();
    pods_.clear();
    const Stranger stranger = taken();
    send(stranger, text);
    EXPECT_TRUE(stranger.closed()) << what;
    EXPECT_EQ(refused("frame"), 1) << what;
    EXPECT_THAT(collector_->findings(), IsEmpty()) << what;
  }
}

TEST_F(FindingsTest, APodHasThirtyTwoAndNoMore) {
  const Stranger stranger = taken();
  for (int i = 0; i < 32; ++i)
    send(stranger, "uverbs-access\tmlx5_" + std::to_string(i) + "\tpass\topens");
  send(stranger, "uverbs-access\tmlx5_7\tfail\tgone");
  EXPECT_FALSE(stranger.closed()) << "one that is known may change";
  EXPECT_EQ(collector_->findings().size(), 32U);
  send(stranger, "uverbs-access\tmlx5_32\tpass\topens");
  EXPECT_TRUE(stranger.closed());
  EXPECT_EQ(collector_->findings().size(), 32U);
}

TEST_F(FindingsTest, NobodyTellsBeforeTheKubeletHasNamedThePod) {
  Stranger stranger(folder("slot-0"));
  stranger.send(begin_frame("mnist", "worker"));
  send(stranger, "memlock\t\tfail\tx");
  EXPECT_TRUE(stranger.closed());
  EXPECT_THAT(collector_->findings(), IsEmpty());
}

TEST(SlotFindingText, IsCutAtACharacterAndComesBack) {
  SlotFinding finding = kMemlock;
  EXPECT_EQ(telemetry::unpack(telemetry::pack(finding)), finding);
  finding.evidence = std::string(telemetry::kMostFindingText, 'a') + "tail";
  EXPECT_EQ(telemetry::pack(finding).size(), telemetry::kMostFindingText);
  finding.evidence = "two\tfields\nand lines";
  EXPECT_EQ(telemetry::unpack(telemetry::pack(finding))->evidence, "two fields and lines");
  finding.evidence.clear();
  for (int i = 0; i < 500; ++i) finding.evidence += "ü";
  const std::string cut = telemetry::pack(finding);
  EXPECT_EQ((cut.size() - cut.rfind('\t') - 1) % 2, 0U) << "no half character";
}

}  // namespace
}  // namespace paceline::agent
