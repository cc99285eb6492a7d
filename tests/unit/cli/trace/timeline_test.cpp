// SPDX-License-Identifier: Apache-2.0
#include "cli/trace/timeline.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace paceline::cli {
namespace {

using nlohmann::json;

constexpr std::int64_t kZero = 1'764'000'000'000'000'000;

RankPlace place(int rank, std::int64_t offset = 0) { return {rank, "node-a", kZero, offset, 119}; }

std::vector<json> moved(const RankPlace& where, std::int64_t base, const json& events) {
  std::vector<json> all;
  ProfilerEvents profiler(where, base);
  for (const json& event : events)
    EXPECT_TRUE(profiler.add(event, [&](const json& one) -> Status {
      all.push_back(one);
      return {};
    }));
  return all;
}

const json& named(const std::vector<json>& events, const std::string& name) {
  const auto found =
      std::ranges::find_if(events, [&](const json& event) { return event["name"] == name; });
  static const json kNone = json::object();
  EXPECT_NE(found, events.end()) << name;
  return found == events.end() ? kNone : *found;
}

json complete(const char* name, json pid, json tid, double ts) {
  return {{"ph", "X"}, {"name", name}, {"pid", pid}, {"tid", tid}, {"ts", ts}, {"dur", 1.5}};
}

TEST(ProfilerEvents, TimesMoveToTheCommonClock) {
  // 5 ms after zero by a clock that is 2 ms ahead.
  const auto events = moved(place(0, 2'000'000), kZero - 1'000'000'000,
                            json::array({complete("add", 7, 8, 1'005'000.25)}));
  EXPECT_DOUBLE_EQ(named(events, "add")["ts"].get<double>(), 3000.25);
  EXPECT_DOUBLE_EQ(named(events, "add")["dur"].get<double>(), 1.5);
}

TEST(ProfilerEvents, OfReleasesWithoutABaseTimesAreWallTime) {
  const auto events = moved(
      place(0), 0, json::array({complete("add", 7, 8, static_cast<double>(kZero / 1000 + 40))}));
  EXPECT_DOUBLE_EQ(named(events, "add")["ts"].get<double>(), 40);
}

TEST(ProfilerEvents, ProcessesOfRanksDoNotMeet) {
  const json file = json::array({complete("cpu", 7, 8, 1), complete("gpu", 0, 7, 1),
                                 complete("span", "Spans", "PyTorch Profiler", 1)});
  std::vector<int> numbers;
  for (const int rank : {0, 1}) {
    for (const json& event : moved(place(rank), kZero, file)) {
      if (event["ph"] == "X") numbers.push_back(event["pid"].get<int>());
      EXPECT_TRUE(event["tid"].is_number_integer()) << event;
    }
  }
  EXPECT_THAT(numbers, testing::UnorderedElementsAre(1001, 1002, 1003, 2001, 2002, 2003));
}

TEST(ProfilerEvents, ProcessesAreNamedByRankAndNodeIfTheyHaveEvents) {
  const json file = json::array(
      {{{"ph", "M"},
        {"name", "process_name"},
        {"pid", 7},
        {"tid", 0},
        {"args", {{"name", "python"}}}},
       {{"ph", "M"},
        {"name", "process_name"},
        {"pid", 3},
        {"tid", 0},
        {"args", {{"name", "GPU 3"}}}},
       {{"ph", "M"}, {"name", "process_sort_index"}, {"pid", 7}, {"args", {{"sort_index", 5}}}},
       complete("cpu", 7, 8, 1)});
  const auto events = moved(place(4), kZero, file);
  EXPECT_EQ(named(events, "process_name")["args"]["name"], "rank 4 on node-a: python");
  EXPECT_EQ(named(events, "process_sort_index")["args"]["sort_index"], 5001);
  EXPECT_EQ(
      std::ranges::count_if(events, [](const json& e) { return e["name"] == "process_name"; }), 1)
      << "a GPU without events has no track";
}

TEST(ProfilerEvents, AProcessWithoutANameGetsOne) {
  const auto events = moved(place(4), kZero, json::array({complete("cpu", "CPU functions", 8, 1)}));
  EXPECT_EQ(named(events, "process_name")["args"]["name"], "rank 4 on node-a: CPU functions");
}

TEST(ProfilerEvents, FlowsOfRanksDoNotMeetAndStepsHaveTheRanksNumbers) {
  const json file =
      json::array({{{"ph", "s"}, {"name", "flow"}, {"id", 5}, {"pid", 7}, {"tid", 8}, {"ts", 1}},
                   complete("ProfilerStep#1", 7, 8, 1),
                   {{"ph", "i"},
                    {"name", "Record Window End"},
                    {"s", "g"},
                    {"pid", ""},
                    {"tid", ""},
                    {"ts", 9}}});
  const auto events = moved(place(3), kZero, file);
  EXPECT_EQ(named(events, "flow")["id"], "3:5");
  named(events, "ProfilerStep#120");
  EXPECT_EQ(named(events, "Record Window End")["s"], "p");
}

TEST(StepEvents, PhasesLieWithinTheirStep) {
  const json steps = json::array(
      {{{"step", 120},
        {"startUnixNs", kZero + 4'000'000},
        {"wallNs", 3'000'000},
        {"samples", 32},
        {"hostNs", {{"forward", 1'000'000}, {"data_wait", 500'000}, {"other", 9'000'000}}},
        {"deviceNs", {{"compute_undivided", 2'000'000}}},
        {"deviceWindowNs", 2'500'000}}});
  const auto events = step_events(place(3), steps, "");
  EXPECT_DOUBLE_EQ(named(events, "step 120")["ts"].get<double>(), 4000);
  EXPECT_EQ(named(events, "step 120")["args"]["samples"], 32);
  EXPECT_DOUBLE_EQ(named(events, "data_wait")["ts"].get<double>(), 4000);
  EXPECT_DOUBLE_EQ(named(events, "forward")["ts"].get<double>(), 4500);
  EXPECT_DOUBLE_EQ(named(events, "other")["dur"].get<double>(), 1500) << "not beyond the step";
  EXPECT_EQ(named(events, "compute_undivided")["tid"], 2) << "the device has a track of its own";
  EXPECT_EQ(named(events, "process_name")["args"]["name"], "rank 3 on node-a: steps");
}

TEST(StepEvents, ARankThatWasNotRecordedSaysWhy) {
  const auto events = step_events(place(3), json::array(), "it did not take up the request");
  EXPECT_EQ(named(events, "process_labels")["args"]["labels"],
            "not recorded: it did not take up the request");
}

}  // namespace
}  // namespace paceline::cli
