// SPDX-License-Identifier: Apache-2.0
// Requests that are carried out long after the operator has given up on them, and rights that an
// administrator takes away from the operator for a while.
#include <array>
#include <string>

#include "tests/sim/world.hpp"

namespace paceline::sim {

/// One of them, in any order.
void World::carry_out_late() {
  const auto due =
      chaos_.late.begin() + static_cast<std::ptrdiff_t>(chaos_.pick(chaos_.late.size()));
  const auto call = std::move(*due);
  chaos_.late.erase(due);
  chaos_.carries_out_late = true;
  chaos_.laws.set_late(true);
  call();
  chaos_.laws.set_late(false);
  chaos_.carries_out_late = false;
}

/// The operator may lack several at once. In a namespace that is being terminated, nobody may
/// create anything.
void World::turn_rights() {
  static const std::array<Right, 21> kRights{{{"create", "pods"},
                                              {"delete", "pods"},
                                              {"patch", "pods"},
                                              {"get", "pods"},
                                              {"get", "nodes"},
                                              {"create", "services"},
                                              {"get", "services"},
                                              {"create", "secrets"},
                                              {"get", "trainingjobs"},
                                              {"delete", "trainingjobs"},
                                              {"patch", "trainingjobs/status"},
                                              {"create", "podgroups"},
                                              {"get", "podgroups"},
                                              {"delete", "podgroups"},
                                              {"create", "workloads"},
                                              {"get", "workloads"},
                                              {"patch", "workloads"},
                                              {"delete", "workloads"},
                                              {"patch", "workloads/status"},
                                              {"create", "*"},
                                              {"delete", "pods"}}};
  if (!chaos_.chance(chaos_.rates.forbid)) return;
  if (!chaos_.forbidden.empty() && chaos_.chance(0.5)) {
    chaos_.forbidden.erase(chaos_.forbidden.begin());
  } else {
    chaos_.forbidden.insert(kRights[chaos_.pick(kRights.size())]);
  }
}

/// What the operator does for some minutes without the rights that it lacks. Then it gets them.
void World::check_rights() {
  constexpr int kRoundsOfAMinute = 12;
  constexpr std::uint64_t kMostOfAMinute = 120;  // of a cluster with three jobs
  if (chaos_.forbidden.empty()) return;
  const std::uint64_t writes = chaos_.writes;
  for (int i = 0; i < 2 * kRoundsOfAMinute && !broken(); ++i) round();
  const std::uint64_t before = chaos_.refusals;
  for (int i = 0; i < kRoundsOfAMinute && !broken(); ++i) round();
  const std::uint64_t refused = chaos_.refusals - before;
  if (refused > kMostOfAMinute)
    report(Law::kAsksSparingly,
           std::to_string(refused) + " requests of one minute were refused for want of a right");
  const auto& [verb, plural] = *chaos_.forbidden.begin();
  if (refused > 0 && !says_what_is_forbidden())
    report(Law::kNamesMissingRights, std::to_string(refused) +
                                         " requests of one minute were refused, and no job says "
                                         "so; forbidden is, for one, to " +
                                         verb + " " + plural);
  chaos_.forbidden.clear();
  chaos_.writes = writes;  // of these minutes they are judged by what is refused
}

}  // namespace paceline::sim
