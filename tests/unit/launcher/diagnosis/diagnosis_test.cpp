// SPDX-License-Identifier: Apache-2.0
// How findings come and go.
#include "launcher/diagnosis/diagnosis.hpp"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/launcher/diagnosis/summaries.hpp"

namespace paceline::diagnosis {
namespace {

using std::chrono::seconds;
using test::kComm;
using test::kData;
using test::kForward;
using test::Phases;

const Phases kUsual{{kForward, 0.08}, {kComm, 0.01}};
const Phases kSlow{{kForward, 0.12}};

/// A job of ranks whose steps are known, watched once a second.
struct DiagnosedJob : ::testing::Test {
  /// The ranks make steps of these phases for so long.
  void train(const std::vector<Phases>& ranks, int for_seconds) {
    for (int second = 0; second < for_seconds; ++second) {
      for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
        auto& summary = summaries[static_cast<int>(rank)];
        summary.rank = static_cast<int>(rank);
        summary.use.attempt = facts.attempt;
        summary.step += 10;
        summary.steps += 10;
        summary.settled.steps += 10;
        summary.p50 = summary.p95 = 0;
        for (const auto& [phase, of_step] : ranks[rank]) {
          summary.total[static_cast<std::size_t>(phase)] += 10 * of_step;
          summary.p50 += of_step;
        }
        summary.p95 = summary.p50;
        for (std::size_t phase = 0; phase < telemetry::kPhases; ++phase) summary.window[phase] = 0;
        for (const auto& [phase, of_step] : ranks[rank])
          summary.window[static_cast<std::size_t>(phase)] = of_step;
        summary.live = test::live(kForward, 0.01);
      }
      look();
    }
  }
  /// No mark comes any more.
  void hang(const std::vector<int>& phases, int for_seconds) { hang(phases, {1, for_seconds}); }
  void hang(const std::vector<int>& phases, std::pair<int, int> seconds) {
    for (int second = seconds.first; second <= seconds.second; ++second) {
      for (std::size_t rank = 0; rank < phases.size(); ++rank)
        summaries[static_cast<int>(rank)].live = test::live(phases[rank], second);
      look();
    }
  }
  void look() {
    facts.now += seconds(1);
    facts.wall += seconds(1);
    facts.running = true;
    facts.world_size = static_cast<int>(summaries.size());
    std::vector<telemetry::RankSummary> all;
    for (const auto& [rank, summary] : summaries) {
      all.push_back(summary);
      all.back().node_rank = of_node.contains(rank) ? of_node[rank] : rank;
      facts.node_of[rank] = rank;
    }
    facts.job = telemetry::fold(std::move(all), telemetry::Span::kWindow);
    const News news = diagnosis.update(facts);
    captures += news.capture_stacks ? 1 : 0;
    windows += news.open_window ? 1 : 0;
    for (const Finding& finding : news.appeared) told.push_back("+" + name(finding));
    for (const Finding& finding : news.gone) told.push_back("-" + name(finding));
  }
  static std::string name(const Finding& finding) {
    return std::string(to_string(finding.kind)) +
           (finding.rank ? " " + std::to_string(*finding.rank) : "") +
           (finding.subject.empty() ? "" : " " + finding.subject);
  }

  Facts facts{.nodes = {"node-0", "node-1", "node-2"}};
  std::map<int, telemetry::RankSummary> summaries;
  Diagnosis diagnosis{{.hang_after = seconds(60), .window = seconds(10)}};
  std::map<int, int> of_node;  // rank → node rank, where it is not the same
  std::vector<std::string> told;
  int captures = 0;
  int windows = 0;  // that were asked for
};

TEST_F(DiagnosedJob, ThatIsWellHasNoFindings) {
  train({kUsual, kUsual, kUsual}, 300);
  EXPECT_TRUE(told.empty()) << told.front();
  EXPECT_EQ(captures, 0);
}

TEST_F(DiagnosedJob, AStragglerIsNamedAfterThreeWindowsAndForgottenAfterThree) {
  train({kUsual, kSlow, kUsual}, 29);
  EXPECT_TRUE(told.empty());
  train({kUsual, kSlow, kUsual}, 5);
  EXPECT_EQ(told, std::vector<std::string>{"+straggler 1"});
  ASSERT_EQ(diagnosis.findings().size(), 1U);
  EXPECT_EQ(diagnosis.findings()[0].node, "node-1");
  EXPECT_EQ(diagnosis.findings()[0].since, facts.wall - seconds(3));
  train({kUsual, kUsual, kUsual}, 20);
  EXPECT_EQ(told.size(), 1U) << "two windows without it are not enough";
  train({kUsual, kUsual, kUsual}, 20);
  EXPECT_EQ(told, (std::vector<std::string>{"+straggler 1", "-straggler 1"}));
  EXPECT_TRUE(diagnosis.findings().empty());
}

TEST_F(DiagnosedJob, AWindowOrTwoAreNoAlarm) {
  for (int round = 0; round < 5; ++round) {
    train({kUsual, kSlow, kUsual}, 20);
    train({kUsual, kUsual, kUsual}, 20);
  }
  EXPECT_TRUE(told.empty()) << told.front();
}

TEST_F(DiagnosedJob, ThatBecomesSlowerIsTold) {
  train({kUsual}, 90);
  train({{{kForward, 0.08}, {kData, 0.02}, {kComm, 0.01}}}, 45);
  ASSERT_EQ(told, std::vector<std::string>{"+regression"});
  const std::string text = diagnosis.findings()[0].text;
  EXPECT_NE(text.find("1.22 times"), std::string::npos) << text;
  EXPECT_NE(text.find("data_wait grew most, by 20.0ms"), std::string::npos) << text;
  train({kUsual}, 45);
  EXPECT_EQ(told.back(), "-regression");
}

TEST_F(DiagnosedJob, ARegressionOutlivesARestart) {
  train({kUsual}, 90);
  facts.attempt = 1;
  summaries[0].step = 0;
  train({{{kForward, 0.12}}}, 45);
  EXPECT_EQ(told, std::vector<std::string>{"+regression"});
}

TEST_F(DiagnosedJob, ATrialsStepsAreNoRegression) {
  train({kUsual}, 90);
  facts.trial = true;
  train({{{kForward, 0.12}}}, 60);
  facts.trial = false;
  train({kUsual}, 60);
  EXPECT_TRUE(told.empty()) << told.front();
}

TEST_F(DiagnosedJob, ThatGetsQuickerHasANewBaseline) {
  train({{{kForward, 0.16}}}, 90);
  train({kUsual}, 90);
  EXPECT_TRUE(told.empty());
  train({{{kForward, 0.12}}}, 45);
  EXPECT_EQ(told, std::vector<std::string>{"+regression"}) << "it was slower still at the start";
}

TEST_F(DiagnosedJob, StepsThatDifferByNatureAreNoRegression) {
  for (int round = 0; round < 12; ++round) {
    train({kUsual}, 20);
    train({{{kForward, 0.14}}}, 20);
  }
  train({{{kForward, 0.14}}}, 40);
  EXPECT_TRUE(told.empty()) << told.front();
}

TEST_F(DiagnosedJob, ABottleneckIsTold) {
  train({{{kForward, 0.05}, {kData, 0.05}}}, 45);
  EXPECT_EQ(told, std::vector<std::string>{"+bottleneck data"});
}

TEST_F(DiagnosedJob, AHangIsToldOnceTheStacksAreThere) {
  train({kUsual, kUsual}, 30);
  hang({kComm, kData}, 59);
  EXPECT_EQ(captures, 0);
  hang({kComm, kData}, 61);
  EXPECT_EQ(captures, 1);
  EXPECT_TRUE(told.empty()) << "the launchers have not answered";
  const std::map<int, std::string> stacks{
      {1, "Thread 0x1 (most recent call first):\n  File \"/job/t.py\", line 4 in f\n"}};
  facts.stacks = {&stacks, true};
  hang({kComm, kData}, 65);
  EXPECT_EQ(told, std::vector<std::string>{"+hang 1"});
  EXPECT_EQ(captures, 2) << "the marks came anew in between";
  EXPECT_NE(diagnosis.findings()[0].text.find("t.py:4 in f"), std::string::npos);
  train({kUsual, kUsual}, 1);
  EXPECT_EQ(told.back(), "-hang 1");
}

TEST_F(DiagnosedJob, AHangIsToldWithoutStacksOfALauncherThatDoesNotAnswer) {
  train({kUsual, kUsual}, 30);
  hang({kComm, kData}, 80);
  EXPECT_EQ(told, std::vector<std::string>{"+hang 1"});
  EXPECT_EQ(captures, 1);
}

TEST_F(DiagnosedJob, ARestartedGangDoesNotHangByWhatTheOldOneDid) {
  train({kUsual, kUsual}, 30);
  hang({kComm, kData}, 80);
  ASSERT_EQ(told, std::vector<std::string>{"+hang 1"});
  facts.attempt = 1;
  hang({kComm, kData}, 70);
  EXPECT_EQ(told.back(), "-hang 1") << "no heartbeat of the new attempt has come yet";
  EXPECT_EQ(captures, 1);
}

TEST_F(DiagnosedJob, APauseOfTheLauncherIsNoHang) {
  train({kUsual, kUsual}, 30);
  facts.now += seconds(600);
  hang({kComm, kData}, {600, 659});
  EXPECT_EQ(captures, 0) << "the ranks were paused with it, perhaps";
  hang({kComm, kData}, {660, 680});
  EXPECT_EQ(told, std::vector<std::string>{"+hang 1"}) << "they do not get on afterwards, either";
}

TEST_F(DiagnosedJob, AHangThatBecomesCertainIsNewsAgain) {
  train({kUsual, kUsual}, 30);
  hang({PACELINE_PHASE_OTHER, PACELINE_PHASE_OTHER}, 370);
  EXPECT_EQ(told, std::vector<std::string>{"+hang 0"});
  EXPECT_FALSE(diagnosis.findings().at(0).certain);
  const auto since = diagnosis.findings().at(0).since;
  hang({PACELINE_PHASE_OTHER, kComm}, {371, 375});
  EXPECT_EQ(told, (std::vector<std::string>{"+hang 0", "+hang 0"}));
  EXPECT_TRUE(diagnosis.findings().at(0).certain);
  EXPECT_EQ(diagnosis.findings().at(0).since, since);
}

TEST_F(DiagnosedJob, FindingsGoWhenNoWindowEndsAnyMore) {
  train({kUsual, kSlow, kUsual}, 35);
  ASSERT_EQ(told, std::vector<std::string>{"+straggler 1"});
  const auto stand_still = [this](int for_seconds) {
    for (int second = 0; second < for_seconds; ++second) look();
  };
  stand_still(220);
  EXPECT_EQ(told.size(), 1U) << "two of the longest windows without it are not enough";
  stand_still(100);
  EXPECT_EQ(told.back(), "-straggler 1");
}

TEST_F(DiagnosedJob, ARankIsOnTheNodeWhoseLauncherTellsOfIt) {
  facts.nodes = {"node-2", "node-0", "node-1"};  // by node rank; ranks are numbered otherwise
  of_node = {{0, 1}, {1, 2}, {2, 0}};
  train({kUsual, kSlow, kUsual}, 35);
  ASSERT_EQ(diagnosis.findings().size(), 1U);
  EXPECT_EQ(diagnosis.findings()[0].node, "node-1");
}

TEST_F(DiagnosedJob, OnGpusThatBecomeSlowerAsksForOneWindow) {
  train({kUsual, kSlow}, 60);
  EXPECT_EQ(told.back(), "+straggler 1");
  EXPECT_EQ(windows, 0) << "no GPU computes";
  train({kUsual, kUsual}, 200);
  EXPECT_EQ(told.back(), "-straggler 1");
  for (auto& [rank, summary] : summaries) summary.host_times_of_gpu = 1;
  train({kUsual, kUsual}, 200);
  EXPECT_EQ(windows, 0);
  train({kSlow, kSlow}, 100);
  EXPECT_EQ(told.back(), "+regression");
  EXPECT_EQ(windows, 1);
}

TEST_F(DiagnosedJob, WithParameterServersHasNoStragglers) {
  facts.waits_for = WaitsFor::kServers;
  train({kUsual, kSlow, kUsual}, 60);
  EXPECT_TRUE(told.empty()) << told.front();
}

TEST_F(DiagnosedJob, ThatEndsItsTrainingMayGoOnForLong) {
  train({kUsual}, 30);
  hang({PACELINE_PHASE_OTHER}, 300);
  EXPECT_TRUE(told.empty()) << told.front();
  EXPECT_EQ(captures, 1) << "the stacks show whether it waits for others";
}

}  // namespace
}  // namespace paceline::diagnosis
