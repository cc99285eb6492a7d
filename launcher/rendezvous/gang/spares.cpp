// SPDX-License-Identifier: Apache-2.0
// Gang: members that stand by, and take the place of one that is lost. Every member was started
// with a node rank of its own; those from the node count on are spares. They are of the last role,
// and take places of that role only. When a lost member is back and its place is taken, it stands
// by in its turn. Node rank 0 hosts this rendezvous, so its place is never vacant here.
#include <algorithm>
#include <cstdlib>
#include <utility>

#include "launcher/rendezvous/gang.hpp"

namespace paceline::rendezvous {

std::vector<ConnectionId> Gang::everyone() const {
  std::vector<ConnectionId> all;
  all.reserve(seat_of_.size());
  for (const auto& member : members_) {
    if (member) all.push_back(member->connection);
  }
  return all;
}

/// Its own seat, else one to stand by on: as many as there are seats have been started.
int Gang::seat_for(const Hello& hello) const {
  const auto own = static_cast<std::size_t>(hello.node.node_rank);
  if (!members_[own]) return hello.node.node_rank;
  const auto free = std::find(members_.begin() + static_cast<std::ptrdiff_t>(places()),
                              members_.end(), std::nullopt);
  return static_cast<int>(free - members_.begin());
}

void Gang::stand_by(const Member& member) {
  log(member.hello.node.pod_name + " stands by");
  send(member.connection, StandBy{});
  if (!imports_.empty()) prepare(member);
}

void Gang::take_imports(const Member& member, const Imports& imports) {
  // The spares are of the last role. What is imported hardly changes from attempt to attempt, and
  // to import it anew takes the standbys away for a while.
  if (config_.spares == 0 || table_.nodes.empty() || !imports_.empty() ||
      member.hello.node.role != table_.nodes.back().role)
    return;
  imports_ = imports.text;
  for (const auto& other : std::span(members_).subspan(places())) {
    if (other) prepare(*other);
  }
}

/// Lets it import what its ranks would. In the table it finds how they would be started.
void Gang::prepare(const Member& member) {
  send(member.connection, Imports{imports_});
  actions_.emplace_back(SendTable{{member.connection}});
}

/// The others stop now. The place is vacant when the member has gone, so that no rank runs twice.
void Gang::leave(const Member& member, SteadyTime now) {
  if (fails_alone(member.hello.node.kind)) return;
  log(member.hello.node.pod_name + " leaves: the gang stops");
  stop_at_.reset();
  restart(now);
}

void Gang::fill_places(SteadyTime now) {
  // While the others go on, the lost member was one that fails alone, and no spare is of its role.
  if (config_.spares == 0 || finished() || phase_ == GangPhase::kRunning) return;
  const int standing_by = static_cast<int>(seat_of_.size()) - gathered_;
  const bool waited =
      gathered_ + standing_by >= config_.node_count && now - last_join_ >= kSpareWait;
  for (std::size_t place = 1; place < places(); ++place) {
    if (members_[place] || !(vacated_[place] || waited)) continue;
    if (const auto seat = nearest_spare(static_cast<int>(place)))
      take_place(*seat, static_cast<int>(place));
  }
}

/// The seat of the spare of that role whose own node rank is nearest: neighbours in rank were
/// placed in the closest part of the network that had room.
std::optional<int> Gang::nearest_spare(int place) const {
  std::optional<int> nearest;
  int least = 0;
  for (std::size_t seat = places(); seat < members_.size(); ++seat) {
    const auto& member = members_[seat];
    // Roles have their node ranks in a row.
    if (!member || place < member->own_rank - member->hello.node.replica_index) continue;
    const int distance = std::abs(member->own_rank - place);
    if (nearest && distance >= least) continue;
    nearest = static_cast<int>(seat);
    least = distance;
  }
  return nearest;
}

void Gang::take_place(int seat, int place) {
  auto& member = members_[static_cast<std::size_t>(place)];
  member = std::exchange(members_[static_cast<std::size_t>(seat)], std::nullopt);
  member->hello.node.node_rank = place;
  seat_of_[member->connection] = place;
  seat_of_rank_[static_cast<std::size_t>(member->own_rank)] = place;
  ++gathered_;
  log(member->hello.node.pod_name + " takes the place of node rank " + std::to_string(place));
}

}  // namespace paceline::rendezvous
