// SPDX-License-Identifier: Apache-2.0
// Gang: the start of an attempt, stage by stage.
#include <algorithm>
#include <utility>

#include "common/net/address.hpp"
#include "launcher/rendezvous/gang.hpp"

namespace paceline::rendezvous {

void Gang::try_start(SteadyTime now) {
  if (phase_ != GangPhase::kGathering && phase_ != GangPhase::kRestarting) return;
  if (collecting_failures_ || now < not_before_) return;
  if (gathered_ < config_.node_count || alive_ > 0) return;
  std::vector<Node> nodes;
  nodes.reserve(places());
  for (const auto& member : placed()) nodes.push_back(member->hello.node);
  table_ = make_rank_table(attempt_, config_.master_port(attempt_), std::move(nodes));
  if (config_.port_base) table_.port_base = config_.port_base(processes_in(table_));
  ++table_version_;
  begin_stages();
  phase_ = GangPhase::kRunning;
  log("all " + std::to_string(config_.node_count) + " replicas are here: attempt " +
      std::to_string(attempt_) + " starts with " + std::to_string(table_.world_size) + " ranks");
  first_done_.reset();
  stragglers_logged_ = false;
  stop_at_.reset();
  std::vector<ConnectionId> direct;  // are sent the table from here
  std::vector<ConnectionId> alike;   // get one message
  for (auto& member : placed()) {
    set(*member, &Member::alive, alive_, true);
    set(*member, &Member::stop_requested, stopping_members_, false);
    set(*member, &Member::done, done_, false);
    member->failed = false;
    const int place = member->hello.node.node_rank;
    std::string source = table_source(place);
    if (source.empty()) direct.push_back(member->connection);
    if (source.empty() && member->own_rank == place) {
      alike.push_back(member->connection);
    } else {
      send(member->connection, Start{attempt_, restarts_, std::move(source), stage_, last_stage_,
                                     member->own_rank == place ? -1 : place});
    }
  }
  send_all(std::move(alike), Start{attempt_, restarts_, "", stage_, last_stage_});
  actions_.emplace_back(SendTable{std::move(direct)});
}

void Gang::begin_stages() {
  const auto has = [this](contract::RoleKind kind) {
    return std::ranges::find(table_.nodes, kind, &Node::kind) != table_.nodes.end();
  };
  has_launcher_ = has(contract::RoleKind::kLauncher);
  has_servers_ = has(contract::RoleKind::kParameterServer);
  has_scheduler_ = has(contract::RoleKind::kScheduler);
  deciding_ = 0;
  unstarted_.fill(0);
  started_.assign(places(), false);
  for (const auto& member : placed()) {
    deciding_ += decides(*member) ? 1 : 0;
    ++unstarted_[static_cast<std::size_t>(member->hello.start_stage)];
  }
  const auto waits = [](int members) { return members > 0; };
  const auto first = std::ranges::find_if(unstarted_, waits);
  const auto last = std::find_if(unstarted_.rbegin(), unstarted_.rend(), waits);
  stage_ = static_cast<int>(first - unstarted_.begin());
  last_stage_ = static_cast<int>(unstarted_.rend() - last) - 1;
}

void Gang::started(const Member& member) {
  const auto place = static_cast<std::size_t>(member.hello.node.node_rank);
  if (member.hello.start_stage > stage_ || started_[place]) return;
  started_[place] = true;
  --unstarted_[static_cast<std::size_t>(member.hello.start_stage)];
  const int before = stage_;
  while (stage_ < last_stage_ && unstarted_[static_cast<std::size_t>(stage_)] == 0) ++stage_;
  if (stage_ == before) return;
  std::vector<ConnectionId> to;
  for (const auto& other : placed()) {
    if (other && other->hello.start_stage == stage_) to.push_back(other->connection);
  }
  log("the replicas of stage " + std::to_string(before) + " have started: the " +
      std::to_string(to.size()) + " of stage " + std::to_string(stage_) + " start");
  send_all(std::move(to), StartStage{attempt_, stage_});
}

/// Where the member fetches the rank table; empty: this launcher sends it.
std::string Gang::table_source(int node_rank) const {
  const int parent = table_parent(node_rank, config_.node_count);
  if (parent == 0) return "";
  const Hello& hello = members_[static_cast<std::size_t>(parent)]->hello;
  if (hello.table_port == 0) return "";
  return net::to_string({hello.node.address, hello.table_port});
}

}  // namespace paceline::rendezvous
