// SPDX-License-Identifier: Apache-2.0
// FaultyApi: the API as one operator sees it. Every write may be its last, be refused for the
// moment, or be done and its answer lost; reads fail too. Seeded defects are built in here.
//
// Refers to Chaos and the inner Api, which outlive it. One thread. A crash is thrown through the
// controller, as a process that ends.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <random>

#include "common/kube/api/api.hpp"
#include "tests/sim/defects.hpp"
#include "tests/sim/laws.hpp"

namespace paceline::sim {

struct Crash {};

struct Rates {
  double crash = 0;      // per write, before or after it
  double fail = 0;       // per call: 409, 429, 500 or a time-out, not applied
  double lost = 0;       // per write: applied, and the answer is a time-out or a 500
  double meanwhile = 0;  // per write: something else happens first
  double kill_pod = 0;   // per step, from here on
  double fail_rank = 0;  // restarted in place by its launchers while their budget lasts
  double delete_pod = 0;
  double lose_node = 0;
  double spec_change = 0;    // suspend or resume
  double restart = 0;        // a new operator on a new list
  double second_leader = 0;  // a new leader while the old one still acts
  double clock_jump = 0;     // of the wall clock, a minute back or on
  double relist = 0;         // a watch is lost and what happened meanwhile never seen
  double repeat = 0;         // an event comes twice, or a few events once more
  bool fresh = false;        // caches never lag
};

/// What the faults share: randomness, rates, the armed crash and the laws.
struct Chaos {
  std::mt19937_64 random;
  Rates rates{};
  Laws laws{};
  Defect defect = Defect::kNone;
  int countdown = 0;  // to the armed write
  bool crash_after = false;
  std::uint64_t writes = 0;           // that operators tried
  bool quota_is_known = false;        // a refusal for quota is the operator's fault
  std::function<void()> meanwhile{};  // of the world

  bool chance(double p) { return p > 0 && std::uniform_real_distribution<>(0, 1)(random) < p; }
  std::size_t pick(std::size_t size) {
    return std::uniform_int_distribution<std::size_t>(0, size - 1)(random);
  }
};

std::unique_ptr<kube::Api> make_faulty_api(std::shared_ptr<kube::Api> inner, Chaos& chaos);

}  // namespace paceline::sim
