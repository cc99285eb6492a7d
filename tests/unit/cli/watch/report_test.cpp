// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>

#include "cli/report/markup.hpp"
#include "cli/report/page.hpp"
#include "cli/report/plots.hpp"
#include "cli/report/write.hpp"
#include "cli/watch/document.hpp"
#include "cli/watch/local_runs.hpp"
#include "tests/unit/cli/watch/jobs.hpp"

namespace paceline::cli {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

std::string page_of(const json& document) { return report_page(read_facts(document), test::now()); }

TEST(ReportPage, HasAllThatIsKnown) {
  const std::string page = page_of(test::running_document());
  for (const char* part :
       {"<title>gpt – Paceline</title>", "Rank 1 on n1 waits for batches",
        "Look at the disk of n1.", "Step time over time", "Where a step goes",
        "rank 2: communication 30.0%", "steps that were done again after a restart",
        "the dataset is a stream", "steps are 21% quicker", "<td>compile</td><td>Auto</td>",
        "88.0k", "41.0%"})
    EXPECT_THAT(page, HasSubstr(part));
}

TEST(ReportPage, LoadsNothingAndRunsNothing) {
  const std::string page = page_of(test::running_document());
  EXPECT_THAT(page, HasSubstr("default-src 'none'"));
  for (const char* part : {"<script", "http://", "https://", "url(", "<link", "<img", "@import"})
    EXPECT_THAT(page, Not(HasSubstr(part)));
}

/// Puts a text into every string of a document.
void spoil(json& value, const std::string& text) {
  if (value.is_string()) value = text;
  if (value.is_structured())
    for (json& part : value) spoil(part, text);
}

TEST(ReportPage, EscapesEverything) {
  json document = test::running_document();
  document["phase"] = "Failed";
  document["culprit"] = {{"pod", "p"}, {"lastLines", {"line"}}};
  document["message"] = "m";
  document["excludedNodes"] = json::array({{{"name", "n"}, {"message", "m"}}});
  const std::string before = page_of(document);
  spoil(document, "\"'><script>alert(1)</script>&<!--");
  document["acceleration"]["<script>"] = "on";
  document["goodput"]["losses"]["<script>"] = 5;
  const std::string page = page_of(document);
  EXPECT_THAT(page, Not(HasSubstr("<script")));
  EXPECT_THAT(page, Not(HasSubstr("<!--")));
  EXPECT_THAT(page, HasSubstr("&lt;script&gt;alert(1)&lt;/script&gt;&amp;"));
  // What the job says has made no tag and ended none.
  const auto tags = [](const std::string& text) {
    const std::regex tag("<[a-z!/][^>]*>");
    return std::distance(std::sregex_iterator(text.begin(), text.end(), tag), {});
  };
  EXPECT_GT(tags(before), 50);
  const std::regex odd("<(?![a-z/!])");
  EXPECT_FALSE(std::regex_search(page.substr(page.find("<body>")), odd));
}

TEST(ReportPage, AnythingMakesAPage) {
  for (const char* text : {"null", "[]", R"({"training":{"ranks":[1,{}]}})",
                           R"({"goodput":{"ratio":0.5,"seconds":0,"losses":{"waiting":1e300}}})"})
    EXPECT_THAT(page_of(json::parse(text)), HasSubstr("</html>"));
}

TEST(ReportPage, OfManyRanksTheSlowestAreShown) {
  json document = test::running_document();
  json& ranks = document["training"]["ranks"] = json::array();
  for (int i = 0; i < 5000; ++i)
    ranks.push_back({{"rank", i},
                     {"stepSeconds", {{"p50", i == 4321 ? 0.2 : 0.1}}},
                     {"breakdown", {{"forward", 1.0}}}});
  const std::string page = page_of(document);
  EXPECT_THAT(page, HasSubstr("The 64 slowest of 5000 ranks are shown."));
  EXPECT_THAT(page, HasSubstr("rank 4321: forward"));
  EXPECT_LT(page.size(), 100'000U);
}

TEST(Plots, TheHistoryStaysInsideItsAxes) {
  EXPECT_EQ(history_plot({}), "");
  EXPECT_EQ(history_plot({{0, 0.1}}), "");
  EXPECT_EQ(history_plot({{5, 0.1}, {5, 0.1}}), "") << "no time has passed";
  std::vector<HistoryPoint> points;
  for (int i = 0; i < 100; ++i) points.push_back({i * 10.0, i % 7 == 0 ? 0.5 : 0.0123});
  const std::string plot = history_plot(points);
  const std::regex pair(R"((-?[0-9.]+),(-?[0-9.]+) )");
  int count = 0;
  for (std::sregex_iterator match(plot.begin(), plot.end(), pair), end; match != end; ++match) {
    ++count;
    EXPECT_TRUE(std::stod((*match)[1]) >= 0 && std::stod((*match)[1]) <= 860) << (*match)[0];
    EXPECT_TRUE(std::stod((*match)[2]) >= 0 && std::stod((*match)[2]) <= 240) << (*match)[0];
  }
  EXPECT_EQ(count, 100);
}

struct ReportFiles : testing::Test {
  ReportFiles() {
    std::filesystem::remove_all(folder);
    std::filesystem::create_directories(folder);
  }
  ~ReportFiles() override { std::filesystem::remove_all(folder); }
  const std::filesystem::path folder =
      std::filesystem::path(testing::TempDir()) / ("report_files-" + std::to_string(::getpid()));
};

TEST_F(ReportFiles, AJsonReportCanBeReadBack) {
  const std::string path = (folder / "r.json").string();
  ASSERT_TRUE(write_report(path, test::running_document(), test::now()));
  EXPECT_EQ(*read_document(path), test::running_document());
  EXPECT_FALSE(std::filesystem::exists(path + ".new"));
}

TEST_F(ReportFiles, ANameOrAPlaceThatIsWrongIsRefused) {
  EXPECT_THAT(write_report("r.pdf", test::running_document(), test::now()).error().message,
              HasSubstr("ends in .html or .json"));
  const std::string nowhere = (folder / "nowhere" / "r.html").string();
  EXPECT_THAT(write_report(nowhere, test::running_document(), test::now()).error().message,
              HasSubstr(nowhere));
}

TEST_F(ReportFiles, TheLastRunOfANameIsKept) {
  const std::string kept = (folder / "kept").string();
  json document = run_document("train", 4, test::now(), nullptr);
  ASSERT_TRUE(keep_run(kept, document));
  document["phase"] = "Succeeded";
  ASSERT_TRUE(keep_run(kept, document));
  EXPECT_EQ((*kept_run(kept, "train"))["phase"], "Succeeded");
  for (const char* name : {"other", "../train", ".", ""})
    EXPECT_EQ(kept_run(kept, name).error().code, Code::kNotFound) << name;
  for (int i = 0; i < 120; ++i)
    ASSERT_TRUE(keep_run(kept, run_document("r" + std::to_string(i), 4, test::now(), nullptr)));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(kept), {}), 100);
}

TEST_F(ReportFiles, OnlyNotesOfThisUsersLiveRunsCount) {
  const auto note_in = [&](const char* name, int pid) {
    std::filesystem::create_directories(folder / name);
    const auto written = write_note(
        (folder / name).string(),
        {pid, {4711}, "secret", "/bin/launcher", run_document(name, 4, test::now(), nullptr)});
    EXPECT_TRUE(written);
  };
  note_in("paceline-alive", ::getpid());
  note_in("paceline-gone", 1 << 29);
  note_in("other-alive", ::getpid());
  std::filesystem::create_directories(folder / "paceline-open");
  std::ofstream(folder / "paceline-open" / "run.json")
      << R"({"pid":1,"launchers":["127.0.0.1:1"],"token":"t","document":{}})";  // readable by all
  std::filesystem::create_directories(folder / "paceline-none");
  const auto runs = live_runs(folder.string());
  ASSERT_EQ(runs.size(), 1U);
  EXPECT_EQ(runs[0].document["name"], "paceline-alive");
  EXPECT_EQ(runs[0].token, "secret");
  EXPECT_EQ(std::filesystem::status(folder / "paceline-alive" / "run.json").permissions(),
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
}

}  // namespace
}  // namespace paceline::cli
