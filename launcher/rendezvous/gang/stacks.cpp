// SPDX-License-Identifier: Apache-2.0
// Gang: what its members are asked while their ranks train, and what follows when these hang.
#include <algorithm>
#include <utility>

#include "launcher/rendezvous/gang.hpp"

namespace paceline::rendezvous {
namespace {

// Of a larger gang, the stacks of so many ranks tell where it hangs.
constexpr std::size_t kMostStacks = 1024;

}  // namespace

GangActions Gang::capture_stacks() {
  stacks_.clear();
  const auto asked = connections();
  stacks_awaited_ = {asked.begin(), asked.end()};
  send_all(asked, CaptureStacks{attempt_});
  return take();
}

void Gang::take_stacks(const Member& member, const CapturedStacks& captured) {
  if (stacks_awaited_.erase(member.connection) == 0) return;  // not asked
  const Node& node = table_.nodes[static_cast<std::size_t>(member.hello.node.node_rank)];
  for (const RankStack& stack : captured.ranks) {
    const bool its_own =
        stack.rank >= node.first_rank && stack.rank - node.first_rank < node.processes;
    if (its_own && stacks_.size() < kMostStacks) stacks_[stack.rank] = stack.text;
  }
}

GangActions Gang::open_window() {
  if (phase_ == GangPhase::kRunning) send_all(connections(), OpenWindow{attempt_});
  return take();
}

GangActions Gang::end_hang(int rank, const std::string& text, SteadyTime now) {
  if (phase_ != GangPhase::kRunning) return take();
  for (const Node& node : table_.nodes) {
    if (!contract::trains(node.kind) || rank < node.first_rank ||
        rank - node.first_rank >= node.processes)
      continue;
    Failure failure;
    failure.local_rank = rank - node.first_rank;
    failure.reason = "Hang";
    failure.last_lines = {text};
    blame_ = Blame{{rank, node.node_rank, node.pod_name, attempt_, std::move(failure)},
                   {Cause::kKilled, now}};
    stop_for_failure(now);
    break;
  }
  return take();
}

}  // namespace paceline::rendezvous
