// SPDX-License-Identifier: Apache-2.0
// FaultyApi: the API as one operator sees it. Any write may be the operator's last one, be refused
// for the moment, or be applied and its answer lost. Reads fail too. Seeded defects act here.
//
// Chaos and the inner Api must outlive it. One thread. A crash is an exception thrown through the
// controller, as if the process ended.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/kube/api/api.hpp"
#include "tests/sim/defects.hpp"
#include "tests/sim/laws.hpp"

namespace paceline::sim {

struct Crash {};

struct Rates {
  double crash = 0;      // per write, before or after it
  double fail = 0;       // per call: 409, 429, 500 or a time-out, not applied
  double lost = 0;       // per write: applied, but the answer is a time-out or a 500
  double refuse = 0;     // per pod that is created for a job: a webhook forbids it
  double meanwhile = 0;  // per write: another change happens first
  double late = 0;       // per write: the answer is a time-out, and it is applied much later
  double twice = 0;      // per write: a proxy sends it twice, and hands on the second answer
  double forbid = 0;     // per step: the operator loses a right, or gets one back
  double kill_pod = 0;   // per step (as all below)
  double fail_rank = 0;  // its launchers restart it in place while their budget lasts
  double evict = 0;      // for a limit of the pod's own, for pressure of its node, or for another
  double delete_pod = 0;
  double keep = 0;  // per pod: a finalizer of somebody else keeps it when it has ended
  double lose_node = 0;
  double spec_change = 0;  // suspend or resume
  double taint = 0;        // a node gets a taint or loses it
  double mark = 0;         // a node is cordoned, named as a candidate, or neither any longer
  double outage = 0;       // all nodes, or most of them, fall silent together, or all answer again
  double foreign = 0;      // a pod of another owner comes to a node, or one goes
  double edit_away = 0;    // a job is suspended, edited and resumed while no operator runs
  double delete_job = 0;   // a user deletes a job
  double restart = 0;      // a new operator starts with a new list
  double second_leader = 0;  // a new leader starts while the old one still acts
  double clock_jump = 0;     // the wall clock moves a minute back or forward
  double relist = 0;         // a watch breaks, and the events of that time are never seen
  double repeat = 0;         // an event, or a few, are delivered again
  double bookmark = 0;       // a bookmark comes, if no event waits
  // above 0: there are few nodes at first; per step: the autoscaler adds one that is asked for
  double grow = 0;
  double bad_image = 0;     // per job: an image of its last role cannot be pulled
  double roles = 0.33;      // per job: several kinds of roles
  double rules = 0;         // per job: a failure rule about containers that are out of memory
  double kueue = 0;         // per schedule: Kueue decides on its jobs
  double kueue_evict = 0;   // per look of Kueue and admitted job
  double elastic = 0;       // per job: the number of its workers may change
  double resize = 0;        // per step: a user wants another number
  double replace_node = 0;  // per step: a node goes, or a machine of the same name takes its place
  double relabel = 0;       // per step: the label of a node's leaf goes, or comes back
  double shrink = 0;        // per step: a node has no room left to offer, or has it again
  double recreate = 0;      // per step: a job is deleted in any way, and created again at once
  double strip = 0;         // per step: a person takes a label off a pod
  double limit = 0;         // per step: the quota gets another limit
  double kueue_change = 0;  // per look of Kueue: another quota, other flavors, a Workload deleted
  bool fresh = false;       // caches never lag
};

/// A verb and the plural of a resource. A status is of its own: "trainingjobs/status".
using Right = std::pair<std::string, std::string>;

/// State shared by all faults: randomness, rates, the armed crash and the laws.
struct Chaos {
  std::mt19937_64 random;
  Rates rates{};
  Laws laws{};
  Defect defect = Defect::kNone;
  int countdown = 0;  // writes until the armed one
  bool crash_after = false;
  std::uint64_t writes = 0;           // writes that operators tried
  bool quota_is_known = false;        // if true, a refusal for quota is the operator's fault
  std::function<void()> meanwhile{};  // a change that the world makes meanwhile
  std::vector<std::function<void()>>
      late{};                     // writes that were not answered, and are still to come
  bool carries_out_late = false;  // while one of them is applied
  std::set<Right> forbidden{};    // rights that the operator lacks now
  std::uint64_t refusals = 0;     // requests that were refused for want of a right

  bool chance(double p) { return p > 0 && std::uniform_real_distribution<>(0, 1)(random) < p; }
  std::size_t pick(std::size_t size) {
    return std::uniform_int_distribution<std::size_t>(0, size - 1)(random);
  }
};

std::unique_ptr<kube::Api> make_faulty_api(std::shared_ptr<kube::Api> inner, Chaos& chaos);

}  // namespace paceline::sim
