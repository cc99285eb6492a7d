// SPDX-License-Identifier: Apache-2.0
// Sums operations up by step, and makes the amendments of the steps that are over.
//
// A step's amendment is made once no operation of it is open, or after some seconds without the
// times. A late operation makes another amendment with the new sums, which replaces the first. The
// order in which operations end does not matter.
//
// Owned by the plugin's thread. Not thread-safe. Nothing fails; the oldest of more than kMostSteps
// steps is given up.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "operation.hpp"

namespace paceline::nccl {

class Ledger {
 public:
  static constexpr std::size_t kMostSteps = 64;
  /// A reader waits 5 s for amendments of a step.
  static constexpr std::uint64_t kPatienceNs = 2'000'000'000;

  /// An operation that has ended, each once.
  void add(const Operation& operation);
  /// A look at all operations that have not ended: begin(), then open() for each.
  void begin();
  void open(const Operation& operation);
  /// An operation that could not be followed, because all places were taken.
  void lost(const paceline_position& position);

  /// Makes the amendments that are due. `current`: the step in progress. Accounts of other rings
  /// are dropped, because those rings are closed.
  std::vector<paceline_step_record> settle(const paceline_position& current, std::uint64_t now_ns);

 private:
  struct Sums {
    std::uint64_t operations = 0;
    std::uint64_t bytes = 0;
    bool bytes_known = true;
    std::uint64_t last_serial = 0;
    std::uint64_t last_sequence = 0;
    std::set<std::uint64_t> groups;
    void add(const Operation& operation);
    void add(const Sums& other);
  };
  struct Account {
    Sums ended;
    Sums open;
    std::vector<std::pair<std::uint64_t, std::uint64_t>> times;
    std::uint64_t collectives = 0;
    std::uint64_t waits = 0;
    std::uint64_t wait_ns = 0;
    std::uint64_t untimed = 0;
    bool truncated = false;
    bool due = true;  // something is not yet in an amendment
    std::uint64_t over_ns = 0;
  };
  using Key = std::pair<std::uint32_t, std::uint64_t>;  // ring epoch, step

  Account* account(const paceline_position& position);
  static paceline_step_record amendment(const Key& key, Account& account);

  std::map<Key, Account> accounts_;
};

}  // namespace paceline::nccl
