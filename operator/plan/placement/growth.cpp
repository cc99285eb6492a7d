// SPDX-License-Identifier: Apache-2.0
#include "operator/plan/placement/growth.hpp"

#include <cmath>

#include "operator/plan/placement/quota.hpp"

namespace paceline::plan {
namespace {

// Nodes come in minutes, and the first gangs of the queue get them first. More placeholders would
// only fill the autoscaler's list.
constexpr int kMostGangs = 8;
constexpr int kMostPods = 1000;  // of all these gangs, unless one alone has more

/// Quota, priorities and running gangs of lower priority need no node.
bool lacks_nodes(const Waiting& waiting) {
  return waiting.reason == "WaitingForRoom" || waiting.reason == "TooLarge" ||
         waiting.reason == "GpuDirectNotReady";
}

std::string number(double value) {
  const auto whole = static_cast<std::int64_t>(std::llround(value * 10));
  return std::to_string(whole / 10) + (whole % 10 == 0 ? "" : "." + std::to_string(whole % 10));
}

std::string in_words(const observe::Resources& each) {
  constexpr double kMilli = 1000;
  constexpr double kGi = 1024.0 * 1024 * 1024;
  std::vector<std::string> parts;
  for (const auto& [name, milli] : each.other) {
    if (name.find('/') != std::string::npos && milli > 0)
      parts.push_back(number(static_cast<double>(milli) / kMilli) + " " + name);
  }
  if (each.cpu > 0) parts.push_back(number(static_cast<double>(each.cpu) / kMilli) + " cpu");
  if (each.memory > 0)
    parts.push_back(number(static_cast<double>(each.memory) / kMilli / kGi) + " GiB memory");
  std::string text;
  for (std::size_t i = 0; i < parts.size(); ++i)
    text += (i == 0 ? "" : i + 1 == parts.size() ? " and " : ", ") + parts[i];
  return text;
}

/// False if the node has got a taint, say, since the placeholder came: the gang cannot use it, and
/// the autoscaler adds none while the placeholder is there.
bool helps(const QueuedGang& gang, const Held& held, const Room& room) {
  int first = 0;
  for (const Need& need : gang.needs) {
    first += need.count;
    if (held.rank >= first) continue;
    Constraints constraints = need.constraints;
    constraints.gpu_direct = false;  // a new node's agent has yet to report
    return refusal(constraints, *room.node).empty();
  }
  return false;
}

}  // namespace

std::string in_words(const std::vector<Need>& needs) {
  std::string text;
  for (const Need& need : needs) {
    const std::string each = in_words(need.each);
    text += text.empty() ? "" : ", ";
    text += std::to_string(need.count) + (need.count == 1 ? " pod" : " pods");
    if (!each.empty()) text += " with " + each + (need.count == 1 ? "" : " each");
    text += " (" + need.role + ")";
  }
  return text;
}

void Growth::begin(const SchedulerInput& input, const RoomOf& room_of) {
  for (const QueuedGang& gang : input.queued) begin(gang.held, room_of);
  for (const GrowingGang& gang : input.growing) begin(gang.held, room_of);
}

void Growth::begin(const std::vector<Held>& all, const RoomOf& room_of) {
  for (const Held& held : all) {
    if (const Room* room = room_of(held.node)) free_.emplace(held.node, room->free);
  }
}

void Growth::place(const std::string& node, const observe::Resources& amount) {
  if (const auto known = free_.find(node); known != free_.end()) known->second.subtract(amount);
}

void Growth::consider(const QueuedGang& gang, const Waiting& waiting, const RoomOf& room_of,
                      std::vector<observe::QuotaView>& quotas, SchedulerOutput& output) {
  if (!gang.may_grow || !lacks_nodes(waiting)) return;
  int pods = 0;
  for (const Need& need : gang.needs) pods += need.count;
  if (gangs_ == kMostGangs || (gangs_ > 0 && pods_ + pods > kMostPods)) return;
  ++gangs_;
  pods_ += pods;
  reserve_quota(gang, quotas);
  output.grow.emplace(gang.id, "needs " + in_words(gang.needs));
  for (const Held& held : gang.held) {
    const auto free = free_.find(held.node);
    if (free == free_.end()) continue;
    Room* room = room_of(held.node);
    if (helps(gang, held, *room) && free->second.lacking(held.amount).empty()) {
      free->second.subtract(held.amount);
      room->free.lower_to(free->second);
    } else {
      output.displaced[gang.id].insert(held.pod);
    }
  }
}

}  // namespace paceline::plan
