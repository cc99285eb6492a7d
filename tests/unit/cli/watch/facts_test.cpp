// SPDX-License-Identifier: Apache-2.0
// The document of a job, from each of its sources, and what is read from it.
#include "cli/watch/facts.hpp"

#include <gtest/gtest.h>

#include "cli/watch/document.hpp"
#include "tests/unit/cli/watch/jobs.hpp"

namespace paceline::cli {
namespace {

using nlohmann::json;

TEST(JobDocument, AStatusIsInTheUnitsOfASummary) {
  const JobFacts facts =
      read_facts(job_document(test::training_job("ml", "gpt", test::running_status())));
  EXPECT_EQ(facts.name_space, "ml");
  EXPECT_EQ(facts.name, "gpt");
  EXPECT_EQ(facts.ranks, 4);
  EXPECT_EQ(facts.replicas, 2);
  EXPECT_EQ(facts.ready, 2);
  EXPECT_EQ(facts.step, 1200U);
  EXPECT_DOUBLE_EQ(facts.p50, 0.0123);
  EXPECT_DOUBLE_EQ(facts.shares[PACELINE_PHASE_DATA_WAIT], 0.23);
  EXPECT_EQ(facts.bottleneck, "data");
  EXPECT_EQ(facts.slowest_rank, 3);
  EXPECT_EQ(facts.nodes, (std::vector<std::string>{"n1", "n2"}));
  ASSERT_EQ(facts.effects.size(), 2U);
  EXPECT_DOUBLE_EQ(*facts.effects[0].gain, 0.214);
  EXPECT_TRUE(facts.started.has_value());
  EXPECT_TRUE(facts.rank_rows.empty()) << "a status has no ranks";
}

TEST(JobDocument, NewerPartsOfAStatusAreReadTooIfTheyAreThere) {
  json status = test::running_status();
  status["training"]["tokensPerSecond"] = 88000;
  status["training"]["mfu"] = 410;
  status["training"]["device"] = {{"breakdown", {{"forward", 900}}}, {"idle", 100}};
  status["goodput"] = {{"ratio", 840}, {"seconds", 3600}, {"losses", {{"waiting", 300}}}};
  status["findings"] =
      json::array({{{"kind", "straggler"}, {"text", "Rank 1 is slow."}, {"gain", {100, 200}}}});
  const JobFacts facts = read_facts(job_document(test::training_job("ml", "gpt", status)));
  EXPECT_EQ(facts.tokens_per_second, 88000);
  EXPECT_EQ(facts.mfu, 0.41);
  EXPECT_DOUBLE_EQ(facts.device->shares[PACELINE_PHASE_FORWARD], 0.9);
  EXPECT_EQ(facts.device->idle, 0.1);
  EXPECT_EQ(facts.goodput->ratio, 0.84);
  EXPECT_EQ(facts.findings[0].gain, (std::pair{0.1, 0.2}));
}

TEST(JobDocument, AJobThatNobodyHasSeenYetIsQueued) {
  EXPECT_EQ(read_facts(job_document(test::training_job("ml", "new", json()))).phase, "Queued");
}

TEST(JobDocument, ASummaryReplacesTheStatusAndKeepsItsPhase) {
  json document = job_document(test::training_job("ml", "gpt", test::running_status()));
  json summary = test::summary();
  summary["phase"] = "Gathering";
  add_summary(document, summary);
  const JobFacts facts = read_facts(document);
  EXPECT_EQ(facts.phase, "Running");
  EXPECT_EQ(facts.step, 1210U);
  ASSERT_EQ(facts.rank_rows.size(), 3U);
  EXPECT_EQ(facts.rank_rows[2].node_rank, 1);
  EXPECT_EQ(facts.tokens_per_second, 88000.5);
  EXPECT_EQ(facts.mfu, 0.41);
  ASSERT_TRUE(facts.goodput.has_value());
  EXPECT_EQ(facts.goodput->losses.front().first, "waiting") << "the largest loss first";
  ASSERT_EQ(facts.findings.size(), 1U);
  EXPECT_EQ(facts.findings[0].gain, (std::pair{0.1, 0.2}));
  EXPECT_EQ(facts.history.size(), 3U);
}

TEST(JobDocument, ARunKeepsItsHistoryWhenItsReportComes) {
  json document = run_document("train", 4, WallTime{}, nullptr);
  add_summary(document, test::summary());
  add_summary(document, json::parse(R"({"version":1,"verdict":"Failed","message":"rank 1 ended",
    "culprit":{"rank":1,"exitCode":3,"lastLines":["boom"]},"training":{"step":1300,"ranks":[]}})"));
  const JobFacts facts = read_facts(document);
  EXPECT_EQ(facts.phase, "Failed");
  EXPECT_EQ(facts.message, "rank 1 ended");
  EXPECT_EQ(facts.step, 1300U);
  EXPECT_EQ(facts.history.size(), 3U);
  EXPECT_EQ(facts.culprit->exit_code, 3);
}

TEST(JobFacts, OddDocumentsReadAsNothing) {
  for (const char* text :
       {"null", "[]", "3", R"({"training":[1],"findings":{"a":1},"effects":[1],"goodput":3})",
        R"({"name":5,"training":{"ranks":[1,{"rank":"x"}],"history":[1,{"at":"x"}],"mfu":7}})",
        R"({"training":{"step":-4,"stepSeconds":{"p50":-1},"breakdown":{"forward":17}}})",
        R"({"findings":[{"kind":1,"text":""}],"nodes":[3],"missing":["x"],"conditions":[[]]})"}) {
    const JobFacts facts = read_facts(json::parse(text));
    EXPECT_EQ(facts.step, 0U) << text;
    EXPECT_EQ(facts.p50, 0) << text;
    EXPECT_FALSE(facts.mfu.has_value()) << text;
    EXPECT_EQ(telemetry::sum(facts.shares), 0) << text;
    EXPECT_TRUE(facts.findings.empty()) << text;
    EXPECT_TRUE(facts.history.empty()) << text;
  }
}

TEST(JobFacts, NoTextReachesATerminalUnclean) {
  json document = run_document("train\x1b[2J", 4, WallTime{}, nullptr);
  document["message"] = "a\nb\x1b]0;title\x07";
  document["findings"] = json::array({{{"kind", "hang"}, {"text", "x\x1b[A"}}});
  document["culprit"] = {{"lastLines", {"\x1b[31mred"}}};
  const JobFacts facts = read_facts(document);
  EXPECT_EQ(facts.name, "train?[2J");
  EXPECT_EQ(facts.message, "a b?]0;title?");
  EXPECT_EQ(facts.findings[0].text, "x?[A");
  EXPECT_EQ(facts.culprit->last_lines[0], "?[31mred");
}

}  // namespace
}  // namespace paceline::cli
