// SPDX-License-Identifier: Apache-2.0
// The choice of an algorithm by measurement: which times lead to which choice, all ranks choose the
// same, and sums stay right.
#include "comm/plan/tune.hpp"

#include <algorithm>

#include "check.hpp"
#include "comm/world.hpp"

namespace {

using paceline::comm::Algorithm;
using paceline::comm::choose;
using paceline::comm::Way;
using paceline::comm_test::Member;
using paceline::comm_test::World;

constexpr Way kFlat{.algorithm = Algorithm::kFlat, .chunk = 65536};
constexpr Way kCoarse{.algorithm = Algorithm::kHierarchical, .chunk = 65536};
constexpr Way kFine{.algorithm = Algorithm::kHierarchical, .chunk = 16384};
constexpr std::chrono::milliseconds kPlenty{1'000'000};

std::string chosen(const std::function<double(const Way&, double)>& seconds,
                   std::chrono::milliseconds budget = kPlenty) {
  const auto choices =
      choose({kFlat, kCoarse, kFine}, {}, budget, [&](const Way& way, std::uint64_t bytes) {
        return std::optional<double>(seconds(way, static_cast<double>(bytes)));
      });
  return choices ? paceline::comm::print_choices(*choices) : "none";
}

std::string tuned(Member& member, const char* known) {
  std::array<char, 1024> text{};
  const int code = paceline_comm_tune(member.comm, known, 200, text.data(), text.size());
  return code == PACELINE_OK ? text.data() : "code " + std::to_string(code);
}

bool adds_up(Member& member, std::size_t count) {
  std::vector<int32_t> data(count, static_cast<int32_t>(member.rank) + 1);
  const int code = paceline_comm_all_reduce(member.comm, data.data(), count, PACELINE_COMM_I32);
  const auto wanted = static_cast<int32_t>(member.ranks * (member.ranks + 1) / 2);
  return code == PACELINE_OK &&
         std::all_of(data.begin(), data.end(), [&](int32_t value) { return value == wanted; });
}

}  // namespace

CASE(comm_the_quickest_way_is_chosen_for_each_size) {
  // Each way's time is a latency and a rate. The quickest way changes between 64 and 256 KiB, and
  // again between 4 and 16 MiB.
  const auto lines = [](const Way& way, double bytes) {
    if (way == kFlat) return bytes / 1e6;
    return way == kFine ? 0.1 + bytes / 5e6 : 1.0 + bytes / 8e6;
  };
  CHECK(chosen(lines) == "0:flat,131072:hierarchical/16384,8388608:hierarchical/65536");
  CHECK(chosen([](const Way& way, double) { return way == kCoarse ? 1.0 : 2.0; }) ==
        "0:hierarchical/65536");
  // A gain within the noise does not change the choice.
  CHECK(chosen([](const Way& way, double bytes) {
          return bytes * ((way == kFlat) == (bytes < 1e5) ? 0.98 : 1.0);
        }) == "0:flat");
}

CASE(comm_ways_for_small_arrays_are_tried_with_small_ones) {
  constexpr Way kDoubling{.algorithm = Algorithm::kDoubling, .chunk = 65536};
  std::uint64_t largest = 0;
  const auto choices =
      choose({kFlat, kDoubling}, {}, kPlenty, [&](const Way& way, std::uint64_t bytes) {
        if (way == kDoubling) largest = std::max(largest, bytes);
        return std::optional<double>(way == kDoubling ? 1.0 : 2.0);
      });
  CHECK(choices && paceline::comm::print_choices(*choices) == "0:doubling,524288:flat");
  CHECK_EQ(largest, 256UL << 10);
  // If there was no time to try larger sizes, they must not use an algorithm for small arrays.
  const auto slow =
      choose({kFlat, kCoarse, kDoubling}, {}, std::chrono::milliseconds(1),
             [&](const Way& way, std::uint64_t) {
               return std::optional<double>(way == kDoubling ? 1.0 : way == kCoarse ? 2.0 : 3.0);
             });
  CHECK(slow && paceline::comm::print_choices(*slow) == "0:doubling,8192:hierarchical/65536");
}

CASE(comm_a_chunk_that_holds_the_whole_array_is_no_way_of_its_own) {
  std::uint64_t smallest = 1UL << 30;
  const auto finer = [&](const Way& way, double bytes) {
    if (way == kFine) smallest = std::min(smallest, static_cast<std::uint64_t>(bytes));
    return way == kFine ? 0.5 : way == kCoarse ? 1.0 : 2.0;
  };
  CHECK(chosen(finer) == "0:hierarchical/65536,32768:hierarchical/16384");
  CHECK_EQ(smallest, 65536UL);
  // What small arrays seemed to like is not what large ones get that there was no time to try.
  CHECK(chosen(finer, std::chrono::milliseconds(1)) == "0:hierarchical/65536");
}

CASE(comm_as_many_flows_are_chosen_as_are_quickest) {
  std::uint64_t smallest = 1UL << 30;
  const auto chosen_over = [&](const std::function<double(std::uint32_t, std::uint64_t)>& seconds) {
    const auto choices =
        choose({kFlat, kCoarse}, {2, 1}, kPlenty, [&](const Way& way, std::uint64_t bytes) {
          if (way.flows != 0) smallest = std::min(smallest, bytes);
          return std::optional<double>((way.algorithm == Algorithm::kFlat ? 2e-3 : 1e-3) *
                                       seconds(way.flows, bytes));
        });
    return choices ? paceline::comm::print_choices(*choices) : "none";
  };
  // One is enough up to a size where two are better, and all from another on.
  const auto crossing = [](std::uint32_t flows, std::uint64_t bytes) {
    if (flows == 1) return bytes < (1UL << 20) ? 1.0 : 3.0;
    return flows == 2 ? 2.0 : bytes < (16UL << 20) ? 3.0 : 1.0;
  };
  CHECK(chosen_over(crossing) ==
        "0:hierarchical/65536,131072:hierarchical/65536@1,524288:hierarchical/"
        "65536@2,8388608:hierarchical/65536");
  CHECK_EQ(smallest, 256UL << 10);
  // Within the noise all are used.
  CHECK(chosen_over([](std::uint32_t flows, std::uint64_t) { return flows == 0 ? 1.0 : 0.98; }) ==
        "0:hierarchical/65536");
}

CASE(comm_choosing_ends_with_its_budget_and_with_a_failure) {
  double spent = 0;
  const auto slow = [&](const Way& way, double bytes) {
    const double seconds = bytes / 1e7 * (way == kFlat ? 2 : 1);
    spent += seconds;
    return seconds;
  };
  CHECK(chosen(slow, std::chrono::milliseconds(3000)) == "0:hierarchical/65536");
  CHECK(spent > 0.01 && spent < 3.0);
  int calls = 0;
  const auto failing = [&](const Way&, std::uint64_t) {
    return ++calls < 3 ? std::optional(1.0) : std::nullopt;
  };
  CHECK(!choose({kFlat, kCoarse}, {}, kPlenty, failing).has_value() && calls == 3);
}

CASE(comm_all_ranks_choose_the_same_and_know_it_again) {
  const auto body = [](Member& member) {
    const std::string first = tuned(member, nullptr);
    std::array<char, 1024> plan{};
    paceline_comm_plan(member.comm, 0, 0, plan.data(), plan.size());
    bool good = first.starts_with("0:") &&
                std::string(plan.data()).find(" choice=" + first) != std::string::npos;
    for (const std::size_t count : {1, 5'000, 40'000, 300'000})
      good = adds_up(member, count) && good;
    // Only what the first rank knows counts; what does not fit is measured again.
    const char* const known = "0:hierarchical/4096,64:flat,20000:hierarchical/65536,100000:flat";
    good = tuned(member, member.rank == 0 ? known : "0:flat") == known && good;
    for (const std::size_t count : {1, 16, 4'999, 5'001, 25'000, 300'000})
      good = adds_up(member, count) && good;
    good = tuned(member, "0:hierarchical/2097152").starts_with("0:") && good;
    good =
        tuned(member, "0:flat@5") != "0:flat@5" && tuned(member, "0:flat@3") == "0:flat@3" && good;
    Member again = paceline::comm_test::join(
        *member.store, {.hosts = {0, 0, 1, 1, 1}, .plan = plan.data()}, member.rank, "again");
    good = again.code == PACELINE_OK && adds_up(again, 40'000) && good;
    std::array<char, 1024> pinned{};
    paceline_comm_plan(again.comm, 0, 0, pinned.data(), pinned.size());
    good = std::string(pinned.data()) == plan.data() && good;
    std::array<char, 64> shape{};
    good = paceline_comm_shape(again.comm, shape.data(), shape.size()) == PACELINE_OK && good;
    paceline_comm_destroy(again.comm);
    return good && std::string(shape.data()) == "2,3";
  };
  CHECK_EQ(World::run({.hosts = {0, 0, 1, 1, 1}, .plan = "chunk=65536"}, body), 0);
  // One rank in every host: between the ring and fewer steps. What needs a hierarchy does not fit.
  const auto apart = [](Member& member) {
    const std::string choice = tuned(member, "0:hierarchical/65536");
    bool good = choice.starts_with("0:") && choice.find("hierarchical") == std::string::npos;
    good = tuned(member, "0:tree,4096:doubling,70000:flat") == "0:tree,4096:doubling,70000:flat" &&
           good;
    for (const std::size_t count : {1, 2000, 20'000}) good = adds_up(member, count) && good;
    return good;
  };
  CHECK_EQ(World::run({.hosts = {0, 1, 2}, .plan = ""}, apart), 0);
  // A way that was asked for: nothing to choose from.
  for (const std::string way : {"flat", "doubling", "tree"}) {
    const auto alone = [&](Member& member) {
      return tuned(member, nullptr) == "0:" + way && adds_up(member, 1000);
    };
    CHECK_EQ(World::run({.hosts = {0, 0}, .plan = "algorithm=" + way}, alone), 0);
  }
}
