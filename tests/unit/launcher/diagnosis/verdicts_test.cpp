// SPDX-License-Identifier: Apache-2.0
// What is found in one window, as tables.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "launcher/diagnosis/advice.hpp"
#include "launcher/diagnosis/lost_processor.hpp"
#include "launcher/diagnosis/stragglers.hpp"
#include "tests/unit/launcher/diagnosis/summaries.hpp"

namespace paceline::diagnosis {
namespace {

using test::kBackward;
using test::kCheckpoint;
using test::kComm;
using test::kData;
using test::kEvaluation;
using test::kForward;
using test::kOther;
using test::Phases;

RankWindow window(int rank, const Phases& step, double waited = 0) {
  RankWindow made{.rank = rank, .node = "node-" + std::to_string(rank), .steps = 10};
  for (const auto& [phase, seconds] : step)
    made.phases[static_cast<std::size_t>(phase)] = 10 * seconds;
  made.waited = waited;
  return made;
}

struct StragglerCase {
  const char* what;
  Windows windows;
  std::vector<int> ranks;
  const char* words;
};

TEST(Stragglers, AreTheRanksThatTheOthersWaitFor) {
  const Phases usual{{kForward, 0.04}, {kBackward, 0.04}, {kComm, 0.03}};
  const Phases slow{{kForward, 0.07}, {kBackward, 0.04}};
  const Phases hungry{{kData, 0.03}, {kForward, 0.04}, {kBackward, 0.04}};
  const Phases saves{{kForward, 0.04}, {kBackward, 0.04}, {kCheckpoint, 0.03}};
  const Phases evaluates{{kForward, 0.04}, {kBackward, 0.04}, {kEvaluation, 0.03}};
  const Phases at_barrier{{kForward, 0.04}, {kBackward, 0.04}, {kOther, 0.03}};
  const Phases bit_slow{{kForward, 0.045}, {kBackward, 0.045}, {kComm, 0.02}};
  // 1.3 times the median, and yet nothing of a step whose time goes elsewhere
  const Phases little{{kForward, 0.0010}, {kComm, 0.1090}};
  const Phases little_more{{kForward, 0.0013}, {kComm, 0.1087}};
  const std::vector<StragglerCase> cases{
      {"alike", {window(0, usual), window(1, usual), window(2, usual)}, {}, ""},
      {"slow forward", {window(0, usual), window(1, slow), window(2, usual)}, {1}, "forward"},
      {"one of two", {window(0, slow), window(1, usual)}, {0}, "forward"},
      {"slow loader", {window(0, usual), window(1, usual), window(2, hungry)}, {2}, "data_wait"},
      {"a save", {window(0, saves), window(1, usual), window(2, usual)}, {}, ""},
      {"an evaluation", {window(0, evaluates), window(1, at_barrier)}, {}, ""},
      {"less than 1.2", {window(0, usual), window(1, bit_slow), window(2, usual)}, {}, ""},
      {"not worth it", {window(0, little), window(1, little_more), window(2, little)}, {}, ""},
      {"alone", {window(0, slow)}, {}, ""},
      {"a busy node",
       {window(0, usual), window(1, slow, 0.4), window(2, usual)},
       {1},
       "no processor for 40 %"},
  };
  for (const StragglerCase& each : cases) {
    std::vector<int> ranks;
    for (const Finding& finding : stragglers(each.windows)) {
      ranks.push_back(finding.rank.value_or(-1));
      EXPECT_NE(finding.text.find(each.words), std::string::npos) << each.what << finding.text;
      EXPECT_EQ(finding.node, "node-" + std::to_string(ranks.back()));
    }
    EXPECT_EQ(ranks, each.ranks) << each.what;
  }
  Windows of_gpu = cases[1].windows;
  of_gpu[0].host_times_of_gpu = true;
  EXPECT_TRUE(stragglers(of_gpu).empty()) << "the host's times say nothing of the GPU";
  Windows measured = cases[0].windows;
  for (RankWindow& each : measured) each.device[kForward] = each.rank == 2 ? 0.9 : 0.5;
  ASSERT_EQ(stragglers(measured).size(), 1U) << "the device's clock counts where it is known";
  EXPECT_EQ(stragglers(measured)[0].rank, 2);
  measured[0].device = {};
  EXPECT_TRUE(stragglers(measured).empty()) << "two clocks are not compared";
}

TEST(Stragglers, TellWhatMendingThemMayGain) {
  const Phases usual{{kForward, 0.05}, {kComm, 0.05}};
  const auto found =
      stragglers({window(0, usual), window(1, {{kForward, 0.10}}), window(2, usual)});
  ASSERT_EQ(found.size(), 1U);
  EXPECT_NEAR(found[0].gain->high, 1.0, 1e-9) << "half of the step is waiting for it";
  EXPECT_NE(found[0].text.find("2.00 times"), std::string::npos) << found[0].text;
}

TEST(LostProcessor, OfAllRanksIsAFindingOfItsOwn) {
  EXPECT_FALSE(lost_by_all({window(0, {}, 0.4), window(1, {}, 0.05), window(2, {}, 0.05)}));
  const auto busy = lost_by_all({window(0, {}, 0.4), window(1, {}, 0.3), window(2, {}, 0.05)});
  ASSERT_TRUE(busy);
  EXPECT_NE(busy->text.find("30 %"), std::string::npos) << busy->text;
  RankWindow held = window(0, {}, 0.5);
  held.throttled = 0.5;
  EXPECT_NE(lost_by_all({held})->text.find("CPU limit"), std::string::npos);
  RankWindow stolen = window(0, {});
  stolen.stolen = 0.3;
  EXPECT_NE(lost_by_all({stolen})->text.find("hypervisor"), std::string::npos);
}

telemetry::JobSummary job(const Phases& step, double samples = 32) {
  auto rank = test::after_steps(0, 100, step);
  rank.samples_per_second = samples / rank.p50;
  return telemetry::fold({rank}, telemetry::Span::kWindow);
}

TEST(BottleneckAdvice, HasAnAdviceAndABound) {
  struct Case {
    Phases step;
    double samples;
    std::string subject;  // "": none
    double most;
  };
  const std::vector<Case> cases{
      {{{kForward, 0.05}, {kBackward, 0.05}}, 32, "", 0},
      {{{kForward, 0.05}, {kData, 0.05}}, 32, "data", 1.0},
      {{{kForward, 0.075}, {kComm, 0.025}}, 32, "communication", 1.0 / 3},
      {{{kForward, 0.06}, {kCheckpoint, 0.04}}, 32, "checkpoint", 2.0 / 3},
      {{{kForward, 0.06}, {kOther, 0.04}}, 32, "host", 2.0 / 3},
      {{{PACELINE_PHASE_UNATTRIBUTED, 0.1}}, 32, "", 0},
      {{{kForward, 0.0005}, {kBackward, 0.0005}}, 2, "tiny_batches", -1},
      {{{kForward, 0.0005}, {kBackward, 0.0005}}, 64, "", 0},
      {{{kForward, 0.05}, {kBackward, 0.05}}, 2, "", 0},
  };
  for (const Case& each : cases) {
    const auto found = bottleneck_of(job(each.step, each.samples));
    ASSERT_EQ(found.has_value(), !each.subject.empty()) << each.subject;
    if (!found) continue;
    EXPECT_EQ(found->subject, each.subject);
    EXPECT_FALSE(found->advice.empty());
    EXPECT_EQ(found->gain.has_value(), each.most >= 0);
    if (found->gain) {
      EXPECT_NEAR(found->gain->high, each.most, 1e-4);
    }
  }
}

TEST(BottleneckAdvice, OfWorkersIsTheirServers) {
  const auto uneven =
      telemetry::fold({test::after_steps(0, 100, {{kForward, 0.1}}),
                       test::after_steps(1, 100, {{kForward, 0.02}, {kComm, 0.08}})},
                      telemetry::Span::kWindow);
  ASSERT_TRUE(bottleneck_of(uneven));
  EXPECT_EQ(bottleneck_of(uneven)->subject, "imbalance");
  const auto found = bottleneck_of(uneven, WaitsFor::kServers);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->subject, "communication");
  EXPECT_NE(found->text.find("the parameter servers"), std::string::npos) << found->text;
}

TEST(BottleneckAdvice, IsOfTheDeviceWhereItIsMeasured) {
  // The host runs ahead of its device, and waits for it where it reads the loss.
  std::vector<telemetry::RankSummary> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.push_back(test::after_steps(rank, 100, {{kForward, 0.01}, {kOther, 0.09}}));
    const auto device = test::after_steps(rank, 100, {{kForward, 0.06}, {kComm, 0.04}});
    ranks.back().device_window = device.window;
  }
  const auto found = bottleneck_of(telemetry::fold(ranks, telemetry::Span::kWindow));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->subject, "communication") << "the ranks wait for the links, not in turn";
  EXPECT_NE(found->text.find("40 %"), std::string::npos) << found->text;
  ASSERT_TRUE(found->gain);
  EXPECT_NEAR(found->gain->high, 2.0 / 3, 1e-4);
  ranks[0].device_window = test::after_steps(0, 100, {{kForward, 0.09}, {kComm, 0.01}}).window;
  ranks[1].device_window = test::after_steps(1, 100, {{kForward, 0.01}, {kComm, 0.09}}).window;
  const auto uneven = bottleneck_of(telemetry::fold(ranks, telemetry::Span::kWindow));
  ASSERT_TRUE(uneven);
  EXPECT_EQ(uneven->subject, "imbalance");
}

TEST(FailureAdvice, IsExplainedByTheLastLines) {
  struct Case {
    const char* line;
    bool oom;
    const char* advice;
  };
  for (const Case& each :
       {Case{"OSError: [Errno 28] No space left on device", false, "disk"},
        Case{"torch.OutOfMemoryError: CUDA out of memory.", false, "GPU"},
        Case{"KeyError: 'x'", false, "last lines"}, Case{"", true, "memory limit"}}) {
    rendezvous::Culprit culprit;
    culprit.rank = 2;
    culprit.failure.oom = each.oom;
    culprit.failure.last_lines = {"Traceback", each.line, "after it"};
    const Finding found = failure_of(culprit, "node-b", "rank 2 on pod-1 exited with code 1");
    EXPECT_NE(found.advice.find(each.advice), std::string::npos) << each.line << found.advice;
    EXPECT_EQ(found.text, "Rank 2 on pod-1 exited with code 1.");
    EXPECT_EQ(found.node, "node-b");
  }
}

}  // namespace
}  // namespace paceline::diagnosis
