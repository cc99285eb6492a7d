// SPDX-License-Identifier: Apache-2.0
// What ranks of the RDMA tests do: sums that are compared with TCP's, and checks of the plan's text
// and of errors. Each check says on standard error what is wrong.
//
// Ownership: none. Threads: one. Failure: false.
#pragma once

#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "comm/world.hpp"

namespace paceline::comm_test {

inline const std::string kFlatRdma = "algorithm=flat transport=rdma";
inline const std::string kHierarchicalRdma = "algorithm=hierarchical chunk=65536 transport=rdma";

inline bool told(bool good, const std::string& what) {
  if (!good) std::cerr << "wrong: " << what << "\n";
  return good;
}

inline std::string plan_text(const Member& member) {
  std::array<char, 2048> plan{};
  paceline_comm_plan(member.comm, 0, 0, plan.data(), plan.size());
  return plan.data();
}

inline bool says(const Member& member, const std::string& words) {
  return told(plan_text(member).find(words) != std::string::npos,
              "'" + words + "' in " + plan_text(member));
}

// What a rank gives and what it got, as bytes.
template <typename Number>
std::vector<std::byte> summed(const Member& member, uint64_t count, uint32_t type, bool& good) {
  std::mt19937 random(member.rank + static_cast<uint32_t>(count));
  std::vector<Number> values(count);
  for (Number& value : values)
    value = static_cast<Number>(random() % 1000) / static_cast<Number>(7);
  good = paceline_comm_all_reduce(member.comm, values.data(), count, type) == PACELINE_OK && good;
  const auto* const bytes = reinterpret_cast<const std::byte*>(values.data());
  return {bytes, bytes + count * sizeof(Number)};
}

inline std::vector<std::byte> sums_of(const Member& member, const std::vector<uint64_t>& counts,
                                      bool& good) {
  std::vector<std::byte> all;
  for (const uint64_t count : counts) {
    for (const auto& some : {summed<float>(member, count, PACELINE_COMM_F32, good),
                             summed<double>(member, count, PACELINE_COMM_F64, good),
                             summed<int32_t>(member, count, PACELINE_COMM_I32, good),
                             summed<int64_t>(member, count, PACELINE_COMM_I64, good)})
      all.insert(all.end(), some.begin(), some.end());
    // Any bits at all: whatever they are, they come out the same.
    std::vector<uint16_t> halves(count);
    std::mt19937 random(member.rank);
    for (uint16_t& half : halves) half = static_cast<uint16_t>(random() & 0x3fffU);
    for (const uint32_t type : {PACELINE_COMM_F16, PACELINE_COMM_BF16}) {
      good =
          paceline_comm_all_reduce(member.comm, halves.data(), count, type) == PACELINE_OK && good;
      const auto* const bytes = reinterpret_cast<const std::byte*>(halves.data());
      all.insert(all.end(), bytes, bytes + count * sizeof(uint16_t));
    }
  }
  return all;
}

// Whether RDMA alone carries the same bits as TCP alone.
inline bool agrees_with_tcp(const Member& member, const Shape& shape,
                            const std::vector<uint64_t>& counts) {
  if (!says(member, " by RDMA ")) return false;
  const std::string plan = plan_text(member);
  const std::string pinned = shape.plan.substr(0, shape.plan.find(" transport"));
  Member tcp = join(
      *member.store,
      {.hosts = shape.hosts, .plan = pinned + " transport=tcp " + plan.substr(plan.find("order="))},
      member.rank, "tcp");
  if (!told(tcp.code == PACELINE_OK, tcp.error)) return false;
  bool good = told(plan_text(tcp).find('#') == std::string::npos, plan_text(tcp));
  const auto expected = sums_of(tcp, counts, good);
  good = told(sums_of(member, counts, good) == expected, "the same bits") && good;
  paceline_comm_destroy(tcp.comm);
  return good;
}

// Allreduces until one fails; good if that names `victim` and `why`.
inline bool ends_by(const Member& member, int32_t victim, const std::string& why,
                    SharedFlag* rounds = nullptr) {
  std::vector<float> data(300'000, 1.0F);
  int code = PACELINE_OK;
  while (code == PACELINE_OK) {
    code = paceline_comm_all_reduce(member.comm, data.data(), data.size(), PACELINE_COMM_F32);
    if (rounds != nullptr) rounds->value.fetch_add(1);
  }
  int32_t named = -1;
  const std::string said = member.why(&named);
  return told(code == PACELINE_COMM_EPEER && named == victim && said.find(why) != std::string::npos,
              "rank " + std::to_string(named) + ": " + said);
}

}  // namespace paceline::comm_test
