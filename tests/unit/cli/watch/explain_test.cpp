// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "cli/explain/command.hpp"
#include "cli/explain/sentences.hpp"
#include "cli/watch/document.hpp"
#include "tests/unit/cli/watch/jobs.hpp"

namespace paceline::cli {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

std::string said(const json& document, std::size_t width = 200) {
  return sections_text(explain(read_facts(document), test::now()), width);
}

TEST(Explain, ARunningJobInSentences) {
  EXPECT_EQ(said(test::running_document()),
            R"(What it does
  gpt trains with 4 ranks on 2 nodes (n1, n2); it was started 3h12m ago.
  It is at step 1210, and half of its steps take up to 12.3ms (95% up to 15.0ms).
  It trains on 5112 samples a second, 88000 tokens a second.
  It uses 41% of the arithmetic that its accelerators can do (MFU).
  It has been restarted 1 time.

What limits it
  Waiting for batches limits it: 23% of a step.
  A step consists of data 23%, forward 31%, backward 30%, communication 10%, optimizer 6.0%.
  The ranks are even: the slowest, rank 1, works 1.16 times as long as the middle one.

Findings
  straggler, rank 1, node n1: Rank 1 on n1 waits for batches three times as long as the others. Look at the disk of n1. Expected: steps are 10% to 20% quicker.

Acceleration
  compile acts: steps are 21% quicker with it.
  loader does not act: the dataset is a stream.
  On, and rank 0 has not said whether it acts: optimizer.

What else would help
  Steps need not wait for batches: more workers of the loader, or less work per sample. Off in this job, and made for it: loader, loaderWorkers. If it took no time, steps would be 30% quicker.
  Gradients can be summed sooner: larger batches, fewer bytes, or a quicker network. Off in this job, and made for it: communication, compression. If it took no time, steps would be 11% quicker.

Goodput
  84% of 1h since the first start went into steps that count.
  Lost by waiting for nodes: 5m (8.3%).
  Lost by steps that were done again after a restart: 3m (5.0%).
  Lost by starting pods and programs: 1m36s (2.7%).
)");
}

TEST(Explain, AQueuedJobSaysWhatItWaitsFor) {
  const std::string text =
      said(job_document(test::training_job("ml", "big", test::queued_status())));
  EXPECT_THAT(text, HasSubstr("It waits for its place, for 3h12m."));
  EXPECT_THAT(text, HasSubstr("waits for 8 GPUs; 2 are free."));
  EXPECT_THAT(text, Not(HasSubstr("What limits it")));
}

TEST(Explain, AFailedJobNamesTheRankAndItsLastLines) {
  json status = test::running_status();
  status["phase"] = "Failed";
  status["message"] = "rank 3 exited with code 1";
  status["culprit"] = {
      {"rank", 3}, {"pod", "gpt-worker-1-0"}, {"exitCode", 1}, {"lastLines", {"ValueError: <b>"}}};
  const std::string text = said(job_document(test::training_job("ml", "gpt", status)));
  EXPECT_THAT(text, HasSubstr("gpt has failed with 4 ranks on 2 nodes (n1, n2): rank 3 exited with "
                              "code 1.\n"));
  EXPECT_THAT(text, HasSubstr("Rank 3 (pod gpt-worker-1-0) failed first: exit code 1."));
  EXPECT_THAT(text, HasSubstr("| ValueError: <b>"));
  EXPECT_THAT(text, HasSubstr("It ended at step 1200"));
}

TEST(Explain, HostTimesOfAGpuNameNoBottleneckAndPromiseNothing) {
  json document = test::running_document();
  document["training"]["bottleneck"] = "unknown";
  const std::string text = said(document);
  EXPECT_THAT(text, HasSubstr("No bottleneck is named"));
  EXPECT_THAT(text, Not(HasSubstr("What else would help")));
}

TEST(Explain, ASlowRankIsNamedOnceTheOthersWaitForIt) {
  json document = test::running_document();
  document["training"]["ranks"][1]["breakdown"] = {{"forward", 1.0}};
  document["training"]["ranks"][0]["breakdown"] = {{"forward", 0.5}, {"comm_exposed", 0.5}};
  document["training"]["ranks"][2]["breakdown"] = {{"forward", 0.5}, {"comm_exposed", 0.5}};
  EXPECT_THAT(said(document), HasSubstr("Rank 1 works 2.00 times as long on a step as the middle "
                                        "rank; the others wait for it."));
}

TEST(Explain, LinesAreBrokenAtTheWidth) {
  std::istringstream lines(said(test::running_document(), 60));
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 60U) << line;
}

TEST(Explain, AsJsonItHasSentencesAndFacts) {
  std::ostringstream out;
  std::ostringstream err;
  print_explanation({test::running_document(), "ranks are missing\x1b[A"}, true, 80, test::now(),
                    out, err);
  const json said = json::parse(out.str());
  EXPECT_EQ(said["sections"][0]["title"], "What it does");
  EXPECT_EQ(said["job"]["name"], "gpt");
  EXPECT_EQ(err.str(), "paceline explain: ranks are missing?[A\n");
}

}  // namespace
}  // namespace paceline::cli
