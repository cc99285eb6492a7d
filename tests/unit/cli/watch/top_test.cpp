// SPDX-License-Identifier: Apache-2.0
// The screens of `paceline top`, and what keys do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "cli/top/frame.hpp"
#include "cli/top/state.hpp"
#include "cli/watch/document.hpp"
#include "cli/watch/text.hpp"
#include "tests/unit/cli/watch/jobs.hpp"

namespace paceline::cli {
namespace {

using nlohmann::json;
using testing::HasSubstr;

std::shared_ptr<const JobEntry> entry_of(const std::string& ns, const std::string& name,
                                         const json& status) {
  JobEntry entry;
  entry.meta.ns = ns;
  entry.meta.name = name;
  entry.facts = read_facts(job_document(test::training_job(ns, name, status)));
  return std::make_shared<const JobEntry>(std::move(entry));
}

TopView view_of_two() {
  TopView view;
  view.where = "namespace ml";
  view.jobs = {entry_of("ml", "gpt", test::running_status()),
               entry_of("ml", "big", test::queued_status())};
  view.total = view.jobs.size();
  view.health = {true, "", test::now()};
  return view;
}

std::string text_of(const std::vector<Line>& lines, std::size_t width) {
  std::string text;
  for (const Line& line : lines) text += plain(line, width) + "\n";
  return text;
}

/// Settles the state as the screen does, and draws it.
std::string drawn(TopState& state, TopView view, Size size) {
  view.jobs = arrange(view.jobs, state.sort, state.filter);
  settle(state, view.jobs, view.looked.facts.rank_rows.size(), rows_of(state, size));
  return text_of(frame(state, view, size, test::now()), size.width);
}

TEST(TopScreen, TheListOfJobs) {
  TopState state;
  EXPECT_EQ(drawn(state, view_of_two(), {80, 8}),
            R"(2 jobs, namespace ml
NAME      PHASE      RANKS   STEP    P50 SMP/S LIMIT  STEP BY PHASE
big       Queued         4      -      -     - -
gpt       Running        4   1200 12.3ms  5120 data   ddddddffffffffbbbbbbbbccoo


waits for 8 GPUs; 2 are free
enter: job  /: filter  sort: n t s g f  ?: help  q: quit
)");
}

TEST(TopScreen, OneJobAndItsRanks) {
  TopState state;
  state.level = Level::kJob;
  state.ns = "ml";
  state.name = "gpt";
  TopView view = view_of_two();
  json document = job_document(test::training_job("ml", "gpt", test::running_status()));
  add_summary(document, test::summary());
  view.looked = {read_facts(document), "", true};
  EXPECT_EQ(drawn(state, view, {80, 12}),
            R"(ml/gpt  Running
step 1210  p50 12.3ms  p95 15.0ms  5112 samples/s  MFU 41.0%  goodput 84.0%  88…
job    dddddddddddddddddffffffffffffffffffffffbbbbbbbbbbbbbbbbbbbbbccccccccoooo
limited by data
d data  f forward  b backward  c communication  o optimizer
Rank 1 on n1 waits for batches three times as long as the others.
  RANK  NODE    STEP     P50     P95  STEP BY PHASE
     0     0    1210  12.3ms  15.0ms  ddddddddfffffffffffffbbbbbbbbbbbbbccccccoo
*    1     0    1210  12.3ms  15.0ms  dddddddddddddfffffffffffffbbbbbbbbbbbbbooo
     2     1    1209  12.4ms  15.0ms  fffffffffffffffffbbbbbbbbbbbbccccccccccccc

enter: rank  esc: back  *: the slowest rank  q: quit
)");
  state.level = Level::kRank;
  state.rank = 1;
  const std::string rank = drawn(state, view, {80, 14});
  EXPECT_THAT(rank, HasSubstr("gpt  rank 1  node rank 0 on n1"));
  EXPECT_THAT(rank, HasSubstr("data                 30.0%   23.0%  dddddddddddd"));
  EXPECT_THAT(rank, HasSubstr("Look at the disk of n1."));
}

TEST(TopScreen, ADeadApiServerIsToldWithTheAgeOfTheView) {
  TopState state;
  TopView view = view_of_two();
  view.health = {true, "connect 10.0.0.1:6443: refused", test::now() - std::chrono::seconds(95)};
  const std::string text = drawn(state, view, {100, 8});
  EXPECT_THAT(text, HasSubstr("as of 1m35s ago: connect 10.0.0.1:6443: refused"));
  EXPECT_THAT(text, HasSubstr("gpt       Running")) << "the last view stays";
}

TEST(TopScreen, NoLineIsWiderThanTheTerminal) {
  std::mt19937 random(3);
  TopView view = view_of_two();
  json odd = test::running_status();
  odd["message"] = std::string(300, 'x') + "\x1b[31m";
  odd["training"]["step"] = 123456789012;
  view.jobs.push_back(entry_of("a-very-long-namespace-of-a-team", std::string(63, 'n'), odd));
  view.total = 3;
  json document = job_document(test::training_job("ml", "gpt", odd));
  add_summary(document, test::summary());
  view.looked = {read_facts(document), "gap", true};
  for (int i = 0; i < 300; ++i) {
    TopState state;
    state.level = static_cast<Level>(random() % 4);
    state.rank = random() % 4;
    const Size size{20 + random() % 200, 6 + random() % 40};
    view.jobs = arrange(view.jobs, state.sort, "");
    settle(state, view.jobs, 3, rows_of(state, size));
    const auto lines = frame(state, view, size, test::now());
    EXPECT_LE(lines.size(), size.height);
    for (const Line& line : lines) {
      const std::string shown = plain(line, size.width);
      EXPECT_LE(columns_of(shown), size.width);
      EXPECT_EQ(clean(shown), shown);
    }
  }
}

TEST(TopScreen, ColoursChangeNoText) {
  const Line line{{"name", Look::kChosen}, {"! ", Look::kAlarm}, {"ff", Look::kPhase, 2}};
  std::string bare;
  const std::string coloured_text = coloured(line, 12);
  for (std::size_t i = 0; i < coloured_text.size(); ++i) {
    if (coloured_text[i] != '\x1b') {
      bare += coloured_text[i];
      continue;
    }
    while (coloured_text[i] != 'm') ++i;
  }
  EXPECT_EQ(bare, "name! ff    ") << "a chosen line fills its width";
}

TEST(TopList, OfThousandsOfJobsTheScreenFollowsTheChosenOne) {
  TopView view;
  view.health = {true, "", test::now()};
  for (int i = 0; i < 5000; ++i)
    view.jobs.push_back(entry_of("ml", "job-" + std::to_string(10000 + i), test::queued_status()));
  view.total = view.jobs.size();
  TopState state;
  const Size size{80, 24};
  const auto rows = rows_of(state, size);
  settle(state, view.jobs, 0, rows);
  press(state, {Key::kEnd}, view.jobs, 0, rows);
  EXPECT_THAT(drawn(state, view, size), HasSubstr("job-14999"));
  EXPECT_EQ(state.name, "job-14999");
  press(state, {Key::kPageUp}, view.jobs, 0, rows);
  EXPECT_EQ(state.row, 4999 - rows + 1);
  // Jobs that come and go above it move the row, not the choice.
  const std::string chosen = state.name;
  view.jobs.erase(view.jobs.begin(), view.jobs.begin() + 100);
  const std::string screen = drawn(state, view, size);
  EXPECT_EQ(state.name, chosen);
  EXPECT_THAT(screen, HasSubstr(chosen));
}

TEST(TopList, FiltersBySeveralWordsAndSorts) {
  json quick = test::running_status();
  quick["training"]["stepTime"]["p50"] = "1ms";
  const JobList jobs{entry_of("a", "quick", quick), entry_of("a", "slow", test::running_status()),
                     entry_of("b", "waits", test::queued_status())};
  const auto names = [](const JobList& list) {
    std::vector<std::string> all;
    for (const auto& entry : list) all.push_back(entry->meta.name);
    return all;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(names(arrange(jobs, Sort::kStepTime, "")), (Names{"slow", "quick", "waits"}));
  EXPECT_EQ(names(arrange(jobs, Sort::kName, "RUNNING data")), (Names{"quick", "slow"}));
  EXPECT_EQ(names(arrange(jobs, Sort::kName, "b/")), (Names{"waits"}));
  EXPECT_TRUE(arrange(jobs, Sort::kName, "b/ running").empty());
}

TEST(TopKeys, BytesBecomeKeys) {
  std::string bytes = "\x1b[A\x1b[B\x1bOF\x1b[5~q\r\x7f";
  EXPECT_EQ(take_keys(bytes, false), (std::vector<KeyPress>{{Key::kUp},
                                                            {Key::kDown},
                                                            {Key::kEnd},
                                                            {Key::kPageUp},
                                                            {Key::kCharacter, "q"},
                                                            {Key::kEnter},
                                                            {Key::kBackspace}}));
  bytes = "\x1b";
  EXPECT_TRUE(take_keys(bytes, false).empty()) << "perhaps the begin of a sequence";
  EXPECT_EQ(take_keys(bytes, true), (std::vector<KeyPress>{{Key::kEscape}}));
  bytes = "\x1b[1;5";
  EXPECT_TRUE(take_keys(bytes, false).empty());
  bytes += "A\xC3";
  EXPECT_TRUE(take_keys(bytes, false).empty()) << "an unknown sequence, and half a letter";
  bytes += "\xA4";
  EXPECT_EQ(take_keys(bytes, false), (std::vector<KeyPress>{{Key::kCharacter, "ä"}}));
}

TEST(TopKeys, AnyBytesEnd) {
  std::mt19937 random(11);
  for (int i = 0; i < 3000; ++i) {
    std::string bytes(random() % 30, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random() % 3 == 0 ? 0x1B : random());
    take_keys(bytes, false);
    take_keys(bytes, true);
    EXPECT_TRUE(bytes.empty());
  }
}

TEST(TopKeys, LeadToAJobAndARankAndBack) {
  const TopView view = view_of_two();
  TopState state;
  settle(state, view.jobs, 0, 10);
  press(state, {Key::kEnter}, view.jobs, 0, 10);
  EXPECT_EQ(state.level, Level::kJob);
  press(state, {Key::kEnter}, view.jobs, 0, 10);
  EXPECT_EQ(state.level, Level::kJob) << "it has no ranks to look at";
  press(state, {Key::kDown}, view.jobs, 3, 10);
  press(state, {Key::kEnter}, view.jobs, 3, 10);
  EXPECT_EQ(state.level, Level::kRank);
  EXPECT_EQ(state.rank, 1U);
  press(state, {Key::kEscape}, view.jobs, 3, 10);
  press(state, {Key::kEscape}, view.jobs, 3, 10);
  EXPECT_EQ(state.level, Level::kJobs);
  for (const char* letter : {"/", "g", "q", "ä"})
    press(state, {Key::kCharacter, letter}, view.jobs, 0, 10);
  EXPECT_FALSE(state.quit) << "letters belong to the filter";
  EXPECT_EQ(state.filter, "gqä");
  press(state, {Key::kBackspace}, view.jobs, 0, 10);
  EXPECT_EQ(state.filter, "gq");
  press(state, {Key::kEnter}, view.jobs, 0, 10);
  press(state, {Key::kCharacter, "q"}, view.jobs, 0, 10);
  EXPECT_TRUE(state.quit);
}

}  // namespace
}  // namespace paceline::cli
