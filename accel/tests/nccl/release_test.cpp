// SPDX-License-Identifier: Apache-2.0
// Which events each release of NCCL is asked for.
#include "release.hpp"

#include <string>

#include "check.hpp"

namespace paceline::nccl {
namespace {

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30U;
constexpr int kCounts = 2 | 4;
constexpr int kTimes = kCounts | 64;
constexpr int kPhases = kTimes | 1 << 15;

CASE(releases_of_nccl_get_the_events_that_they_bear) {
  const struct {
    int version, interface, mask;
  } rows[] = {
      {22602, 3, kCounts}, {22705, 4, kCounts}, {22803, 5, 0},       {22808, 5, 0},
      {22809, 5, kTimes},  {22907, 6, kTimes},  {23007, 6, kCounts}, {23102, 7, kCounts},
      {23203, 7, kPhases}, {23401, 7, kPhases}, {0, 5, 0},           {0, 7, kCounts},
  };
  for (const auto& row : rows) {
    const auto choice = choose(row.interface, {row.version, kGiB});
    CHECK_EQ(choice.mask, row.mask);
    // Whatever is less than everything, or untested, is said in a line.
    const bool quiet = row.mask == kTimes || row.version == 23203;
    CHECK_EQ(choice.reason.empty(), quiet);
  }
}

CASE(a_small_shared_memory_leaves_kernel_events_out_where_the_proxy_sends_them) {
  const auto small = choose(6, {22907, kGiB / 16});
  CHECK_EQ(small.mask, kCounts);
  CHECK(small.reason.find("/dev/shm has 64 MiB") != std::string::npos);
  CHECK_EQ(choose(7, {23203, kGiB / 16}).mask, kPhases);
}

CASE(a_line_names_the_release_and_the_reason) {
  CHECK(choose(5, {22807, kGiB}).reason ==
        "NCCL 2.28.7: collectives are not counted (NVIDIA's resiliency extension "
        "avoids this release)");
  CHECK(choose(7, {23401, kGiB}).reason.find("2.34.1 is newer than 2.32") != std::string::npos);
}

CASE(code_outside_nccl_has_no_version) {
  CHECK_EQ(nccl_version(reinterpret_cast<const void*>(&choose)), 0);
}

}  // namespace
}  // namespace paceline::nccl
