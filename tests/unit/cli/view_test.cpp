// SPDX-License-Identifier: Apache-2.0
#include "cli/run/view.hpp"

#include <gtest/gtest.h>

#include <string>

#include "cli/run/merge_metrics.hpp"

namespace paceline::cli {
namespace {

nlohmann::json document() {
  return nlohmann::json::parse(
      R"({"phase":"Running","attempt":1,"restarts":1,"training":{"step":120,"steps":220,"samplesPerSecond":614.4,
    "stepSeconds":{"p50":0.0123,"p95":0.2},"breakdown":{"forward":0.6,"comm_exposed":0.3,"checkpoint":0.001,"other":0.099},"bottleneck":"communication","slowestRank":1,
    "ranks":[{"rank":0,"nodeRank":0,"step":120,"stepSeconds":{"p50":0.0123,"p95":0.2},"samplesPerSecond":300,"breakdown":{"forward":0.5,"comm_exposed":0.5}},
             {"rank":1,"nodeRank":0,"step":120,"stepSeconds":{"p50":0.0123,"p95":0.2},"samplesPerSecond":300,"breakdown":{"forward":0.9,"comm_exposed":0.1}}]}})");
}

TEST(View, TheLiveTableShowsEveryRankAndMarksTheSlowest) {
  const auto lines = live_table("digits", read_view(document()), 200);
  ASSERT_EQ(lines.size(), 4U);
  EXPECT_NE(lines[0].find(
                "digits  Running  step 120  614 samples/s  bottleneck communication  restarts 1"),
            std::string::npos)
      << lines[0];
  EXPECT_NE(lines[1].find("forward    comm"), std::string::npos) << lines[1];
  EXPECT_EQ(lines[1].find("ckpt"), std::string::npos) << "nothing worth a column";
  EXPECT_EQ(lines[2].find('*'), std::string::npos);
  EXPECT_NE(lines[3].find("*   1     120  12.3ms   200ms"), std::string::npos) << lines[3];
  EXPECT_NE(lines[3].find("90.0%"), std::string::npos);
  for (const auto& line : live_table("digits", read_view(document()), 30))
    EXPECT_LE(line.size(), 30U);
}

TEST(View, TheFinalTableHasWhatWasAskedFor) {
  const std::string table = final_table("digits", read_view(document()), 61);
  for (const char* part :
       {"steps               220", "samples/s           614", "slowest rank        1",
        "restarts            1", "forward            60.0%", "comm_exposed       30.0%"}) {
    EXPECT_NE(table.find(part), std::string::npos) << part << " in " << table;
  }
}

TEST(View, OddDocumentsShowAsNothing) {
  for (const char* text : {"null", "[]", "3", R"({"training":[1]})",
                           R"({"phase":5,"culprit":"x","training":{"ranks":[1,{"rank":"x"}]}})"}) {
    const JobView view = read_view(nlohmann::json::parse(text));
    EXPECT_EQ(view.step, 0U);
    EXPECT_FALSE(final_table("j", view, 0).empty());
  }
}

TEST(MergeMetrics, EveryFamilyOnce) {
  const std::string first =
      "# HELP a A.\n# TYPE a counter\na{rank=\"0\"} 1\n# HELP b B.\n# TYPE b gauge\nb 2\n";
  const std::string second = "# HELP a A.\n# TYPE a counter\na{rank=\"1\"} 3\n";
  EXPECT_EQ(merge_metrics({first, second, ""}),
            "# HELP a A.\n# TYPE a counter\na{rank=\"0\"} 1\na{rank=\"1\"} 3\n# HELP b B.\n# TYPE "
            "b gauge\nb 2\n");
}

}  // namespace
}  // namespace paceline::cli
