// SPDX-License-Identifier: Apache-2.0
// Sums of a step: with random operations that end in any order, against sums made the plain way.
#include "ledger.hpp"

#include <algorithm>
#include <cstring>
#include <random>
#include <set>
#include <vector>

#include "check.hpp"
#include "player.hpp"

namespace paceline::nccl {
namespace {

using check::has;
using check::kSecond;

Operation operation_of(std::uint64_t step, std::uint64_t start, std::uint64_t stop) {
  Operation operation;
  operation.position = {step, 1, 0};
  operation.group = 7;
  operation.sequence = 1;
  operation.bytes = 100;
  operation.bytes_known = true;
  operation.start_ns = start;
  operation.stop_ns = stop;
  return operation;
}

std::vector<Operation> random_operations(std::mt19937_64& random, std::uint64_t steps) {
  const auto below = [&](std::uint64_t bound) { return random() % bound; };
  std::vector<Operation> all;
  const std::uint64_t count = 1 + below(60);
  for (std::uint64_t i = 0; i < count; ++i) {
    Operation operation = operation_of(1 + below(steps), 1000 + below(500), 0);
    operation.stop_ns = operation.start_ns + 1 + below(100);
    operation.serial = i;
    operation.group = below(3);
    operation.sequence = below(4) == 0 ? 0 : i + 1;
    operation.bytes = below(1'000'000);
    operation.wait_known = true;
    operation.wait_ns = below(operation.stop_ns - operation.start_ns);
    all.push_back(operation);
  }
  return all;
}

CASE(sums_do_not_depend_on_the_order_of_the_ends) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    std::mt19937_64 random(seed);
    constexpr std::uint64_t kSteps = 3;
    std::vector<Operation> all = random_operations(random, kSteps);
    std::vector<paceline_step_record> first;
    for (int order = 0; order < 2; ++order) {
      std::shuffle(all.begin(), all.end(), random);
      Ledger ledger;
      for (const Operation& operation : all) ledger.add(operation);
      ledger.begin();
      auto settled = ledger.settle({kSteps + 1, 1, 0}, kSecond);
      if (order == 0) first = settled;
      if (!CHECK(settled.size() == first.size())) return;
      for (std::size_t i = 0; i < settled.size(); ++i)
        CHECK(std::memcmp(&settled[i], &first[i], sizeof first[i]) == 0);
    }
    for (const paceline_step_record& facts : first) {
      std::uint64_t operations = 0, bytes = 0, waits = 0, last = 0;
      std::set<std::uint64_t> groups, busy;
      for (const Operation& operation : all) {
        if (operation.position.step != facts.step) continue;
        ++operations;
        bytes += operation.bytes;
        groups.insert(operation.group);
        for (std::uint64_t t = operation.start_ns; t < operation.stop_ns; ++t) busy.insert(t);
        if (operation.sequence == 0) continue;
        waits += operation.wait_ns;
        last = std::max(last, operation.sequence);
      }
      CHECK_EQ(facts.comm_ops, operations);
      CHECK_EQ(facts.comm_payload_bytes, bytes);
      CHECK_EQ(facts.group_count, groups.size());
      CHECK_EQ(facts.comm_total_ns, busy.size());
      CHECK_EQ(facts.comm_peer_wait_ns, waits);
      CHECK_EQ(facts.collective_seq_last, last);
    }
  }
}

CASE(a_step_is_told_once_when_it_is_over_and_nothing_of_it_is_open) {
  Ledger ledger;
  ledger.add(operation_of(1, 10, 20));
  ledger.begin();
  CHECK(ledger.settle({1, 1, 0}, kSecond).empty());  // it is not over
  ledger.begin();
  ledger.open(operation_of(1, 0, 0));
  CHECK(ledger.settle({2, 1, 0}, kSecond).empty());
  ledger.add(operation_of(1, 15, 40));
  ledger.begin();
  const auto settled = ledger.settle({2, 1, 0}, 2 * kSecond);
  if (!CHECK(settled.size() == 1)) return;
  CHECK_EQ(settled[0].comm_ops, 2U);
  CHECK_EQ(settled[0].comm_total_ns, 30U);
  CHECK(ledger.settle({2, 1, 0}, 2 * kSecond).empty());
}

CASE(after_some_seconds_a_step_is_told_without_times_and_later_again_with_them) {
  Ledger ledger;
  ledger.add(operation_of(1, 10, 20));
  const auto look = [&](std::uint64_t now) {
    ledger.begin();
    ledger.open(operation_of(1, 0, 0));
    return ledger.settle({2, 1, 0}, now);
  };
  CHECK(look(kSecond).empty());
  const auto early = look(4 * kSecond);
  if (!CHECK(early.size() == 1)) return;
  CHECK_EQ(early[0].comm_ops, 2U);
  CHECK_EQ(early[0].comm_payload_bytes, 200U);
  CHECK(!has(early[0], PACELINE_VALID_COMM_TOTAL_NS));
  ledger.add(operation_of(1, 30, 35));
  ledger.begin();
  const auto late = ledger.settle({2, 1, 0}, 5 * kSecond);
  if (!CHECK(late.size() == 1)) return;
  CHECK_EQ(late[0].comm_ops, 2U);
  CHECK_EQ(late[0].comm_total_ns, 15U);
}

CASE(a_part_of_a_sum_is_never_given_for_the_whole) {
  Ledger ledger;
  Operation unknown = operation_of(1, 0, 0);
  unknown.bytes_known = false;
  ledger.add(unknown);
  Operation waited = operation_of(1, 10, 20);
  waited.wait_known = true;
  ledger.add(waited);
  ledger.add(operation_of(2, 10, 20));
  ledger.lost({2, 1, 0});
  ledger.begin();
  const auto settled = ledger.settle({3, 1, 0}, kSecond);
  if (!CHECK(settled.size() == 2)) return;
  CHECK_EQ(settled[0].valid, PACELINE_VALID_COMM_OPS | PACELINE_VALID_GROUP_COUNT |
                                 PACELINE_VALID_COLLECTIVE_SEQ_LAST);
  CHECK_EQ(settled[1].flags, PACELINE_FLAG_TRUNCATED_POOL);
  CHECK(!has(settled[1], PACELINE_VALID_COMM_TOTAL_NS));
  CHECK(!has(settled[1], PACELINE_VALID_COMM_PAYLOAD_BYTES));
}

CASE(steps_of_no_ring_and_of_closed_rings_are_not_told) {
  Ledger ledger;
  ledger.add(operation_of(0, 10, 20));
  ledger.add(operation_of(1, 10, 20));
  ledger.begin();
  CHECK(ledger.settle({0, 0, 0}, kSecond).empty());
  CHECK(ledger.settle({9, 2, 0}, kSecond).empty());
  for (std::uint64_t step = 1; step <= 3 * Ledger::kMostSteps; ++step) {
    Operation operation = operation_of(step, 10, 20);
    operation.position.ring_epoch = 2;
    ledger.add(operation);
  }
  CHECK_EQ(ledger.settle({1000, 2, 0}, kSecond).size(), Ledger::kMostSteps);
}

}  // namespace
}  // namespace paceline::nccl
