// SPDX-License-Identifier: Apache-2.0
#include "launcher/diagnosis/hang.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/unit/launcher/diagnosis/summaries.hpp"

namespace paceline::diagnosis {
namespace {

using test::kComm;
using test::kData;
using test::kEvaluation;
using test::kForward;
using test::kOther;
using test::kUnattributed;

constexpr double kFloor = 300;

RankAt at(int phase, double seconds, double p95 = 0.1) {
  return {.node = "node", .steps = 100, .p95 = p95, .live = test::live(phase, seconds)};
}
RankAt with(RankAt rank, const std::string& collective, const std::string& where = "t.py:9 in f") {
  rank.stack = StackFacts{collective, where};
  return rank;
}
RankAt numbered(RankAt rank, std::uint64_t collective, std::uint64_t group) {
  rank.live->collective = collective;
  rank.live->group = group;
  return rank;
}
/// With the plugin's numbers: of a communicator of 4 ranks.
RankAt in(RankAt rank, std::uint64_t called, std::int64_t done, std::uint64_t group = 5) {
  rank.live->collective = called;
  rank.live->done = done;
  rank.live->group = group;
  rank.live->group_size = 4;
  return rank;
}
RankAt frozen(RankAt rank) {
  rank.live->silent = rank.live->seconds;
  return rank;
}
RankAt begun(RankAt rank) {
  rank.live.reset();
  rank.steps = 0;
  return rank;
}

struct HangCase {
  const char* what;
  std::vector<RankAt> ranks;
  const char* kind;  // "": no verdict
  std::vector<int> culprits;
  const char* words = "";
};

std::vector<HangCase> hang_cases() {
  return {
      {"work", {at(kForward, 20), at(kComm, 20)}, "", {}},
      {"one rank still sets marks", {at(kComm, 4000), at(kEvaluation, 2)}, "", {}},
      {"in its loader", {at(kComm, 310), at(kData, 311)}, "hang", {1}, "data_wait"},
      {"in its loader, alone", {at(kData, 311)}, "hang", {0}},
      {"slow steps are no hang", {at(kComm, 310, 100), at(kForward, 310, 100)}, "", {}},
      {"slow steps that hang", {at(kComm, 1100, 100), at(kForward, 1100, 100)}, "hang", {1}},
      {"at work after the step", {at(kComm, 310), at(kOther, 310)}, "", {}},
      {"does not come back after the step", {at(kComm, 1801), at(kOther, 1801)}, "hang", {1}},
      {"one of two that did not arrive is at work",
       {at(kComm, 310), at(kData, 310), at(kUnattributed, 310)},
       "",
       {}},
      {"training is over", {at(kOther, 400), at(kOther, 400)}, "", {}},
      {"over, and never ends", {at(kOther, 1900), at(kOther, 1900)}, "hang", {0}, "HANG_AFTER"},
      {"a collective of the program, before the others come",
       {with(at(kOther, 310), "barrier"), with(at(kOther, 310), "", "t.py:5 in upload")},
       "",
       {}},
      {"a collective of the program",
       {with(at(kOther, 1801), "all_reduce"), with(at(kOther, 1801), "", "t.py:5 in wait")},
       "hang",
       {1},
       "t.py:5 in wait"},
      {"an evaluation", {at(kComm, 400), at(kEvaluation, 400)}, "", {}},
      {"an endless evaluation", {at(kComm, 1801), at(kEvaluation, 1801)}, "hang", {1}},
      {"the first step", {at(kForward, 400, 0), at(kForward, 400, 0)}, "", {}},
      {"no first step", {at(kForward, 1801, 0), at(kComm, 1801, 0)}, "hang", {0}},
      {"stopped", {at(kComm, 310), frozen(at(kComm, 310))}, "hang", {1}, "does not run"},
      {"a rank that never began", {at(kComm, 310), begun(at(0, 0))}, "hang", {1}, "not begun"},
      {"mismatch",
       {with(at(kOther, 310), "all_reduce", "t.py:7 in f"),
        with(at(kOther, 310), "broadcast", "t.py:9 in f")},
       "mismatch",
       {0},
       "broadcast, at t.py:9"},
      {"gradients against a barrier",
       {with(at(kComm, 310), ""), with(at(kOther, 310), "barrier")},
       "mismatch",
       {0}},
      {"a message was lost", {at(kComm, 310), at(kComm, 310)}, "hang", {-1}, "each other"},
      {"behind by number",
       {numbered(at(kComm, 310), 8, 5), numbered(at(kComm, 310), 7, 5),
        numbered(at(kComm, 310), 8, 5)},
       "hang",
       {1},
       "collective 8"},
      {"behind by number, wherever the host is",
       {numbered(at(kOther, 1801), 8, 5), numbered(at(kOther, 1801), 7, 5)},
       "hang",
       {1},
       "collective 8"},
      {"behind by number, and at work",
       {numbered(at(kComm, 310), 8, 5), numbered(at(kOther, 310), 7, 5)},
       "",
       {}},
      {"numbers of different communicators",
       {numbered(at(kComm, 310), 8, 5), numbered(at(kComm, 310), 7, 6)},
       "hang",
       {-1}},
  };
}

/// The hosts have launched all and wait for their GPUs somewhere: only the numbers tell.
std::vector<HangCase> numbered_cases() {
  const RankAt waits = in(at(kForward, 310), 12, 11);
  return {
      {"has not called it",
       {waits, waits, in(at(kForward, 310), 11, 11), waits},
       "hang",
       {2},
       "has not called collective 12 of a communicator of 4 ranks; 3 ranks wait for it."},
      {"the others have launched more, and by different numbers",
       {in(at(kOther, 310), 15, 11), in(at(kForward, 310), 13, 11), in(at(kForward, 310), 11, 11)},
       "hang",
       {2},
       "collective 12"},
      {"holds up two communicators, by way of a rank that waits for it",
       {waits, in(at(kForward, 310), 40, 39, 6), in(at(kForward, 310), 39, 39, 6), waits},
       "hang",
       {2},
       "collective 40"},
      {"shows another communicator, and waits in none",
       {waits, waits, in(at(kForward, 310), 7, 7, 6), waits},
       "hang",
       {2},
       "3 ranks wait for it"},
      {"has no numbers, since it has called none",
       {waits, waits, at(kForward, 310)},
       "hang",
       {2},
       "2 ranks wait for it"},
      {"is at work between two steps", {waits, in(at(kOther, 310), 11, 11)}, "", {}},
      {"does not come back to its steps",
       {in(at(kForward, 1801), 12, 11), in(at(kOther, 1801), 11, 11)},
       "hang",
       {1},
       "collective 12"},
      {"its GPU has not ended what others have",
       {waits, in(at(kForward, 310), 12, 10), waits, waits},
       "hang",
       {1},
       "its GPU in collective 11 of a communicator of 4 ranks, which has ended on other ranks"},
      {"all wait in one",
       {waits, waits},
       "hang",
       {-1},
       "all 2 ranks wait for each other: rank 0 on node is in forward for 5m10s, its GPU in "
       "collective 12"},
      {"all wait, in different communicators",
       {waits, in(at(kForward, 310), 7, 6, 6)},
       "hang",
       {-1},
       "collective 7"},
      {"a receive is not counted: its rank waits, too",
       {waits, with(in(at(kForward, 310), 11, 11), "recv"), in(at(kData, 310), 11, 11), waits},
       "hang",
       {2},
       "3 ranks wait for it"},
      {"a broadcast that NCCL does not tell of",
       {waits, with(in(at(kForward, 310), 11, 11), "broadcast")},
       "hang",
       {1},
       "in broadcast, at t.py:9 in f, and has not called collective 12"},
      {"ends are not told, and the hosts wait for other communicators",
       {in(at(kForward, 310), 12, -1), in(at(kForward, 310), 11, -1), in(at(kComm, 310), 3, -1, 6)},
       "hang",
       {0},
       "1 rank waits for them"},
      {"no rank waits, though they have called different numbers",
       {in(at(kForward, 310), 12, 12), in(at(kForward, 310), 11, 11)},
       "hang",
       {0},
       "rank 1 on node is in forward"},
  };
}

void check(std::vector<HangCase> cases) {
  for (HangCase& each : cases) {
    for (std::size_t i = 0; i < each.ranks.size(); ++i) each.ranks[i].rank = static_cast<int>(i);
    const auto quiet = quiet_of(each.ranks, kFloor);
    ASSERT_TRUE(quiet) << each.what;
    const auto found = quiet->wants_stacks() ? hang_of(each.ranks, *quiet) : std::nullopt;
    EXPECT_EQ(found ? std::string(to_string(found->kind)) : "", each.kind) << each.what;
    if (!found) continue;
    EXPECT_EQ(found->rank.value_or(-1), each.culprits.at(0)) << each.what << ": " << found->text;
    EXPECT_NE((found->text + found->advice).find(each.words), std::string::npos)
        << each.what << ": " << found->text;
  }
}

TEST(Hang, NamesTheRankThatDidNotArrive) { check(hang_cases()); }

TEST(Hang, NamesTheRankThatIsLateForACollectiveOfNccl) { check(numbered_cases()); }

TEST(Hang, WorkersWaitForTheirServersAndNotForEachOther) {
  const auto text_of = [](std::vector<RankAt> ranks) {
    for (std::size_t i = 0; i < ranks.size(); ++i) ranks[i].rank = static_cast<int>(i);
    return hang_of(ranks, *quiet_of(ranks, kFloor), WaitsFor::kServers).value_or(Finding{}).text;
  };
  const std::string all = text_of({at(kComm, 310), at(kComm, 310)});
  EXPECT_NE(all.find("all ranks wait for the servers"), std::string::npos) << all;
  const std::string one = text_of({at(kComm, 310), at(kData, 310)});
  EXPECT_NE(one.find("rank 1 on node is in data_wait"), std::string::npos) << one;
  EXPECT_NE(one.find("1 rank waits for the servers"), std::string::npos) << one;
  EXPECT_EQ((all + one).find("each other"), std::string::npos);
}

TEST(Hang, IsNotToldOfAJobThatNobodyMeasures) {
  EXPECT_FALSE(quiet_of({begun(at(0, 0)), begun(at(0, 0))}, kFloor));
  EXPECT_FALSE(quiet_of({}, kFloor));
}

TEST(Hang, ListsFewRanksOfMany) {
  std::vector<RankAt> ranks;
  for (int rank = 0; rank < 100; ++rank) {
    ranks.push_back(at(rank < 90 ? kComm : kData, 310));
    ranks.back().rank = rank;
  }
  const auto found = hang_of(ranks, *quiet_of(ranks, kFloor));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 90);
  EXPECT_NE(found->text.find("and 6 more"), std::string::npos) << found->text;
  EXPECT_NE(found->text.find("90 ranks wait"), std::string::npos) << found->text;
  EXPECT_LT(found->text.size(), 512U);
}

TEST(StackText, TellsTheCollectiveAndTheProgramsLine) {
  const std::string dump =
      "Thread 0x00007f0000000001 (most recent call first):\n"
      "  File \"/usr/lib/python3.11/threading.py\", line 324 in wait\n"
      "  File \"/job/feeder.py\", line 3 in feed\n"
      "\n"
      "Current thread 0x00007f0000000002 (most recent call first):\n"
      "  File \"/usr/lib/python3/dist-packages/torch/distributed/distributed_c10d.py\", line 9 in "
      "all_reduce\n"
      "  File \"/usr/lib/python3/dist-packages/torch/distributed/c10d_logger.py\", line 8 in "
      "wrapper\n"
      "  File \"/job/train.py\", line 40 in average\n"
      "  File \"/job/train.py\", line 60 in <module>\n";
  EXPECT_EQ(read_stack(dump).collective, "all_reduce");
  EXPECT_EQ(read_stack(dump).where, "train.py:40 in average");
  const std::string sleeps =
      "Thread 0x1 (most recent call first):\n  File \"/job/train.py\", line 7 in nap\n";
  EXPECT_EQ(read_stack(sleeps).collective, "");
  EXPECT_EQ(read_stack(sleeps).where, "train.py:7 in nap");
  for (const char* odd : {"", "  File \"", "  File \"x\", line ", "\n\n\n", "no frames"})
    EXPECT_EQ(read_stack(odd).where, "") << odd;
}

}  // namespace
}  // namespace paceline::diagnosis
